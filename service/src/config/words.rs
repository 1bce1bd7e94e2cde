//! The messages of the TOML reader, reworded for operators.

/// Keys that are listed where one is unknown. Where there are more, the manual lists them.
const FEW_KEYS: usize = 8;

/// Rewords a message of the reader about the value at a path.
pub(super) fn reword_message(message: &str, path: &[String]) -> String {
    let message = message.trim();
    let key = path.iter().rev().find(|part| part.parse::<usize>().is_err()).map_or("the value", String::as_str);
    let quoted = |prefix: &str| message.strip_prefix(prefix).and_then(|rest| rest.split_once("`, "));
    if let Some((field, expected)) = quoted("unknown field `") {
        return unknown_key(field, expected, path);
    }
    if let Some((word, expected)) = quoted("unknown variant `") {
        return format!("{key} takes {}, not {word:?}", list(&names(expected), true));
    }
    for prefix in ["invalid type: ", "invalid value: "] {
        let Some(rest) = message.strip_prefix(prefix) else { continue };
        if let Some((found, expected)) = rest.rsplit_once(", expected ") {
            return format!("{key} takes {}, not {}", expectation(expected), finding(found));
        }
    }
    let line = message.lines().collect::<Vec<_>>().join("; ");
    match path.last() {
        Some(last) if line.starts_with("must ") => format!("{last} {line}"),
        Some(last) if last.parse::<usize>().is_err() && !line.contains(last.as_str()) => format!("{last}: {line}"),
        _ => line,
    }
}

fn unknown_key(field: &str, expected: &str, path: &[String]) -> String {
    let known = names(expected);
    let tables: Vec<_> = path.iter().rev().skip(1).rev().filter(|part| part.parse::<usize>().is_err()).collect();
    let place = match tables.len() {
        0 => "at the top of the file".to_owned(),
        _ => format!("in [{}]", tables.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(".")),
    };
    let distance = |name: &&&str| strsim::damerau_levenshtein(field, name);
    let nearest = known.iter().min_by_key(distance).filter(|name| distance(name) <= name.len().max(3) / 3);
    let part = known.iter().find(|name| name.contains(field) && field.len() > 2);
    match nearest.or(part) {
        Some(name) => format!("there is no key {field:?} {place}: did you mean {name:?}?"),
        None if known.is_empty() => format!("there is no key {field:?} {place}: it has no keys"),
        None if known.len() <= FEW_KEYS => {
            format!("there is no key {field:?} {place}: it has {}", list(&known, false))
        }
        None => format!("there is no key {field:?} {place}: `man ksmith.toml` lists all"),
    }
}

/// Returns the names between backquotes.
fn names(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn list(names: &[&str], is_choice: bool) -> String {
    let word = if is_choice { " or " } else { " and " };
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{}{word}{last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => "nothing".to_owned(),
    }
}

/// Describes the values that a key takes.
fn expectation(expected: &str) -> String {
    let said = match expected {
        "f64" | "f32" => "a number",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "a nonzero u32" => "a whole number from 1 to 4294967295",
        "a nonzero u64" => "a whole number over 0",
        "a boolean" => "true or false",
        "a string" | "string or table" | "string only" => "a text in quotes",
        "path string" => "a path in quotes",
        "a sequence" => "a list, as in [\"a\", \"b\"]",
        "a map" => "a table of keys",
        text if text.starts_with("struct ") => "a table of keys",
        text => text,
    };
    said.to_owned()
}

/// Describes the value in the file.
fn finding(found: &str) -> String {
    if let Some(text) = found.strip_prefix("string ") {
        return format!("the text {text}");
    }
    for kind in ["integer `", "floating point `", "boolean `"] {
        if let Some(value) = found.strip_prefix(kind).and_then(|rest| rest.strip_suffix('`')) {
            return value.to_owned();
        }
    }
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        other => other.to_owned(),
    }
}
