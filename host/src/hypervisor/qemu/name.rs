//! The guest's name in QEMU's option `-name`.

use super::options::split;

/// Returns the value of `guest`, or the first value if it has no key.
pub(super) fn name(option: &str) -> Option<String> {
    let values = split(option);
    let keyed = values.iter().find_map(|value| value.strip_prefix("guest=").map(str::to_owned));
    keyed.or_else(|| values.into_iter().next().filter(|value| !is_key(value)))
}

/// Returns true if a value of `-name` is one of its other settings.
fn is_key(value: &str) -> bool {
    value.starts_with("process=") || value.starts_with("debug-threads=")
}
