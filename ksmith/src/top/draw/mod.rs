//! Draws the state: a header, the view, and a line of keys.

mod chart;
mod figure_line;
mod header;
mod memory_bar;

use ksmith_core::printable::{OneLine, TextTone};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use self::chart::{KSMD, SAVED};
use super::app::{TopApp, TopView};
use super::layout::{LEAST, body, first_row, header_height};
use crate::show::wrap::{Pieces, wrapped};
use crate::show::{cut, width};

impl TopApp {
    /// Draws the whole screen.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < LEAST.0 || area.height < LEAST.1 {
            let (columns, lines) = LEAST;
            let needs =
                format!("ksmith top needs {columns} x {lines}, this terminal has {} x {}", area.width, area.height);
            let lines = wrapped([vec![(None, needs.as_str())]].into_iter(), area.width.into());
            for (line, y) in lines.into_iter().zip(0..area.height) {
                self.line(frame, y, self.toned(line));
            }
            return;
        }
        self.draw_header(frame, Rect { height: header_height(area.height), ..area });
        let body = body((area.width, area.height));
        match self.view {
            TopView::Guests => self.draw_list(frame, body),
            TopView::Charts => self.draw_large_charts(frame, body),
            _ => self.draw_page(frame, body),
        }
        self.draw_footer(frame, area.height - 1);
    }

    /// Draws one line over the whole width.
    fn line<'a>(&self, frame: &mut Frame<'_>, y: u16, line: impl Into<Line<'a>>) {
        let area = Rect { y, height: 1, ..frame.area() }.intersection(frame.area());
        frame.render_widget(line.into(), area);
    }

    fn style(&self, tone: TextTone) -> Style {
        let (colour, plain) = match tone {
            TextTone::Problem => (Color::Red, Modifier::BOLD),
            TextTone::Warning => (Color::Yellow, Modifier::BOLD),
            TextTone::Good => (Color::Green, Modifier::empty()),
            TextTone::Faint => (Color::Reset, Modifier::DIM),
        };
        let style = Style::new().add_modifier(plain);
        if self.has_colours { style.fg(colour) } else { style }
    }

    fn toned(&self, line: Pieces) -> Line<'static> {
        let spans = line.into_iter().map(|(tone, text)| match tone {
            Some(tone) => Span::styled(text, self.style(tone)),
            None => Span::raw(text),
        });
        Line::from(spans.collect::<Vec<_>>())
    }

    fn draw_list(&self, frame: &mut Frame<'_>, body: Rect) {
        let (Some(sight), Some(rows)) = (&self.sight, self.rows()) else {
            return self.line(frame, body.y, "looking at the host …");
        };
        let places = rows.table.places(Some(body.width.into()));
        let head = format!("{:<1$}", rows.table.head(&places), usize::from(body.width));
        self.line(frame, body.y, self.head(&head, &places, rows.sorted));
        if rows.keys.is_empty() {
            let all = sight.guests.guests.len();
            let why = match all {
                0 => "no guest has mergeable memory".to_owned(),
                _ => format!("none of the {all} guests fits the filter"),
            };
            return self.line(frame, body.y + 1, why);
        }
        let chosen = rows.place(self.list.chosen.as_ref());
        let first = first_row(&rows, self.list.chosen.as_ref(), body.height);
        let bottom = body.bottom().saturating_sub(1);
        for (row, y) in (first..rows.keys.len()).zip(body.y + 1..bottom) {
            let text = rows.table.line(row, &places);
            let pad = usize::from(body.width).saturating_sub(width(&text));
            let text = format!("{text}{}", " ".repeat(pad));
            let style = if row == chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            self.line(frame, y, Line::styled(text, style));
        }
        let sums = rows.table.line(rows.total(), &places);
        self.line(frame, bottom, Line::styled(sums, Style::new().add_modifier(Modifier::BOLD)));
    }

    /// Draws each chart over the whole width.
    fn draw_large_charts(&self, frame: &mut Frame<'_>, body: Rect) {
        let half = body.height / 2;
        self.draw_chart(frame, Rect { height: half, ..body }, SAVED);
        self.draw_chart(frame, Rect { y: body.y + half, height: body.height - half, ..body }, KSMD);
    }

    /// Returns the headings, with that of the order highlighted.
    fn head(&self, head: &str, places: &[crate::show::ColumnSpan], sorted: usize) -> Line<'static> {
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        let Some(place) = places.iter().find(|place| place.column == sorted) else {
            return Line::styled(head.to_owned(), style);
        };
        // Headings are ksmith's own words, of which each character takes one cell.
        let part = |from: usize, to: usize| head.chars().skip(from).take(to - from).collect::<String>();
        let end = place.start + place.width;
        Line::from(vec![
            Span::styled(part(0, place.start), style),
            Span::styled(part(place.start, end), style.add_modifier(Modifier::REVERSED)),
            Span::styled(part(end, usize::MAX), style),
        ])
    }

    fn draw_page(&self, frame: &mut Frame<'_>, body: Rect) {
        let page = self.page();
        let lines = wrapped(page.pieces(), body.width.into());
        let first = self.scroll.min(lines.len().saturating_sub(body.height.into()));
        let lines_in_all = lines.len();
        for (line, y) in lines.into_iter().skip(first).zip(body.y..body.bottom()) {
            self.line(frame, y, self.toned(line));
        }
        if lines_in_all > usize::from(body.height) && body.y > 0 {
            let last = (first + usize::from(body.height)).min(lines_in_all);
            let place = format!("lines {} to {last} of {lines_in_all} ", first + 1);
            let start = body.width.saturating_sub(u16::try_from(place.len()).unwrap_or(u16::MAX));
            let area = Rect { x: start, y: body.y - 1, width: body.width - start, height: 1 };
            frame.render_widget(Span::raw(place), area);
        }
    }

    fn draw_footer(&self, frame: &mut Frame<'_>, y: u16) {
        let columns = usize::from(frame.area().width);
        if let Some(prompt) = &self.prompt {
            let text = OneLine(&prompt.text).to_string();
            let line = match &prompt.error {
                Some(error) => {
                    Line::styled(cut(&OneLine(error).to_string(), columns), self.style(TextTone::Problem))
                }
                None => {
                    // The end is what is being typed.
                    let shown = end_of(&text, columns.saturating_sub(10));
                    Line::from(vec![
                        Span::styled("filter: ", Style::new().add_modifier(Modifier::BOLD)),
                        Span::raw(shown),
                        Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
                    ])
                }
            };
            return self.line(frame, y, line);
        }
        let keys = match self.view {
            TopView::Guests if self.replay.is_none() => {
                "q end  ? keys  Enter open  w why  / filter  g group  ←→ order  r reverse"
            }
            TopView::Charts => "q end  ? keys  Esc back  ▼ decisions, which 2 lists  Space hold",
            _ if self.replay.is_some() => {
                "q end  ? keys  t forth  T back  ] [ ten moments  Enter open  / filter  g group"
            }
            TopView::Guest(_) => "q end  ? keys  Esc back  w why it does not merge  ↑↓ scroll  Space hold",
            _ => "q end  ? keys  Esc back  1 guests  2 decisions  3 balance  ↑↓ scroll  Space hold",
        };
        let line = Line::styled(cut(keys, columns), Style::new().add_modifier(Modifier::DIM));
        self.line(frame, y, line);
    }
}

/// Returns the end of a text in so many cells.
fn end_of(text: &str, room: usize) -> String {
    let start = text.char_indices().map(|(at, _)| at).find(|at| width(&text[*at..]) <= room).unwrap_or(text.len());
    text[start..].to_owned()
}
