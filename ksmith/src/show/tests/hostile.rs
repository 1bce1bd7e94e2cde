//! Models in which every text is hostile.

use ksmith_core::figures::{GUEST, find};
use ksmith_core::printable::{self, TextPage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::models;
use crate::show::guests::GuestOrder;
use crate::show::history::DecisionsShown;
use crate::show::{balance, guests, history, status};

/// Clears a terminal in C0 and in C1, begins a line, turns the direction of writing.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}2J\r\nKSM is running; all is well\u{202e}\u{2028}";

/// Returns the model with [`HOSTILE`] in place of every text.
fn hostile<T: Serialize + DeserializeOwned>(model: &T) -> T {
    fn texts(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::String(_) => found.push(path.to_owned()),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(at, item)| texts(item, &format!("{path}/{at}"), found));
            }
            Value::Object(object) => {
                object.iter().for_each(|(key, item)| texts(item, &format!("{path}/{key}"), found));
            }
            _ => {}
        }
    }
    let (mut json, mut paths) = (serde_json::to_value(model).unwrap(), Vec::new());
    texts(&json, "", &mut paths);
    let mut replaced = 0;
    for path in paths {
        let before = json.pointer_mut(&path).unwrap().clone();
        *json.pointer_mut(&path).unwrap() = HOSTILE.into();
        match serde_json::from_value::<T>(json.clone()) {
            Ok(_) => replaced += 1,
            // One of few words.
            Err(_) => *json.pointer_mut(&path).unwrap() = before,
        }
    }
    assert!(replaced >= 3, "{json}");
    serde_json::from_value(json).unwrap()
}

fn assert_harmless(page: &TextPage, as_before: &TextPage) {
    for line in page.text().lines() {
        assert!(!line.contains(|c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{2028}')), "{line:?}");
        assert!(!line.starts_with("KSM is running; all is well"), "{page}");
    }
    assert!(page.text().contains("\\u{1b}[2J"), "{page}");
    assert_eq!(page.text().lines().count(), as_before.text().lines().count(), "{page}");
}

fn assert_exact(json: &Value) {
    let text = printable::json(&serde_json::to_string_pretty(json).unwrap());
    assert!(!text.contains(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}')), "{text}");
    assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), json);
}

#[test]
fn no_text_of_others_reaches_the_terminal_as_it_is() {
    let (plain, model) = (models::status(), hostile(&models::status()));
    assert_harmless(&status::text(&model, None), &status::text(&plain, None));
    assert_exact(&status::json(&model));
    let (plain, model) = (models::balance(), hostile(&models::balance()));
    assert_harmless(&balance::text(&model, None), &balance::text(&plain, None));
    assert_exact(&balance::json(&model));
    let (plain, model) = (models::history(), hostile(&models::history()));
    assert_harmless(
        &history::text(&model, DecisionsShown::Details, None),
        &history::text(&plain, DecisionsShown::Details, None),
    );
    assert_exact(&serde_json::json!(model));
    let mut named = model.clone();
    named.guest = named.guests.pop();
    assert!(!history::text(&named, DecisionsShown::Details, None).text().contains('\u{1b}'));
    let (plain, model) = (models::guests(), hostile(&models::guests()));
    for by in ["guest", "user", "cgroup"] {
        let order = GuestOrder::new(find(GUEST, by), find(GUEST, "saved").unwrap());
        // Guests of different users are one group then.
        if by != "user" {
            assert_harmless(&guests::text(&model, &order, None), &guests::text(&plain, &order, None));
        }
        assert_exact(&guests::json(&model, &order));
    }
}
