//! A changed setting as an entry of the undo store.

use ksmith_core::knobs::{Knob, UnknownKnob};
use serde::{Deserialize, Serialize};

use crate::undo::{EntryKind, UndoEntry};

/// A changed setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "Text")]
pub(super) struct JournaledSetting {
    pub(super) knob: Knob,
    /// The original value, as the kernel showed it.
    pub(super) original: u64,
    /// The values of which the file holds one, if no other program has written since. `None` if they are unknown: then
    /// the original is restored whatever the file holds.
    pub(super) written: Option<Vec<u64>>,
}

impl UndoEntry for JournaledSetting {
    const KIND: EntryKind = EntryKind::Setting;
}

/// The serialized form, with values as the kernel's files show them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    knob: String,
    original: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<Vec<String>>,
}

/// An entry that names no setting of the kernel.
#[derive(Debug, thiserror::Error)]
enum BadSetting {
    #[error(transparent)]
    Knob(#[from] UnknownKnob),
    #[error("{0} can't be {1:?}")]
    Value(Knob, String),
}

impl TryFrom<Text> for JournaledSetting {
    type Error = BadSetting;

    fn try_from(text: Text) -> Result<Self, BadSetting> {
        let knob: Knob = text.knob.parse()?;
        // The kernel may have held a value outside the range that it documents; it goes back as it was.
        let parse = |value: &String| {
            let parsed = match knob {
                Knob::AdvisorMode => knob.parse_value(value).ok(),
                _ => value.parse().ok(),
            };
            parsed.ok_or_else(|| BadSetting::Value(knob, value.clone()))
        };
        let written = text.written.as_ref().map(|all| all.iter().map(parse).collect()).transpose()?;
        Ok(Self { knob, original: parse(&text.original)?, written })
    }
}

impl From<JournaledSetting> for Text {
    fn from(JournaledSetting { knob, original, written }: JournaledSetting) -> Self {
        let text = |value: &u64| knob.text(*value);
        Self {
            knob: knob.name().to_owned(),
            original: text(&original),
            written: written.map(|all| all.iter().map(text).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_setting(knob: &str, original: &str, written: Option<&str>) -> Result<JournaledSetting, BadSetting> {
        let written = written.map(|value| vec![value.to_owned()]);
        JournaledSetting::try_from(Text { knob: knob.to_owned(), original: original.to_owned(), written })
    }

    #[test]
    fn knobs_and_values_that_do_not_exist_are_refused() {
        assert!(parse_setting("run", "1", None).is_ok() && parse_setting("run", "1", Some("0")).is_ok());
        for (knob, original) in [("../run", "1"), ("run", "-1"), ("advisor_mode", "9"), ("run", "")] {
            assert!(parse_setting(knob, original, None).is_err(), "{knob} {original}");
        }
        assert!(parse_setting("advisor_mode", "none", Some("on")).is_err());
    }

    #[test]
    fn without_written_values_nothing_is_known_of_what_was_written() {
        let old: JournaledSetting = serde_json::from_str(r#"{"knob":"run","original":"1"}"#).unwrap();
        assert_eq!(old, JournaledSetting { knob: Knob::Run, original: 1, written: None });
    }
}
