//! Entry point of the fuzz target `images`.

use std::io::Cursor;

use super::PAGE;
use super::format::ImageFormat;
use crate::memory::salt::FingerprintSalt;

/// Reads the pages of an image with these bytes: no more of them than the bytes can hold.
pub fn read_image(bytes: &[u8]) {
    let head = bytes.get(..PAGE).unwrap_or(bytes);
    let Ok(format) = ImageFormat::from_head(head, bytes.len() as u64) else { return };
    let salt = FingerprintSalt::from_seed(1);
    if let Ok(pieces) = format.read_pages(Cursor::new(bytes), bytes.len() as u64, &salt) {
        let pages: usize = pieces.iter().map(Vec::len).sum();
        // A page of one repeated byte takes nine bytes of a stream.
        assert!(pages <= bytes.len() / 9, "{pages} pages in {} bytes", bytes.len());
    }
}
