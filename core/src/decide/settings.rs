//! KSM settings in a configuration file: the kernel's names, each value held to what the kernel takes.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};

use crate::knobs::{Knob, KnobSettings};

/// Reads a table such as `{ pages_to_scan = 1000, advisor_mode = "none" }`. `true` and `false` are 1 and 0.
///
/// # Errors
/// A name that is no knob, a value the kernel does not take, a knob that no policy may touch, and
/// `pages_to_scan` together with the advisor, which the kernel refuses.
pub(super) fn knobs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<KnobSettings, D::Error> {
    deserializer.deserialize_map(KnobTableVisitor)
}

/// Reads one value for `knob`.
///
/// # Errors
/// A value the kernel does not take.
pub(super) fn value<'de, D: Deserializer<'de>>(knob: Knob, deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(KnobValueSeed(knob)).map(Some)
}

struct KnobTableVisitor;

impl<'de> Visitor<'de> for KnobTableVisitor {
    type Value = KnobSettings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of KSM settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KnobSettings, A::Error> {
        let mut knobs = KnobSettings::none();
        while let Some(name) = map.next_key::<String>()? {
            let knob: Knob = name.parse().map_err(A::Error::custom)?;
            if knob.needs_nothing_merged() {
                return Err(A::Error::custom(format!(
                    "{knob} can only be changed while nothing is merged, so no policy sets it: use `ksmith set`"
                )));
            }
            if knob.is_of_khugepaged() {
                return Err(A::Error::custom(format!(
                    "{knob} is khugepaged's, and no policy sets it: [huge_pages] keep holds its limits"
                )));
            }
            let value = map.next_value_seed(KnobValueSeed(knob))?;
            if knob == Knob::Run && value > 1 {
                return Err(A::Error::custom(
                    "run = 2 unmerges everything, which no policy does: use `ksmith unmerge`",
                ));
            }
            knobs.set(knob, value);
        }
        if knobs.get(Knob::AdvisorMode) == Some(1) && knobs.get(Knob::PagesToScan).is_some() {
            return Err(A::Error::custom(
                "pages_to_scan can't be set while advisor_mode is scan-time: leave out one",
            ));
        }
        Ok(knobs)
    }
}

/// One value of one knob: a number, a switch, or the word for a mode.
struct KnobValueSeed(Knob);

impl<'de> serde::de::DeserializeSeed<'de> for KnobValueSeed {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for KnobValueSeed {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Knob::AdvisorMode => f.write_str("\"none\" or \"scan-time\""),
            knob => write!(f, "a number from {} to {}", knob.range().start(), knob.range().end()),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        let taken = self.0 != Knob::AdvisorMode && self.0.range().contains(&number);
        if taken { Ok(number) } else { Err(E::invalid_value(Unexpected::Unsigned(number), &self)) }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<u64, E> {
        if *self.0.range().end() == 1 && self.0 != Knob::AdvisorMode {
            Ok(u64::from(on))
        } else {
            Err(E::invalid_type(Unexpected::Bool(on), &self))
        }
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<u64, E> {
        match self.0 {
            Knob::AdvisorMode => self.0.parse_value(word).map_err(E::custom),
            _ => Err(E::invalid_type(Unexpected::Str(word), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct SettingsFile {
        #[serde(deserialize_with = "knobs")]
        settings: KnobSettings,
    }

    fn read(settings: &str) -> Result<KnobSettings, String> {
        toml::from_str(&format!("settings = {{ {settings} }}"))
            .map(|file: SettingsFile| file.settings)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn settings_have_the_kernels_names_and_spelling() {
        let knobs = read(r#"pages_to_scan = 1000, smart_scan = false, advisor_mode = "none", run = 1"#).unwrap();
        assert_eq!(knobs.to_string(), "advisor_mode=none smart_scan=0 pages_to_scan=1000 run=1");
    }

    #[test]
    fn what_no_policy_may_or_no_kernel_takes_is_refused_with_its_place() {
        for (bad, why) in [
            ("pages_shared = 1", "no setting called \"pages_shared\""),
            ("pages_to_scan = -1", "expected a number from 0 to 4294967295"),
            ("pages_to_scan = 4294967296", "expected a number from 0 to 4294967295"),
            ("pages_to_scan = \"1000\"", "invalid type: string"),
            ("pages_to_scan = true", "invalid type: boolean"),
            ("advisor_mode = 1", "expected \"none\" or \"scan-time\""),
            ("advisor_mode = true", "expected \"none\" or \"scan-time\""),
            ("advisor_mode = \"fast\"", "advisor_mode takes none or scan-time"),
            ("max_page_sharing = 512", "use `ksmith set`"),
            ("max_ptes_none = 0", "[huge_pages] keep"),
            ("run = 2", "use `ksmith unmerge`"),
            ("advisor_mode = \"scan-time\", pages_to_scan = 1", "leave out one"),
        ] {
            let error = read(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
            assert!(error.contains("line 1, column"), "{bad}: {error}");
        }
    }
}
