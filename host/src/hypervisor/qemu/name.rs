//! The guest's name in QEMU's option `-name`.

/// Returns the value of `guest`, or the first value if it has no key. QEMU writes a comma in a value as two.
pub(super) fn name(option: &str) -> Option<String> {
    let mut values = vec![String::new()];
    let mut rest = option.chars().peekable();
    while let Some(c) = rest.next() {
        if c == ',' && rest.next_if_eq(&',').is_none() {
            values.push(String::new());
        } else if let Some(value) = values.last_mut() {
            value.push(c);
        }
    }
    let keyed = values.iter().find_map(|value| value.strip_prefix("guest=").map(str::to_owned));
    keyed.or_else(|| values.into_iter().next().filter(|value| !is_key(value)))
}

/// Returns true if a value of `-name` is one of its other settings.
fn is_key(value: &str) -> bool {
    value.starts_with("process=") || value.starts_with("debug-threads=")
}
