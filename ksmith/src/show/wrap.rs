//! Wraps text at words.

use ksmith_core::printable::TextTone;

use super::width::width;

/// A line of a screen, divided where its tone changes.
pub type Pieces = Vec<(Option<TextTone>, String)>;

/// Indent of a continuation line, unless a column sets it.
const INDENT: usize = 2;

/// Wraps each line at words to `room` cells. A line continues below its last column, if that is in the left half.
pub fn wrapped<'a>(lines: impl Iterator<Item = Vec<(Option<TextTone>, &'a str)>>, room: usize) -> Vec<Pieces> {
    lines.flat_map(|line| wrap(line, room.max(INDENT + 2))).collect()
}

/// Wraps one line of text, as [`wrapped`] does. No line ends with a space.
pub fn wrap_text(text: &str, room: usize) -> Vec<String> {
    let lines = wrapped([vec![(None, text)]].into_iter(), room).into_iter();
    let lines = lines.map(|pieces| pieces.into_iter().map(|(_, text)| text).collect::<String>());
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// Returns the start of the last column of a line: behind two spaces or more.
fn indent(line: &[(Option<TextTone>, &str)], room: usize) -> usize {
    let text: String = line.iter().map(|(_, text)| *text).collect();
    let ends_gap = |at: &usize| text[..*at].ends_with("  ") && text[*at..].starts_with(|next| next != ' ');
    let begins = text.char_indices().map(|(at, _)| at).filter(ends_gap).map(|at| width(&text[..at]));
    begins.rev().find(|begin| *begin <= room / 2).unwrap_or(INDENT)
}

fn wrap(line: Vec<(Option<TextTone>, &str)>, room: usize) -> Vec<Pieces> {
    let indent = indent(&line, room);
    let (mut lines, mut used) = (vec![Pieces::new()], 0);
    for (tone, text) in line {
        for word in text.split_inclusive(' ') {
            for part in parts(word, room - indent) {
                // A space at the end of a line may stand beyond it.
                if used + width(part.trim_end()) > room {
                    lines.push(vec![(None, " ".repeat(indent))]);
                    used = indent;
                }
                used += width(part);
                if let Some(pieces) = lines.last_mut() {
                    match pieces.last_mut() {
                        Some((last, text)) if *last == tone => text.push_str(part),
                        _ => pieces.push((tone, part.to_owned())),
                    }
                }
            }
        }
    }
    lines
}

/// Splits a word that is longer than a line.
fn parts(word: &str, room: usize) -> Vec<&str> {
    if width(word.trim_end()) <= room {
        return vec![word];
    }
    let (mut parts, mut start, mut used) = (Vec::new(), 0, 0);
    for (at, character) in word.char_indices() {
        let wide = width(character.encode_utf8(&mut [0; 4]));
        if used + wide > room {
            parts.push(&word[start..at]);
            (start, used) = (at, 0);
        }
        used += wide;
    }
    parts.push(&word[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(text: &str, room: usize) -> Vec<String> {
        let lines = wrapped([vec![(None, text)]].into_iter(), room).into_iter();
        lines.map(|pieces| pieces.into_iter().map(|(_, text)| text).collect()).collect()
    }

    #[test]
    fn lines_break_at_words_and_words_where_they_must() {
        assert_eq!(plain("one two three", 9), ["one two ", "  three"]);
        assert_eq!(plain("漢字漢字漢字", 8), ["漢字漢", "  字漢字"]);
        assert_eq!(plain("", 9), [""]);
        assert_eq!(plain("key  one two three", 16), ["key  one two ", "     three"], "below the last column");
        assert_eq!(plain("   do: one two", 12), ["   do: one ", "   two"]);
        assert_eq!(plain("a long key  one", 12), ["a long key  ", "  one"], "which is too far to the right");
        assert_eq!(wrap_text("key  one two three", 16), ["key  one two", "     three"]);
        let toned = wrapped([vec![(Some(TextTone::Problem), "bad"), (None, " and well")]].into_iter(), 80);
        assert_eq!(toned, [[(Some(TextTone::Problem), "bad".to_owned()), (None, " and well".to_owned())]]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_long_and_no_text_is_lost(text in "[a-z 漢字]{0,60}", room in 4_usize..30) {
            let lines = plain(&text, room);
            prop_assert!(lines.iter().all(|line| width(line.trim_end()) <= room), "{:?}", lines);
            let squeezed = |text: &str| text.replace(' ', "");
            prop_assert_eq!(squeezed(&lines.concat()), squeezed(&text));
        }
    }
}
