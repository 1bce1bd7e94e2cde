use super::models;
use crate::show::balance::{json, text};

#[test]
fn the_plan_is_a_table_with_reasons() {
    let text = text(&models::balance(), None).to_string();
    for part in [
        "policy    no-swap: short, 60 MiB of 1.00 GiB available (a plan: [balance] is not enabled)",
        "WARNING: they would need more",
        "merging   offer no more: exposed\nmerging   stop merging uml:a:7: exposed",
        "guest  class      has       of     host  available    least       plan",
        "-12.0 MiB",
        "a: 90 MiB to spare",
        "b: it does not answer",
        "held",
        "3 s ago  a 256 MiB -> 200 MiB, came to 204 MiB (short)",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// The keys of `ksmith balance --json` are those of the model, with its objects inside.
#[test]
fn every_part_of_the_model_is_in_the_json() {
    fn keys(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(object) => {
                object.iter().for_each(|(key, value)| keys(value, &format!("{path}.{key}"), found));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| keys(item, path, found)),
            _ => found.push(path.to_owned()),
        }
    }
    let (mut model, mut shown) = (Vec::new(), Vec::new());
    keys(&serde_json::to_value(models::balance()).unwrap(), "", &mut model);
    keys(&json(&models::balance()), "", &mut shown);
    // The model's span of time is `giving_seconds` in the JSON.
    assert!(shown.contains(&".guests.giving_seconds".to_owned()));
    model.retain(|key| !key.starts_with(".guests.giving_for"));
    let lacking: Vec<_> = model.iter().filter(|key| !shown.contains(key)).collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}
