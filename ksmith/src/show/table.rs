//! Columns of text: the first, a name, is aligned to the left; the others, figures, to the right.
//!
//! A table that has a width fits into it: the name is cut to 12 cells, then columns are dropped, the least important
//! first. The importance of a column is in the table of figures, and for other columns in the view. Without a width, as
//! in a pipe, all columns are printed in full.

use ksmith_core::field::{FigureDescription, FigureUnit};
use ksmith_core::figures::FigureScalar;
use ksmith_core::printable::OneLine;
use ksmith_core::units::Bytes;

use super::width::{cut, width};
use super::wrap::wrap_text;

/// Importance of a column that is never dropped.
pub const ALWAYS: u8 = u8::MAX;

/// Least width of a name that is cut.
const LEAST_NAME: usize = 12;

/// Least width of a table whose note on dropped columns is wrapped; below it is cut.
const LEAST_WRAPPED: usize = 20;

/// Cells between two columns.
const GAP: usize = 2;

/// A column: its heading and its importance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    heading: String,
    importance: u8,
    /// True if it may be cut when it is the first column.
    may_be_cut: bool,
}

impl TableColumn {
    /// Returns a column with this heading.
    pub fn new(heading: &str, importance: u8) -> Self {
        Self { heading: OneLine(heading).to_string(), importance, may_be_cut: true }
    }

    /// Returns the same column, never to be cut: half a time makes no sense.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { may_be_cut: false, ..self }
    }
}

/// A table for the terminal.
#[derive(Debug, Clone, Default)]
pub struct TextTable {
    columns: Vec<TableColumn>,
    rows: Vec<Vec<String>>,
    /// Cells of the terminal that each column takes in full.
    widths: Vec<usize>,
}

/// The position of a column in a table that was fitted to a width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnSpan {
    /// Index of the column in the table.
    pub column: usize,
    /// Its start, in cells of the terminal.
    pub start: usize,
    /// Its width, in cells of the terminal.
    pub width: usize,
}

impl TextTable {
    /// Returns a table with these headings. The further to the left, the more important is a column.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        let columns = headings.iter().zip((1..ALWAYS).rev());
        Self::of_columns(columns.map(|(heading, importance)| TableColumn::new(heading, importance)).collect())
    }

    /// Returns a table with these columns.
    pub fn of_columns(columns: Vec<TableColumn>) -> Self {
        let widths = columns.iter().map(|column| width(&column.heading)).collect();
        Self { columns, rows: Vec::new(), widths }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.cells(cells.to_vec());
    }

    /// Adds a row to a table of [`TextTable::of_columns`].
    pub fn cells(&mut self, cells: Vec<String>) {
        // Before widths are counted: an escape is wider than its character.
        let cells: Vec<String> = cells.into_iter().map(|cell| OneLine(cell).to_string()).collect();
        for (widest, cell) in self.widths.iter_mut().zip(&cells) {
            *widest = (*widest).max(width(cell));
        }
        self.rows.push(cells);
    }

    /// Returns the headings and rows as lines of a page. One more line names the columns that were dropped.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let places = self.places(width);
        let mut lines = vec![self.head(&places)];
        lines.extend((0..self.rows.len()).map(|row| self.line(row, &places)));
        let is_shown = |column: usize| places.iter().any(|place| place.column == column);
        let hidden = self.columns.iter().enumerate().filter(|(column, _)| !is_shown(*column));
        let hidden: Vec<&str> = hidden.map(|(_, column)| column.heading.as_str()).collect();
        if let (Some(width), false) = (width, hidden.is_empty()) {
            let note = format!("(no room for {})", hidden.join(", "));
            lines.extend(if width < LEAST_WRAPPED { vec![cut(&note, width)] } else { wrap_text(&note, width) });
        }
        lines
    }

    /// Returns the positions of the columns in a table of this width, without those that were dropped. Looks at no row.
    pub fn places(&self, width: Option<usize>) -> Vec<ColumnSpan> {
        let natural = &self.widths;
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let first = natural.first().copied().unwrap_or(0);
        let least_first = match self.columns.first() {
            Some(TableColumn { may_be_cut: true, .. }) => first.min(LEAST_NAME),
            _ => first,
        };
        let least = |shown: &[usize]| -> usize {
            let width = |column: usize| natural.get(column).copied().unwrap_or(0);
            let cut = |column: usize| if column == 0 { least_first } else { width(column) };
            shown.iter().map(|column| cut(*column) + GAP).sum::<usize>().saturating_sub(GAP)
        };
        let room = width.unwrap_or(usize::MAX);
        while least(&shown) > room {
            let importance = |column: &usize| self.columns.get(*column).map_or(ALWAYS, |column| column.importance);
            let weakest = shown.iter().skip(1).copied().filter(|column| importance(column) < ALWAYS);
            // Of equals the one on the right.
            let Some(weakest) = weakest.rev().min_by_key(importance) else { break };
            shown.retain(|column| *column != weakest);
        }
        let others = least(&shown).saturating_sub(least_first);
        let mut start = 0;
        let place = |column: usize| {
            let natural = natural.get(column).copied().unwrap_or(0);
            let width = if column == 0 { natural.min(room.saturating_sub(others)).max(1) } else { natural };
            let place = ColumnSpan { column, start, width };
            start += width + GAP;
            place
        };
        shown.into_iter().map(place).collect()
    }

    /// Returns the line of headings.
    pub fn head(&self, places: &[ColumnSpan]) -> String {
        let headings = places.iter().map(|place| {
            let heading = self.columns.get(place.column).map_or("", |column| column.heading.as_str());
            (*place, heading)
        });
        aligned(headings)
    }

    /// Returns the line of a row, the first row being 0.
    pub fn line(&self, row: usize, places: &[ColumnSpan]) -> String {
        let Some(row) = self.rows.get(row) else { return String::new() };
        aligned(places.iter().filter_map(|place| Some((*place, row.get(place.column)?.as_str()))))
    }
}

fn aligned<'a>(cells: impl Iterator<Item = (ColumnSpan, &'a str)>) -> String {
    let mut line = String::new();
    for (place, cell) in cells {
        let cell = cut(cell, place.width);
        let pad = place.width.saturating_sub(width(&cell));
        if place.column > 0 {
            line.extend(std::iter::repeat_n(' ', GAP + pad));
        }
        line.push_str(&cell);
        if place.column == 0 {
            line.extend(std::iter::repeat_n(' ', pad));
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Formats a figure in its unit, for a cell of a table.
pub fn cell(field: &FigureDescription, value: &FigureScalar) -> String {
    match (value, field.unit) {
        (FigureScalar::Unknown, _) => "-".to_owned(),
        (FigureScalar::Unsigned(bytes), FigureUnit::Bytes) => Bytes::from(*bytes).to_string(),
        (FigureScalar::Signed(bytes), FigureUnit::Bytes) => Bytes::from(*bytes).to_string(),
        (FigureScalar::Unsigned(number), _) => number.to_string(),
        (FigureScalar::Signed(number), _) => number.to_string(),
        (FigureScalar::Real(number), FigureUnit::Count) => format!("{number:.2}"),
        (FigureScalar::Real(number), _) => format!("{number:.1}"),
        (FigureScalar::Flag(flag), _) => if *flag { "yes" } else { "no" }.to_owned(),
        (FigureScalar::Text(text), _) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> TextTable {
        let columns = [("guest", ALWAYS), ("kind", 60), ("zero", 10), ("saved", 90)];
        let mut table =
            TextTable::of_columns(columns.map(|(heading, rank)| TableColumn::new(heading, rank)).to_vec());
        for name in ["web", "a-name-of-some-length", "数据库服务器一号"] {
            table.row([name, "qemu", "4 B", "1.00 GiB"].map(str::to_owned));
        }
        table
    }

    #[test]
    fn figures_stand_on_the_right() {
        let mut table = TextTable::new(["name", "saved"]);
        table.row(["a".to_owned(), "1.00 GiB".to_owned()]);
        table.row(["long".to_owned(), "4 B".to_owned()]);
        assert_eq!(table.lines(None), ["name     saved", "a     1.00 GiB", "long       4 B"]);
    }

    #[test]
    fn wide_characters_take_two_cells() {
        let lines = table().lines(None);
        assert_eq!(lines[0], "guest                  kind  zero     saved");
        assert_eq!(lines[3], "数据库服务器一号       qemu   4 B  1.00 GiB");
        assert!(lines.iter().all(|line| width(line) == 43), "{lines:?}");
    }

    #[test]
    fn columns_fall_away_by_importance_and_then_names_are_cut() {
        let table = table();
        assert_eq!(table.lines(Some(43)), table.lines(None));
        let lines = table.lines(Some(34));
        assert_eq!(
            lines[2], "a-name-of-s…  qemu   4 B  1.00 GiB",
            "names are cut to 12 before a column falls away"
        );
        let lines = table.lines(Some(33));
        assert_eq!(lines[2], "a-name-of-some-l…  qemu  1.00 GiB");
        assert_eq!(lines[3], "数据库服务器一号   qemu  1.00 GiB");
        assert_eq!(lines[4], "(no room for zero)");
        let lines = table.lines(Some(24));
        assert_eq!(lines[..2], ["guest              saved", "web             1.00 GiB"]);
        assert_eq!(lines[3], "数据库服务器…   1.00 GiB");
        assert_eq!(table.lines(Some(22))[3], "数据库服务…   1.00 GiB", "half of a wide character does not fit");
        assert_eq!(table.lines(Some(5))[1], "web");
        assert_eq!(table.lines(Some(5))[4], "(no …");
    }

    #[test]
    fn a_time_is_not_cut_as_long_as_another_column_can_fall_away() {
        let columns = [TableColumn::new("time", ALWAYS).whole(), TableColumn::new("saved", 2)];
        let mut table = TextTable::of_columns(columns.to_vec());
        table.row(["2026-11-23 21:13:49", "1.00 GiB"].map(str::to_owned));
        assert_eq!(table.lines(Some(25))[1], "2026-11-23 21:13:49");
        assert_eq!(table.lines(Some(10))[1], "2026-11-2…");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(
            rows in prop::collection::vec(prop::collection::vec(any::<String>(), 4), 0..8),
            room in 1_usize..100,
        ) {
            let columns = ["a", "漢字", "c", "dd"].into_iter().zip([ALWAYS, 3, 2, 1]);
            let mut table = TextTable::of_columns(columns.map(|(heading, rank)| TableColumn::new(heading, rank)).collect());
            rows.into_iter().for_each(|row| table.cells(row));
            for line in table.lines(Some(room)) {
                prop_assert!(width(&line) <= room, "{:?} in {}", line, room);
            }
        }
    }
}
