//! JSON Schema of what `--json` prints, from the rows of the table and the structure around them.

use serde_json::{Map, Value as Json, json};

use super::FigureRow;
use crate::field::{FigureDescription, FigureType};

/// The dialect of the schemas.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema of one figure. `null` stands for an unknown value, or one that this kernel lacks.
pub fn figure(field: &FigureDescription) -> Json {
    let word = match field.holds {
        FigureType::Unsigned | FigureType::Signed => "integer",
        FigureType::Real => "number",
        FigureType::Flag => "boolean",
        FigureType::Text => "string",
    };
    let mut whole = json!({
        "description": field.help,
        "type": [word, "null"],
        "x-unit": field.unit.word(),
        "x-kind": field.kind.word(),
        "x-source": field.source,
        "x-since": field.since.to_string(),
    });
    if field.holds == FigureType::Unsigned {
        whole["minimum"] = json!(0);
    }
    whole
}

/// The schema of an object: its figures, and its other keys. All of them are always there.
pub fn object(
    rows: impl IntoIterator<Item = FigureRow>,
    others: impl IntoIterator<Item = (&'static str, Json)>,
) -> Json {
    let mut properties = Map::new();
    for row in rows {
        add(&mut properties, row.field.name, figure(&row.field));
    }
    properties.extend(others.into_iter().map(|(key, schema)| (key.to_owned(), schema)));
    of_properties(properties)
}

fn of_properties(properties: Map<String, Json>) -> Json {
    let required: Vec<String> = properties.keys().cloned().collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Adds a property. Each dot in the key is a step into an object.
fn add(properties: &mut Map<String, Json>, key: &str, schema: Json) {
    let Some((outer, rest)) = key.split_once('.') else {
        properties.insert(key.to_owned(), schema);
        return;
    };
    let inside = properties.remove(outer).and_then(|mut object| match object.get_mut("properties") {
        Some(Json::Object(inside)) => Some(std::mem::take(inside)),
        _ => None,
    });
    let mut inside = inside.unwrap_or_default();
    add(&mut inside, rest, schema);
    properties.insert(outer.to_owned(), of_properties(inside));
}

/// The schema of a list.
pub fn list(help: &str, items: Json) -> Json {
    json!({ "description": help, "type": "array", "items": items })
}

/// The same schema, or `null`.
pub fn or_null(schema: Json) -> Json {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// The schema of one plain value: `string`, `integer`, `number` or `boolean`; with a `?` behind it, or `null`.
pub fn plain(word: &str, help: &str) -> Json {
    match word.strip_suffix('?') {
        Some(word) => json!({ "description": help, "type": [word, "null"] }),
        None => json!({ "description": help, "type": word }),
    }
}

/// The schema of an object of plain values, each a key, a word as [`plain`] takes it, and help; and of its other keys.
pub fn plains(keys: &[(&'static str, &str, &str)], others: impl IntoIterator<Item = (&'static str, Json)>) -> Json {
    let keys = keys.iter().map(|(key, word, help)| (*key, plain(word, help)));
    object([], keys.chain(others))
}

/// The schema of an object with keys that are not known beforehand.
pub fn map(help: &str, values: Json) -> Json {
    json!({ "description": help, "type": "object", "additionalProperties": values })
}

/// The schema of a list of sentences or names.
pub fn texts(help: &str) -> Json {
    list(help, json!({ "type": "string" }))
}

/// The same schema without a key in its list of keys that are always there.
#[must_use]
pub fn optional(mut schema: Json, key: &str) -> Json {
    if let Some(Json::Array(required)) = schema.get_mut("required") {
        required.retain(|name| name != key);
    }
    schema
}

/// The schema of a whole document.
#[must_use]
pub fn document(title: &str, mut schema: Json) -> Json {
    schema["$schema"] = json!(DIALECT);
    schema["title"] = json!(title);
    schema
}

/// The schema of `errors`: sentences about what could not be read.
pub fn errors() -> Json {
    texts("Faults, one sentence each.")
}
