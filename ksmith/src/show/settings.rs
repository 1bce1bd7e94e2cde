//! The configuration in force: each key with its value, and whether the file sets it.
//!
//! The packaged configuration lists all keys with their defaults: it gives the order, and the keys that the file leaves
//! out.

use ksmith_core::figures::schema::{document, plain, plains};
use ksmith_core::printable::{TextPage, TextTone};
use serde_json::json;
use toml::{Table, Value};

use crate::manual::settings::{self, BadPackagedSettings, PackagedSettings};

/// Tables with keys of any name. A file that has such a table replaces all of it.
const OF_ANY_NAME: [&str; 1] = ["balance.classes"];

/// Column of the marks behind shorter lines.
const MARKS: usize = 46;

/// One table of the configuration, or one of its rules.
#[derive(Debug)]
struct ConfigSection {
    /// The name between the brackets: `balance.classes`.
    name: String,
    /// True if it is one of several: `[[balance.rule]]`.
    is_rule: bool,
    keys: Vec<EffectiveKey>,
}

/// One key in force.
#[derive(Debug)]
struct EffectiveKey {
    name: String,
    /// `None` if the key has no default, and the file does not set it.
    value: Option<Value>,
    is_default: bool,
}

/// All keys, in the order of the packaged configuration.
#[derive(Debug)]
pub struct EffectiveConfig {
    sections: Vec<ConfigSection>,
}

impl EffectiveConfig {
    /// Merges the keys of a file, `written`, with the defaults.
    ///
    /// # Errors
    /// The packaged configuration can't be read, which is a fault of the program.
    pub fn new(written: &Table) -> Result<Self, BadPackagedSettings> {
        let mut sections = Vec::new();
        for table in PackagedSettings::packaged()?.tables {
            let name = table.name().to_owned();
            let found = find(written, &name);
            let is_rule = table.header.starts_with("[[");
            if let (true, Some(Value::Array(rules))) = (is_rule, found) {
                sections.extend(rules.iter().filter_map(Value::as_table).map(|rule| ConfigSection {
                    name: name.clone(),
                    is_rule,
                    keys: set(rule),
                }));
            } else if let (true, Some(Value::Table(own))) = (OF_ANY_NAME.contains(&name.as_str()), found) {
                sections.push(ConfigSection { name, is_rule, keys: set(own) });
            } else if !is_rule {
                let own = found.and_then(Value::as_table);
                let keys = table.keys.iter().map(|key| in_force(key, own)).collect::<Result<_, _>>()?;
                sections.push(ConfigSection { name, is_rule, keys });
            }
        }
        Ok(Self { sections })
    }

    /// Returns the configuration as TOML that ksmith reads: defaults are marked, and a key without a value is a
    /// comment.
    pub fn text(&self, first: &str) -> TextPage {
        let mut page = TextPage::new();
        page.line(format_args!("# {first}"));
        for ConfigSection { name, is_rule, keys } in self.sections.iter().filter(|section| !section.keys.is_empty())
        {
            page.line("");
            page.line(if *is_rule { format!("[[{name}]]") } else { format!("[{name}]") });
            for EffectiveKey { name, value, is_default } in keys {
                let key = key_text(name);
                match value {
                    None => page.toned(TextTone::Faint, format_args!("{:<MARKS$}# not set", format!("# {key}"))),
                    Some(value) if *is_default => {
                        page.toned(
                            TextTone::Faint,
                            format_args!("{:<MARKS$}# default", format!("{key} = {value} ")),
                        );
                    }
                    Some(value) => page.line(format_args!("{key} = {value}")),
                }
            }
        }
        page
    }

    /// Returns each key by its whole name, `limits.max_cpu`, with its value. Rules are lists.
    pub fn json(&self) -> serde_json::Value {
        let mut whole = serde_json::Map::new();
        for ConfigSection { name, is_rule, keys } in &self.sections {
            if *is_rule {
                let rule: serde_json::Map<_, _> =
                    keys.iter().map(|key| (key.name.clone(), json!(key.value))).collect();
                let rules = whole.entry(name).or_insert_with(|| json!({ "value": [], "is_default": false }));
                if let Some(rules) = rules["value"].as_array_mut() {
                    rules.push(rule.into());
                }
                continue;
            }
            for key in keys {
                let value = json!({ "value": key.value, "is_default": key.is_default });
                whole.insert(format!("{name}.{}", key.name), value);
            }
        }
        whole.into()
    }
}

/// Returns the schema of `ksmith config show`.
pub fn schema() -> serde_json::Value {
    let setting = plains(
        &[("is_default", "boolean", "True if the file leaves it out, so that the default holds.")],
        [("value", json!({ "description": "Value in force, in the unit of the key's name; null for none." }))],
    );
    let keys = [
        ("path", "string", "Path of the configuration."),
        ("is_there", "boolean", "True if it is there. Without it the defaults hold."),
    ];
    let mut settings = plain("object", "Settings by table and key, such as limits.max_cpu; a list for rules.");
    settings["additionalProperties"] = setting;
    document("ksmith config show --json", plains(&keys, [("settings", settings)]))
}

/// Returns the value at a dotted name such as `balance.classes`.
fn find<'a>(written: &'a Table, name: &str) -> Option<&'a Value> {
    let mut parts = name.split('.');
    let first = written.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

/// Returns the keys of a table that has no defaults.
fn set(table: &Table) -> Vec<EffectiveKey> {
    let key = |(name, value): (&String, &Value)| EffectiveKey {
        name: name.clone(),
        value: Some(value.clone()),
        is_default: false,
    };
    table.iter().map(key).collect()
}

fn in_force(key: &settings::SettingsKey, own: Option<&Table>) -> Result<EffectiveKey, BadPackagedSettings> {
    let name = key.name.clone();
    if let Some(value) = own.and_then(|own| own.get(&key.name)) {
        return Ok(EffectiveKey { name, value: Some(value.clone()), is_default: false });
    }
    if !key.is_default {
        return Ok(EffectiveKey { name, value: None, is_default: true });
    }
    let line = format!("{name} = {}", key.value);
    let mut table: Table = line.parse().map_err(|error| BadPackagedSettings::Value(line, error))?;
    Ok(EffectiveKey { value: table.remove(&name), name, is_default: true })
}

/// Returns a key as TOML has it: quoted unless it is plain.
fn key_text(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => Value::from(name).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ksmith_service::config::Config;

    use super::*;

    const OWN: &str = "[limits]\nmax_cpu = \"40%\"\n[policy]\nkind = \"fixed\"\n[policy.fixed]\n\
                       settings = { pages_to_scan = 7 }\n[balance.classes]\nlead = 3\n\"two words\" = 1\n\
                       [balance]\ndefault_class = \"lead\"\n[[balance.rule]]\nname = \"db-*\"\nhold = true\n\
                       [[domains.rule]]\ndomain = \"a\"\nuser = \"alice\"\n[domains.nodes]\na = 0\n";

    fn in_force(text: &str) -> EffectiveConfig {
        EffectiveConfig::new(&text.parse().unwrap()).unwrap()
    }

    fn read(text: &str) -> Config {
        Config::parse(Path::new("ksmith.toml"), text).unwrap()
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same_configuration() {
        for text in ["", OWN, settings::PACKAGED] {
            let shown = in_force(text).text("here").to_string();
            assert_eq!(read(&shown), read(text), "{shown}");
        }
    }

    #[test]
    fn defaults_and_keys_without_a_value_are_marked() {
        let shown = in_force(OWN).text("here").to_string();
        let line = |start: &str| {
            shown.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {shown}"))
        };
        assert_eq!(line("max_cpu ="), "max_cpu = \"40%\"");
        assert!(line("prune = false").ends_with("# default"));
        assert!(line("# ksmd_cpus").ends_with("# not set"));
        assert!(!shown.contains("gold"), "a table of classes replaces the default one: {shown}");
    }

    #[test]
    fn programs_get_each_key_with_its_value() {
        let json = in_force(OWN).json();
        assert_eq!(json["limits.max_cpu"], json!({ "value": "40%", "is_default": false }));
        assert_eq!(json["guests.prune"], json!({ "value": false, "is_default": true }));
        assert_eq!(json["daemon.ksmd_cpus"], json!({ "value": null, "is_default": true }));
        assert_eq!(json["balance.rule"]["value"], json!([{ "hold": true, "name": "db-*" }]));
    }
}
