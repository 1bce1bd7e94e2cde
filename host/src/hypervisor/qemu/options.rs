//! Options of QEMU as keys with values, in either of their two forms: `a=1,b=2` and JSON.

use ksmith_core::kernel::CommandLine;
use serde_json::{Map, Value};

/// One option's keys and values, in their order. Of several values of a key QEMU takes the last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct QemuOptions(Vec<(String, String)>);

impl QemuOptions {
    /// Parses the value of an option. A first value without a key has the key `implied`; a later one is a flag that
    /// is on.
    pub(super) fn parse(text: &str, implied: &str) -> Self {
        if let Ok(object) = serde_json::from_str::<Map<String, Value>>(text) {
            let mut pairs = Vec::new();
            flatten("", object, &mut pairs);
            return Self(pairs);
        }
        let pairs = split(text).into_iter().enumerate().map(|(index, part)| match part.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None if index == 0 => (implied.to_owned(), part),
            None => (part, "on".to_owned()),
        });
        Self(pairs.collect())
    }

    /// Parses all values of an option as one, as QEMU does with `-machine` and `-m`.
    pub(super) fn merged(line: &CommandLine, names: &[&str], implied: &str) -> Self {
        Self(values(line, names).flat_map(|text| Self::parse(text, implied).0).collect())
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rfind(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a switch, if it is written and understood.
    pub(super) fn switch(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            "on" | "yes" | "y" | "true" => Some(true),
            "off" | "no" | "n" | "false" => Some(false),
            _ => None,
        }
    }
}

/// Returns all values of an option, which takes one dash or two.
pub(super) fn values<'a>(line: &'a CommandLine, names: &[&str]) -> impl Iterator<Item = &'a str> {
    let arguments = line.arguments();
    arguments.iter().enumerate().filter_map(move |(index, argument)| {
        let option = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
        if names.contains(&option) {
            return arguments.get(index + 1).map(String::as_str);
        }
        option.split_once('=').filter(|(option, _)| names.contains(option)).map(|(_, value)| value)
    })
}

/// Splits at commas. QEMU writes a comma in a value as two.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c == ',' && rest.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// Appends the keys of an object as the other form writes them: `memory.size` for `{"memory":{"size":…}}`.
fn flatten(prefix: &str, object: Map<String, Value>, pairs: &mut Vec<(String, String)>) {
    for (key, value) in object {
        let key = format!("{prefix}{key}");
        match value {
            Value::Object(inner) => flatten(&format!("{key}."), inner, pairs),
            value => pairs.extend(scalar(&value).map(|text| (key, text))),
        }
    }
}

/// Returns a value of JSON as the other form writes it; `None` for an object or a list.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Bool(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_the_same_meaning() {
        for text in [
            "memory-backend-memfd,id=a,size=1024,share=off,x",
            r#"{"qom-type":"memory-backend-memfd","id":"a","size":1024,"share":false,"x":true}"#,
        ] {
            let options = QemuOptions::parse(text, "qom-type");
            let found = ["qom-type", "id", "size", "none"].map(|key| options.get(key));
            assert_eq!(found, [Some("memory-backend-memfd"), Some("a"), Some("1024"), None], "{text}");
            assert_eq!(["share", "x", "id"].map(|key| options.switch(key)), [Some(false), Some(true), None]);
        }
        assert_eq!(QemuOptions::parse("a,,b,k=1,,2,k=3,,", "first"), {
            let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            QemuOptions(vec![pair("first", "a,b"), pair("k", "1,2"), pair("k", "3,")])
        });
    }

    #[test]
    fn keys_within_keys_have_dots() {
        for text in ["q35,memory.size=2G,memory.slots=2", r#"{"type":"q35","memory":{"size":"2G","slots":2}}"#] {
            let options = QemuOptions::parse(text, "type");
            assert_eq!(
                ["type", "memory.size", "memory.slots", "size"].map(|key| options.get(key)),
                [Some("q35"), Some("2G"), Some("2"), None]
            );
        }
    }

    #[test]
    fn options_of_one_name_are_one_and_the_last_value_counts() {
        let line = CommandLine::parse(b"qemu\0-M\0q35,a=1\0-m\0--machine=pc\0--machine\0b=2,a=3\0-machine");
        let options = QemuOptions::merged(&line, &["machine", "M"], "type");
        assert_eq!(["type", "a", "b"].map(|key| options.get(key)), [Some("pc"), Some("3"), Some("2")]);
    }
}
