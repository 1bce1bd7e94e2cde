//! The escapes of systemd in names of units.

/// Decodes systemd's escapes: bytes that a unit's name can't have are written as `\xNN`.
pub(super) fn unescape(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let code = rest.strip_prefix("\\x").and_then(|rest| rest.get(..2));
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            bytes.push(byte);
            rest = &rest[4..];
        } else {
            bytes.extend_from_slice(&rest.as_bytes()[..first.len_utf8()]);
            rest = &rest[first.len_utf8()..];
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_bytes_are_decoded_and_all_else_stays() {
        for (name, expected) in [
            (r"my\x2dbox", "my-box"),
            (r"a\xc3\xa9", "a\u{e9}"),
            (r"a\x2", r"a\x2"),
            (r"a\xzz\y", r"a\xzz\y"),
            ("", ""),
        ] {
            assert_eq!(unescape(name), expected, "{name}");
        }
    }
}
