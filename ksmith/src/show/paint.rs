//! Pages as a terminal shows them: in colours, and cut to its width.

use ksmith_core::printable::{TextPage, TextTone};

use super::width::{cut, width};

/// Returns the lines of a page, in colours if `colours` is true, each cut to `room` cells if that is known.
pub fn lines(page: &TextPage, colours: bool, room: Option<usize>) -> Vec<String> {
    let line = |pieces: Vec<(Option<TextTone>, &str)>| {
        let (mut line, mut left) = (String::new(), room.unwrap_or(usize::MAX));
        let whole: usize = pieces.iter().map(|(_, text)| width(text)).sum();
        for (place, (tone, text)) in pieces.iter().enumerate() {
            // A piece that just fits hides that more would follow.
            let is_last = place + 1 == pieces.len();
            let fits = width(text) < left || is_last && width(text) <= left || whole <= room.unwrap_or(usize::MAX);
            let text = if fits { (*text).to_owned() } else { cut(&format!("{text}  "), left) };
            left = left.saturating_sub(width(&text));
            match tone.filter(|_| colours) {
                Some(tone) => line.push_str(&format!("\u{1b}[{}m{text}\u{1b}[0m", code(tone))),
                None => line.push_str(&text),
            }
            if !fits {
                break;
            }
        }
        line
    };
    page.pieces().map(line).collect()
}

/// Returns the terminal's code of a tone.
fn code(tone: TextTone) -> &'static str {
    match tone {
        TextTone::Problem => "1;31",
        TextTone::Warning => "33",
        TextTone::Good => "32",
        TextTone::Faint => "2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> TextPage {
        let mut page = TextPage::new();
        page.partly_toned("a\u{1b}[2J ", TextTone::Problem, "bad", " end");
        page.toned(TextTone::Good, "well");
        page
    }

    #[test]
    fn colours_are_the_only_escapes() {
        let painted = lines(&page(), true, None);
        assert_eq!(painted, ["a\\u{1b}[2J \u{1b}[1;31mbad\u{1b}[0m end", "\u{1b}[32mwell\u{1b}[0m"]);
        assert_eq!(lines(&page(), false, None).join("\n") + "\n", page().text());
    }

    #[test]
    fn lines_are_cut_across_colours() {
        let plain = |room| lines(&page(), false, Some(room));
        assert_eq!(plain(18)[0], "a\\u{1b}[2J bad end");
        assert_eq!(plain(17)[0], "a\\u{1b}[2J bad e…");
        assert_eq!(plain(14)[0], "a\\u{1b}[2J ba…");
        assert_eq!(plain(13)[0], "a\\u{1b}[2J b…");
        assert_eq!(plain(11)[0], "a\\u{1b}[2J…");
        assert_eq!(plain(4), ["a\\u…", "well"]);
        assert!(lines(&page(), true, Some(13))[0].ends_with("\u{1b}[0m"));
    }
}
