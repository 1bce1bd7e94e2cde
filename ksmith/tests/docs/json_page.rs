//! The page of what commands print with `--json`, from their schemas.

use ksmith::show::schemas;
use serde_json::Value;

use crate::generated::{cell, check};

const PAGE: &str = "docs/reference/json.md";

const HEAD: &str = "# What `--json` prints\n\n\
    Keys are stable; bytes, seconds and per cent are plain numbers. `null` is a figure that is unknown, or that this kernel lacks.\n\
    `ksmith schema COMMAND` prints the whole JSON Schema of a command, to the last key. Here are the keys of the first step; [the\n\
    figures](figures.md) explain those below.\n\n\
    This page is generated: `KSMITH_WRITE=1 cargo test -p ksmith --test docs`.\n";

/// The name of a type, or of several.
fn type_of(schema: &Value) -> String {
    match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "one of several".to_owned(),
    }
}

fn keys(schema: &Value) -> Vec<String> {
    let row = |(key, of_key): (&String, &Value)| {
        let about = of_key["description"].as_str().unwrap_or_default();
        format!("| `{key}` | {} | {} |\n", type_of(of_key), cell(about))
    };
    schema["properties"].as_object().into_iter().flatten().map(row).collect()
}

#[test]
fn the_page_of_schemas_is_fresh() {
    let mut page = HEAD.to_owned();
    let mut listed = 0;
    for (name, _) in schemas::SCHEMAS {
        let schema = schemas::command_schema(name).unwrap();
        page.push_str(&format!("\n## ksmith {name}\n"));
        let forms = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
        let forms = forms.map_or_else(|| vec![schema.clone()], Clone::clone);
        for form in forms {
            let list = if form["type"] == "array" { &form["items"] } else { &form };
            let about = form["description"].as_str().unwrap_or_default();
            page.push_str(
                &format!("\n{about}\n\n| key | type | meaning |\n|---|---|---|\n").replace("\n\n\n", "\n"),
            );
            let rows = keys(list);
            listed += rows.len();
            page.push_str(&rows.concat());
        }
    }
    assert!(listed > 50, "only {listed} keys were found");
    check(PAGE, &page);
}
