//! The cells that a text takes on a terminal.

use unicode_width::UnicodeWidthStr;

/// Returns the cells that a text takes on a terminal: Chinese characters take two.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Cuts a text to so many cells of a terminal, with "…" at the end if it is cut.
pub fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    // Marks without a width may follow one another without end.
    let ends = text.char_indices().map(|(at, _)| at).take(room.saturating_mul(4));
    let fits = |end: &usize| text.get(..*end).is_some_and(|beginning| width(beginning) < room);
    match ends.take_while(fits).last() {
        Some(end) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_its_width() {
        assert_eq!(
            ["abc", "abcd", "漢字漢", "", "e\u{301}a"].map(|text| cut(text, 3)),
            ["abc", "ab…", "漢…", "", "e\u{301}a"]
        );
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut(&"\u{301}".repeat(5000), 3), "\u{301}".repeat(5000), "without a width");
    }
}
