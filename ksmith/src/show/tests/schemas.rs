//! Each document fits its schema, and has no key that the schema does not describe.

use ksmith_core::figures::{self, GUEST};
use ksmith_core::model::{GuestsReport, Status};
use ksmith_core::reading::Reading;
use serde_json::{Value, json};

use super::models;
use crate::show::guests::Order;
use crate::show::schemas::{SCHEMAS, of};
use crate::show::{balance, guests, status};

/// The same schema, which refuses keys that it does not describe.
fn strict(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(object) => {
            let is_object = object.get("type") == Some(&json!("object"));
            if is_object && object.contains_key("properties") {
                object.insert("additionalProperties".to_owned(), json!(false));
            }
            object.values_mut().for_each(|value| *value = strict(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| *value = strict(value.take())),
        _ => {}
    }
    schema
}

fn faults(command: &str, document: &Value) -> Vec<String> {
    let schema = strict(of(command).expect(command));
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    validator.iter_errors(document).map(|fault| format!("{}: {fault}", fault.instance_path())).collect()
}

fn assert_fits(command: &str, document: &Value) {
    assert_eq!(faults(command, document), Vec::<String>::new(), "{command}: {document:#}");
}

#[test]
fn every_schema_is_one() {
    for (command, schema) in SCHEMAS {
        let schema = schema();
        assert!(jsonschema::meta::is_valid(&schema), "{command}");
        assert_eq!(schema["title"], format!("ksmith {command} --json"));
    }
}

#[test]
fn the_status_fits_its_schema() {
    assert_fits("status", &status::json(&models::status()));
    assert_fits("status", &status::json(&Status::default()));
    let mut odd = models::status();
    odd.sample.ksm.pages_sharing = Reading::Value(u64::MAX);
    odd.sample.ksm.ksm_zero_pages = Reading::Value(i64::MIN);
    assert_fits("status", &status::json(&odd));
}

#[test]
fn guests_fit_their_schema_in_every_order() {
    let empty = GuestsReport { guests: Vec::new(), ..models::guests() };
    let mut shared = models::guests();
    shared.sharing = Some(ksmith_core::decide::domains::Sharing::default());
    for report in [models::guests(), empty, shared] {
        for sort in GUEST {
            for by in figures::labels().map(Some).chain([None]) {
                assert_fits("guests", &guests::json(&report, Order { by, sort }));
            }
        }
    }
}

#[test]
fn balance_fits_its_schema() {
    assert_fits("balance", &balance::json(&models::balance()));
}

#[test]
fn the_history_fits_its_schema() {
    let mut report = models::history();
    assert_fits("history", &json!(report));
    report.guest = report.guests.pop();
    report.decisions.clear();
    assert_fits("history", &json!(report));
}

#[test]
fn a_document_with_another_key_or_type_does_not_fit() {
    let whole = status::json(&models::status());
    let mut more = whole.clone();
    more["surprise"] = json!(1);
    let mut other = whole.clone();
    other["pages_shared"] = json!("many");
    let mut less = whole;
    less.as_object_mut().unwrap().remove("run");
    for document in [more, other, less] {
        assert_eq!(faults("status", &document).len(), 1, "{document:#}");
    }
}

#[test]
fn the_reference_page_is_that_of_the_table() {
    let page = include_str!("../../../../docs/reference/figures.md");
    let renewal = "cargo run -p ksmith -- schema --figures > docs/reference/figures.md";
    assert!(page == figures::reference(), "docs/reference/figures.md is out of date: {renewal}");
}

#[test]
fn the_page_of_the_historys_tables_is_that_of_the_file() {
    let page = include_str!("../../../../docs/reference/history.md");
    let renewal = "cargo run -p ksmith -- schema --history > docs/reference/history.md";
    assert!(page == ksmith_record::reference(), "docs/reference/history.md is out of date: {renewal}");
}
