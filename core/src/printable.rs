//! Escaping of foreign text for terminals and logs.
//!
//! Guests, monitors, programs and cgroups choose names and error texts. A terminal obeys control characters in them,
//! and a line break begins a line that looks like ours. So every text leaves ksmith through this module: as one line
//! ([`OneLine`]), as a [`TextPage`] of such lines, or as JSON ([`json`]).

use std::fmt::{self, Display, Write};
use std::ops::Range;

/// Any text as one line: characters that a terminal obeys or hides are shown as escapes, line breaks too.
#[derive(Debug, Clone, Copy)]
pub struct OneLine<T>(pub T);

impl<T: Display> Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(EscapingWriter(f), "{}", self.0)
    }
}

/// The tone of a text, which terminals show as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextTone {
    /// A fault that keeps KSM from working, or endangers the host.
    Problem,
    /// A fault, or something to look at.
    Warning,
    /// All is well.
    Good,
    /// Less important than the text around it.
    Faint,
}

/// Text of several lines, for people. Only [`TextPage`] itself breaks lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextPage {
    text: String,
    tones: Vec<(Range<usize>, TextTone)>,
}

impl TextPage {
    /// Creates a page without lines.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line.
    pub fn line(&mut self, text: impl Display) {
        // A String takes all that is written to it.
        let _ = writeln!(self.text, "{}", OneLine(text));
    }

    /// Adds lines to the page.
    pub fn lines<T: Display>(&mut self, lines: impl IntoIterator<Item = T>) {
        lines.into_iter().for_each(|line| self.line(line));
    }

    /// Adds a line in a tone.
    pub fn toned(&mut self, tone: TextTone, text: impl Display) {
        self.partly_toned("", tone, text, "");
    }

    /// Adds a line of which the middle part has a tone.
    pub fn partly_toned(&mut self, before: impl Display, tone: TextTone, text: impl Display, after: impl Display) {
        let _ = write!(self.text, "{}", OneLine(before));
        let start = self.text.len();
        let _ = write!(self.text, "{}", OneLine(text));
        self.tones.push((start..self.text.len(), tone));
        let _ = writeln!(self.text, "{}", OneLine(after));
    }

    /// Adds the lines of a text. All but the first are indented, so that none looks like a text of its own.
    pub fn indented(&mut self, text: impl Display) {
        let text = text.to_string();
        for (number, line) in text.lines().enumerate() {
            self.line(format_args!("{}{line}", if number == 0 { "" } else { "  " }));
        }
    }

    /// Adds all lines of another page.
    pub fn append(&mut self, other: &Self) {
        let start = self.text.len();
        self.text.push_str(&other.text);
        self.tones.extend(other.tones.iter().map(|(place, tone)| (start + place.start..start + place.end, *tone)));
    }
}

impl Display for TextPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TextPage {
    /// Returns the text, each line with its end.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the lines without their ends, each divided where its tone changes. Each tone is looked at once.
    pub fn pieces(&self) -> impl Iterator<Item = Vec<(Option<TextTone>, &str)>> {
        let (mut start, mut tones) = (0, self.tones.iter().peekable());
        self.text.split_terminator('\n').map(move |line| {
            let (first, end) = (start, start + line.len());
            start = end + 1;
            let mut pieces = Vec::new();
            let mut at = first;
            // Tones stand in the order of the text.
            while let Some((place, tone)) = tones.next_if(|(place, _)| place.end <= end) {
                pieces.push((None, at..place.start));
                pieces.push((Some(*tone), place.clone()));
                at = place.end;
            }
            pieces.push((None, at..end));
            let pieces = pieces.into_iter().filter(|(_, place)| !place.is_empty());
            pieces.filter_map(|(tone, place)| Some((tone, self.text.get(place)?))).collect()
        })
    }
}

/// Escapes JSON: characters that a terminal obeys or hides become `\u` escapes. A parser reads the same values.
pub fn json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        // Line breaks here stand between values: within one the serializer has escaped them.
        if is_obeyed(character) && character != '\n' {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // A String takes all that is written to it.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Returns the text without the characters that [`is_obeyed`] tells, at its whole length.
pub fn strip_obeyed(text: &str) -> String {
    text.chars().filter(|&character| !is_obeyed(character)).collect()
}

/// Returns true if a terminal may obey or hide the character: control characters (with those of C1, such as CSI), line
/// and paragraph separators, marks of the writing direction, and characters without width.
pub fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A writer that passes text on with escapes.
struct EscapingWriter<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for EscapingWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, found)) = rest.char_indices().find(|(_, character)| is_obeyed(*character)) {
            self.0.write_str(rest.get(..at).unwrap_or_default())?;
            write!(self.0, "{}", found.escape_default())?;
            rest = rest.get(at + found.len_utf8()..).unwrap_or_default();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sets a terminal's title, clears it, goes up a line, in C0 and in C1; turns the direction of writing; hides.
    const HOSTILE: &str = "a\x1b]0;root\x07\x1b[2J\u{9b}1A\r\n\u{202e}txt\u{2066}\u{200b}\u{e0041}\x7f";

    #[test]
    fn stripped_text_keeps_its_length_but_for_what_a_terminal_obeys() {
        assert_eq!(strip_obeyed("/a\x1b[2J/\u{202e}b"), "/a[2J/b");
        assert_eq!(strip_obeyed(&"x".repeat(200)).len(), 200);
    }

    #[test]
    fn no_text_moves_the_cursor_or_begins_a_line() {
        assert_eq!(
            OneLine(HOSTILE).to_string(),
            "a\\u{1b}]0;root\\u{7}\\u{1b}[2J\\u{9b}1A\\r\\n\\u{202e}txt\\u{2066}\\u{200b}\\u{e0041}\\u{7f}"
        );
        assert_eq!(OneLine("größe 漢字 \\x2d").to_string(), "größe 漢字 \\x2d", "other text stays");
    }

    #[test]
    fn lines_of_a_page_are_its_own() {
        let mut page = TextPage::new();
        page.line("web\nall is well");
        page.indented("broken:\n  |\nksmith: restored");
        assert_eq!(page.text(), "web\\nall is well\nbroken:\n    |\n  ksmith: restored\n");
    }

    #[test]
    fn tones_divide_a_line_and_change_no_text() {
        let mut page = TextPage::new();
        page.line("first");
        page.partly_toned("exposure 5\n", TextTone::Problem, "WARNING", " more");
        let mut whole = TextPage::new();
        whole.toned(TextTone::Good, "well");
        whole.append(&page);
        assert_eq!(whole.text(), "well\nfirst\nexposure 5\\nWARNING more\n");
        let pieces: Vec<_> = whole.pieces().collect();
        assert_eq!(pieces[0], [(Some(TextTone::Good), "well")]);
        assert_eq!(pieces[1], [(None, "first")]);
        assert_eq!(pieces[2], [(None, "exposure 5\\n"), (Some(TextTone::Problem), "WARNING"), (None, " more")]);
    }

    proptest! {
        #[test]
        fn whatever_is_shown_has_nothing_to_obey(text in any::<String>()) {
            prop_assert!(!OneLine(&text).to_string().chars().any(is_obeyed));
        }

        #[test]
        fn json_stays_exact(text in any::<String>()) {
            let text = text + HOSTILE;
            let escaped = json(&serde_json::to_string_pretty(&[&text]).unwrap());
            prop_assert!(escaped.chars().all(|character| character == '\n' || !is_obeyed(character)));
            prop_assert_eq!(serde_json::from_str::<[String; 1]>(&escaped).unwrap(), [text]);
        }
    }
}
