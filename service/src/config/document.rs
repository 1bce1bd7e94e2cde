//! A configuration as it is written, with the place of each key and value.
//!
//! TOML's reader ends at the first fault. To find all, what is at fault is left out, and the rest is read again.

use std::collections::BTreeMap;
use std::ops::Range;

use ksmith_core::amount::{self, BadAmount};
use ksmith_core::contradiction::Contradiction;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::Config;
use super::fault::ConfigFault;
use super::words;

/// Faults that are named at most: behind so many, the file is something else.
const MOST_FAULTS: usize = 100;

/// The text of a configuration with its meaning. Faulty parts are left out, so that their defaults stand there.
pub(super) struct ConfigDocument<'a> {
    text: &'a str,
    root: DeTable<'a>,
    /// Paths of the parts that are left out.
    left_out: Vec<Vec<String>>,
    /// True if all of the text could be read.
    is_read: bool,
    pub config: Config,
}

/// A key or a value in the text.
struct DocumentNode {
    path: Vec<String>,
    key: Option<Range<usize>>,
    value: Range<usize>,
    /// The text, if the value of a key is one.
    written: Option<String>,
}

/// Amounts that are written as texts, as the numbers of their keys: `"1.5G"` is 1536 for `max_mib`.
#[derive(Debug, Default)]
pub(super) struct WrittenAmounts(BTreeMap<Vec<String>, Result<String, BadAmount>>);

impl WrittenAmounts {
    /// Finds the amounts of a text.
    pub fn from_text(text: &str) -> Self {
        let (root, _) = DeTable::parse_recoverable(text);
        let mut nodes = Vec::new();
        list_table(root.get_ref(), &mut Vec::new(), &mut nodes);
        let found = nodes.into_iter().filter_map(|node| {
            let written = node.written?;
            amount::for_key(node.path.last()?, &written).map(|number| (node.path, number))
        });
        Self(found.collect())
    }
}

impl<'a> ConfigDocument<'a> {
    /// Reads a text with its amounts. Returns the document and its faults.
    pub fn read(text: &'a str, amounts: &'a WrittenAmounts) -> (Self, Vec<ConfigFault>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        let (root, span) = (root.get_ref().clone(), root.span());
        let mut document =
            Self { text, root, left_out: Vec::new(), is_read: errors.is_empty(), config: Config::default() };
        let mut faults: Vec<_> = errors.iter().take(MOST_FAULTS).map(|error| document.fault(error, &[])).collect();
        faults.extend(document.take_amounts(amounts));
        while document.is_read && faults.len() < MOST_FAULTS {
            let root = Spanned::new(span.clone(), document.root.clone());
            match Config::deserialize(Deserializer::from(root)) {
                Ok(config) => {
                    document.config = config;
                    return (document, faults);
                }
                Err(error) => {
                    let path = error.span().and_then(|span| document.node_at(&span)).unwrap_or_default();
                    faults.push(document.fault(&error, &path));
                    document.is_read = leave_out(&mut document.root, &path);
                    document.left_out.push(path);
                }
            }
        }
        document.is_read = false;
        faults.truncate(MOST_FAULTS);
        (document, faults)
    }

    /// Puts the numbers of amounts in their places, and leaves out what is no amount.
    fn take_amounts(&mut self, WrittenAmounts(amounts): &'a WrittenAmounts) -> Vec<ConfigFault> {
        let mut faults = Vec::new();
        for (path, number) in amounts {
            match number {
                Ok(number) => {
                    let value = DeValue::parse(number).ok();
                    if let Some((place, value)) = value_at(&mut self.root, path).zip(value) {
                        *place = value.into_inner();
                    }
                }
                Err(why) => {
                    let place = self.place(path).unwrap_or_default();
                    faults.push(ConfigFault::at(self.text, place, why.to_string()));
                    leave_out(&mut self.root, path);
                    self.left_out.push(path.clone());
                }
            }
        }
        faults
    }

    /// Locates contradictions in the text. One of a value that is left out is dropped: the default stands in its place.
    pub fn faults_of(&self, found: &[Contradiction]) -> Vec<ConfigFault> {
        let is_left_out = |key: &Vec<String>| {
            self.left_out.iter().any(|path| path.starts_with(key) || (key.starts_with(path) && !path.is_empty()))
        };
        let sound = found.iter().filter(|one| self.is_read && !one.keys.iter().any(is_left_out));
        let faults = sound.map(|Contradiction { keys, message }| {
            let mut places = keys.iter().filter_map(|key| self.place(key));
            let first = places.next().unwrap_or_default();
            let mut fault = ConfigFault::at(self.text, first, message.clone());
            let others: Vec<_> = places
                .map(|byte| ConfigFault::at(self.text, byte, String::new()).line)
                .filter(|line| *line != fault.line)
                .map(|line| line.to_string())
                .collect();
            match others.len() {
                0 => {}
                1 => fault.message.push_str(&format!(" (see line {})", others.concat())),
                _ => fault.message.push_str(&format!(" (see lines {})", others.join(" and "))),
            }
            fault
        });
        faults.collect()
    }

    fn fault(&self, error: &toml::de::Error, path: &[String]) -> ConfigFault {
        let byte = error.span().map_or(0, |span| span.start);
        ConfigFault::at(self.text, byte, words::reword_message(error.message(), path))
    }

    /// Returns the offset of the value at a path.
    fn place(&self, path: &[String]) -> Option<usize> {
        let nodes = self.nodes();
        let node = nodes.iter().find(|node| node.path == path)?;
        Some(node.value.start)
    }

    /// Returns the path of the smallest key or value at a span.
    fn node_at(&self, span: &Range<usize>) -> Option<Vec<String>> {
        let nodes = self.nodes();
        let is_at = |node: &&DocumentNode| node.key.as_ref() == Some(span) || node.value == *span;
        let around = |node: &&DocumentNode| node.value.start <= span.start && span.end <= node.value.end;
        // The header of a table is the place of what it has no word for. Of two at one place the inner one is meant.
        let exact = nodes.iter().filter(is_at).max_by_key(|node| node.path.len());
        let node = exact.or_else(|| nodes.iter().filter(around).min_by_key(|node| node.value.len()))?;
        Some(node.path.clone())
    }

    fn nodes(&self) -> Vec<DocumentNode> {
        let mut nodes = Vec::new();
        list_table(&self.root, &mut Vec::new(), &mut nodes);
        nodes
    }
}

fn list_table(table: &DeTable<'_>, path: &mut Vec<String>, into: &mut Vec<DocumentNode>) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        let written = value.get_ref().as_str().map(str::to_owned);
        into.push(DocumentNode { path: path.clone(), key: Some(key.span()), value: value.span(), written });
        list_value(value.get_ref(), path, into);
        path.pop();
    }
}

fn list_value(value: &DeValue<'_>, path: &mut Vec<String>, into: &mut Vec<DocumentNode>) {
    match value {
        DeValue::Table(table) => list_table(table, path, into),
        DeValue::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                path.push(index.to_string());
                into.push(DocumentNode { path: path.clone(), key: None, value: value.span(), written: None });
                list_value(value.get_ref(), path, into);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Returns the value at a path.
fn value_at<'t, 'a>(table: &'t mut DeTable<'a>, path: &[String]) -> Option<&'t mut DeValue<'a>> {
    let (first, rest) = path.split_first()?;
    let (_, found) = table.iter_mut().find(|(key, _)| key.get_ref() == first)?;
    let mut value = found.get_mut();
    for part in rest {
        value = match value {
            DeValue::Table(table) => table.iter_mut().find(|(key, _)| key.get_ref() == part)?.1.get_mut(),
            DeValue::Array(array) => array.get_mut(part.parse::<usize>().ok()?)?.get_mut(),
            _ => return None,
        };
    }
    Some(value)
}

/// Removes the value at a path. Returns true if it was there.
fn leave_out(table: &mut DeTable<'_>, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    if rest.is_empty() {
        return table.remove(first.as_str()).is_some();
    }
    let found = table.iter_mut().find(|(key, _)| key.get_ref() == first);
    found.is_some_and(|(_, value)| leave_out_of_value(value.get_mut(), rest))
}

fn leave_out_of_value(value: &mut DeValue<'_>, path: &[String]) -> bool {
    match value {
        DeValue::Table(table) => leave_out(table, path),
        DeValue::Array(array) => {
            let Some((index, rest)) = path.split_first() else { return false };
            let Ok(index) = index.parse::<usize>() else { return false };
            if !rest.is_empty() {
                return array.get_mut(index).is_some_and(|value| leave_out_of_value(value.get_mut(), rest));
            }
            let rest = array.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, value)| value.clone());
            let rest = rest.collect();
            let is_there = index < array.len();
            *array = rest;
            is_there
        }
        _ => false,
    }
}
