//! Entry point of the fuzz target `mconsole`.

/// Reads a reply of the management console.
pub fn read_reply(bytes: &[u8]) {
    let _ = super::mconsole::parse(bytes);
}
