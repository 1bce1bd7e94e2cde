//! A configuration as a table of plain values.

use ksmith_core::amount;
use toml::{Table, Value};

/// Parses a configuration into a table, with amounts as the numbers of their keys. Returns `None` if it is no TOML.
pub fn parse_table(text: &str) -> Option<Table> {
    let mut root = text.parse::<Table>().ok()?;
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
