//! Configuration keys that have a new name. The old one is read for one release.

use ksmith_core::amount;
use toml::{Table, Value};

/// The table of each key below the root, its old name and its new one.
const RENAMED: [(&[&str], &str, &str); 3] = [
    (&["balance"], "squeal_psi_percent", "pressure_psi_percent"),
    (&["balance"], "squeal_faults_per_second", "pressure_faults_per_second"),
    (&["domains"], "residue_mib", "remaining_mergeable_mib"),
];

/// Returns a warning for each old name in the text of a configuration.
pub fn warnings(text: &str) -> Vec<String> {
    let Ok(root) = text.parse::<Table>() else { return Vec::new() };
    let has = |path: &[&str], key: &str| {
        let mut tables = path.iter();
        let table = tables.try_fold(&root, |table, name| table.get(*name).and_then(Value::as_table));
        table.is_some_and(|table| table.contains_key(key))
    };
    let old = RENAMED.iter().filter(|(path, old, _)| has(path, old));
    old.map(|(path, old, new)| {
        let table = path.join(".");
        format!("{table}.{old} is called {table}.{new} now; the next release refuses the old name")
    })
    .collect()
}

/// Parses a configuration into a table, with the new name of each key, and amounts as the numbers of their keys.
/// Returns `None` if it is no TOML.
pub fn written(text: &str) -> Option<Table> {
    let mut root = text.parse::<Table>().ok()?;
    for (path, old, new) in RENAMED {
        let mut names = path.iter();
        let table = names.try_fold(&mut root, |table, name| table.get_mut(*name)?.as_table_mut());
        if let Some(table) = table
            && let Some(value) = table.remove(old)
        {
            table.insert(new.to_owned(), value);
        }
    }
    root.iter_mut().for_each(|(key, value)| take_amounts(key, value));
    Some(root)
}

fn take_amounts(key: &str, value: &mut Value) {
    match value {
        Value::Table(table) => table.iter_mut().for_each(|(key, value)| take_amounts(key, value)),
        Value::Array(array) => array.iter_mut().for_each(|value| take_amounts("", value)),
        Value::String(text) => {
            let number = amount::for_key(key, text).and_then(Result::ok);
            if let Some(number) =
                number.and_then(|number| format!("it = {number}").parse::<Table>().ok()?.remove("it"))
            {
                *value = number;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Config;
    use super::*;

    #[test]
    fn an_old_name_is_read_and_the_new_one_is_named() {
        let text = "[balance]\nsqueal_psi_percent = 2.5\npressure_faults_per_second = 7";
        let config = Config::parse(Path::new("ksmith.toml"), text).unwrap();
        assert_eq!(config.balance.pressure_psi_percent, 2.5);
        assert_eq!(
            warnings(text),
            ["balance.squeal_psi_percent is called balance.pressure_psi_percent now; \
              the next release refuses the old name"]
        );
    }

    #[test]
    fn what_is_written_has_the_new_names() {
        let table = written("[balance]\nsqueal_psi_percent = 2.5").unwrap();
        assert_eq!(table["balance"].to_string(), "{ pressure_psi_percent = 2.5 }");
    }

    #[test]
    fn every_old_name_is_accepted() {
        for (path, old, _) in RENAMED {
            let text = format!("[{}]\n{old} = 1", path.join("."));
            assert!(Config::parse(Path::new("ksmith.toml"), &text).is_ok(), "{text}");
        }
    }
}
