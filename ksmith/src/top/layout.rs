//! The layout of the screen.

use ksmith_core::printable::TextPage;
use ratatui::layout::Rect;

use super::list::{GuestListRows, RowKey};
use crate::show::wrap::wrapped;

/// The least terminal on which the screen makes sense: columns and lines.
pub const LEAST: (u16, u16) = (60, 16);

/// Lines of the header on a low and on a high terminal.
const HEADER: (u16, u16) = (7, 13);

/// Least lines of a high terminal.
const HIGH: u16 = 40;

/// Returns the lines of the header on a terminal of so many lines.
pub fn header_height(lines: u16) -> u16 {
    if lines < HIGH { HEADER.0 } else { HEADER.1 }
}

/// Returns the area of the view, between the header and the keys.
pub fn body((columns, lines): (u16, u16)) -> Rect {
    let header = header_height(lines).min(lines);
    Rect { x: 0, y: header, width: columns, height: lines.saturating_sub(header + 1) }
}

/// Returns the first row of the list that is shown, so that the chosen one is visible.
pub fn first_row(rows: &GuestListRows, chosen: Option<&RowKey>, height: u16) -> usize {
    // The headings and the sums stay.
    let shown = usize::from(height.saturating_sub(2)).max(1);
    let place = rows.place(chosen);
    // Steps of half a screen, so that a row more or less does not move all others.
    let half = (shown / 2).max(1);
    match place < shown {
        true => 0,
        false => ((place - shown) / half + 1) * half,
    }
}

/// Returns the lines that a page has on a terminal of so many columns.
pub fn lines_of(page: &TextPage, columns: u16) -> usize {
    wrapped(page.pieces(), columns.into()).len()
}
