//! Columns of text: the first aligned to the left, the rest, figures, to the right.

use ksmith_core::field::{Field, Unit};
use ksmith_core::figures::Value;
use ksmith_core::printable::OneLine;
use ksmith_core::units::Bytes;

/// A table for the terminal.
#[derive(Debug, Clone, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        Self::of_columns(headings.map(str::to_owned).to_vec())
    }

    /// A table with columns that are known only when it is made.
    pub fn of_columns(headings: Vec<String>) -> Self {
        let mut table = Self::default();
        table.cells(headings);
        table
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.cells(cells.to_vec());
    }

    /// Adds a row to a table of [`Table::of_columns`].
    pub fn cells(&mut self, cells: Vec<String>) {
        // Before widths are counted: an escape is wider than its character.
        self.rows.push(cells.into_iter().map(|cell| OneLine(cell).to_string()).collect());
    }
}

impl Table {
    /// The rows as lines of a page.
    pub fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => line.push_str(&format!("{cell:<width$}")),
                    _ => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            line.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

/// The cell of a figure, in its unit.
pub fn cell(field: &Field, value: &Value) -> String {
    match (value, field.unit) {
        (Value::Unknown, _) => "-".to_owned(),
        (Value::Unsigned(bytes), Unit::Bytes) => Bytes::from(*bytes).to_string(),
        (Value::Signed(bytes), Unit::Bytes) => Bytes::from(*bytes).to_string(),
        (Value::Unsigned(number), _) => number.to_string(),
        (Value::Signed(number), _) => number.to_string(),
        (Value::Real(number), _) => format!("{number:.1}"),
        (Value::Flag(flag), _) => if *flag { "yes" } else { "no" }.to_owned(),
        (Value::Text(text), _) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_on_the_right() {
        let mut table = Table::new(["name", "saved"]);
        table.row(["a".to_owned(), "1.00 GiB".to_owned()]);
        table.row(["long".to_owned(), "4 B".to_owned()]);
        assert_eq!(table.lines(), ["name     saved", "a     1.00 GiB", "long       4 B"]);
    }
}
