//! The list of guests: its order, its filter, its grouping, and the chosen row.

use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::rc::Rc;

use ksmith_core::figures::{
    self, FigureScalar, GUEST, GuestGroup, GuestGroupProperty, ModelFigure, groups, sorted, summed,
};
use ksmith_core::guest::{Guest, GuestId};
use ksmith_core::model::GuestsReport;

use super::sieve::GuestFilter;
use crate::show::{ALWAYS, TableColumn, TextTable, cell};

/// The identity of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowKey {
    /// One guest by itself.
    Guest(GuestId),
    /// All guests with this label.
    Group(String),
}

/// The order, filter and grouping of the list.
#[derive(Debug, Clone)]
pub struct GuestListView {
    /// Index in [`orders`] of the figure that rows are ordered by.
    sort: usize,
    /// True if the last row comes first.
    pub is_reversed: bool,
    /// Index in [`figures::labels`] of the label of the groups; `None` if each guest is a row.
    by: Option<usize>,
    /// The filter, if there is one.
    pub sieve: Option<GuestFilter>,
    /// The chosen row, which is kept when the order changes.
    pub chosen: Option<RowKey>,
}

/// The rows of the list as they are shown.
#[derive(Debug, Clone)]
pub struct GuestListRows {
    /// The rows as text. The last one, which has no identity, sums up the guests.
    pub table: TextTable,
    /// The identity of each row.
    pub keys: Vec<RowKey>,
    /// Index of the column that rows are ordered by.
    pub sorted: usize,
}

/// All that rows are made from: a report, by its number, and the order, filter and grouping of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RowsOrigin {
    report: u64,
    sort: usize,
    is_reversed: bool,
    by: Option<usize>,
    filter: Option<String>,
}

/// The rows that were made last. Frames and keys between two reports share them: they are expensive with many guests.
#[derive(Debug, Default)]
pub struct GuestRowCache(RefCell<Option<(RowsOrigin, Rc<GuestListRows>)>>);

impl GuestRowCache {
    /// Returns the rows of the report with this number, made anew only if the report or the view has changed.
    pub fn rows(&self, number: u64, report: &GuestsReport, view: &GuestListView) -> Rc<GuestListRows> {
        let origin = RowsOrigin {
            report: number,
            sort: view.sort,
            is_reversed: view.is_reversed,
            by: view.by,
            filter: view.sieve.as_ref().map(|sieve| sieve.text.clone()),
        };
        let kept = self.0.take().filter(|(of, _)| *of == origin);
        let (origin, rows) = kept.unwrap_or_else(|| (origin, Rc::new(view.rows(report))));
        self.0.replace(Some((origin, Rc::clone(&rows))));
        rows
    }
}

/// Columns before those of figures.
const HEAD: usize = 3;

/// The name of the row of sums, before the number of guests.
const TOTAL: &str = "total of";

/// The heading of a guest's part of what the host saves.
const SHARE: &str = "share";

/// The heading of the number of guests in a group.
const GUESTS: &str = "guests";

/// Returns the figures that the list can be ordered by: name, kind, and each that is a column.
fn orders() -> impl Iterator<Item = &'static ModelFigure<Guest>> {
    let is_head = |figure: &&ModelFigure<Guest>| matches!(figure.field.name, "name" | "kind");
    GUEST.iter().filter(is_head).chain(columns())
}

fn columns() -> impl Iterator<Item = &'static ModelFigure<Guest>> {
    GUEST.iter().filter(|figure| figure.heading.is_some())
}

impl Default for GuestListView {
    fn default() -> Self {
        let sort = orders().position(|figure| figure.field.name == "saved_bytes").unwrap_or(0);
        Self { sort, is_reversed: false, by: None, sieve: None, chosen: None }
    }
}

impl GuestListView {
    /// Returns the figure that rows are ordered by.
    pub fn figure(&self) -> &'static ModelFigure<Guest> {
        orders().nth(self.sort).unwrap_or(&GUEST[0])
    }

    /// Returns the name of the order: a heading of the table, or the name of the figure without one.
    pub fn order(&self) -> &'static str {
        let figure = self.figure();
        if self.is_by_guests() { GUESTS } else { figure.heading.unwrap_or(figure.field.name) }
    }

    /// Returns true if groups are ordered by their numbers of guests, which stand in the column of the kind.
    fn is_by_guests(&self) -> bool {
        self.label().is_some() && self.figure().field.name == "kind"
    }

    /// Returns the label of the groups, if guests are grouped.
    pub fn label(&self) -> Option<&'static ModelFigure<Guest>> {
        self.by.and_then(|place| figures::labels().nth(place))
    }

    /// Orders by a figure, by its key or its heading.
    ///
    /// # Errors
    /// The list can't be ordered by it; the message names the figures by which it can be.
    pub fn order_by_name(&mut self, name: &str) -> Result<(), String> {
        let is_called = |figure: &ModelFigure<Guest>| figure.field.name == name || figure.heading == Some(name);
        let Some(place) = orders().position(is_called) else {
            let known: Vec<&str> = orders().map(|figure| figure.heading.unwrap_or(figure.field.name)).collect();
            return Err(format!("the list can't be ordered by {name:?}; name one of {}", known.join(", ")));
        };
        self.sort = place;
        Ok(())
    }

    /// Moves the order by so many columns.
    pub fn move_order(&mut self, by: isize) {
        let all = orders().count() as isize;
        self.sort = (self.sort as isize + by).rem_euclid(all).unsigned_abs();
    }

    /// Orders by a column of the table, or reverses the order if that is its column already.
    pub fn order_by_column(&mut self, column: usize) {
        let place = match column {
            0 | 1 => column,
            // The PID.
            2 => return,
            _ => column - HEAD + 2,
        };
        match place {
            _ if place >= orders().count() => {}
            _ if place == self.sort => self.is_reversed = !self.is_reversed,
            _ => self.sort = place,
        }
    }

    /// Groups by the next label; after the last one, each guest is a row again.
    pub fn next_label(&mut self) {
        let next = self.by.map_or(0, |place| place + 1);
        self.by = (next < figures::labels().count()).then_some(next);
        self.chosen = None;
    }

    /// Shows the guests of one group only, each by itself.
    pub fn open_group(&mut self, name: &str) {
        if let Some(label) = self.label() {
            let value = match name {
                figures::NONE => name.to_owned(),
                _ => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
            };
            self.sieve = GuestFilter::parse(&format!("{}={value}", label.field.name)).ok();
            self.by = None;
            self.chosen = None;
        }
    }

    /// Returns the report with only the guests that fit the filter.
    fn filtered<'a>(&self, report: &'a GuestsReport) -> Cow<'a, GuestsReport> {
        let Some(sieve) = &self.sieve else { return Cow::Borrowed(report) };
        let guests = report.guests.iter().filter(|guest| sieve.fits(guest)).cloned().collect();
        // Rows need nothing else of it.
        Cow::Owned(GuestsReport { guests, errors: Vec::new(), sharing: None, ..*report })
    }

    /// Returns the rows in their order.
    fn rows(&self, report: &GuestsReport) -> GuestListRows {
        let report = self.filtered(report);
        let head = match self.label() {
            None => [("guest", ALWAYS), ("kind", 60), ("pid", 75)],
            Some(label) => [(label.field.name, ALWAYS), (GUESTS, 75), ("", 0)],
        };
        let head = head.map(|(heading, importance)| TableColumn::new(heading, importance));
        let of_figures = columns().filter_map(|figure| {
            let importance = if std::ptr::eq(figure, self.figure()) { ALWAYS } else { figure.importance };
            Some(TableColumn::new(figure.heading?, importance))
        });
        let share = TableColumn::new(SHARE, 65);
        let mut table = TextTable::of_columns(head.into_iter().chain(of_figures).chain([share]).collect());
        let mut rows: Vec<(RowKey, Vec<String>)> = match self.label() {
            None => {
                let row = |guest| guest_row(guest, report.saved_bytes);
                sorted(&report, self.figure()).into_iter().map(row).collect()
            }
            Some(label) => {
                let mut groups = groups(&report, &GuestGroupProperty::Figure(label), self.figure());
                if self.is_by_guests() {
                    // Stable: groups of equal size stay in the order of their names.
                    groups.sort_by_key(|group| Reverse(group.guests));
                }
                groups.into_iter().map(|group| group_row(group, report.saved_bytes)).collect()
            }
        };
        if self.is_reversed {
            rows.reverse();
        }
        let mut keys = Vec::with_capacity(rows.len());
        for (key, cells) in rows {
            keys.push(key);
            table.cells(cells);
        }
        table.cells(total_row(&report));
        let sorted = if self.sort < 2 { self.sort } else { self.sort - 2 + HEAD };
        GuestListRows { table, keys, sorted }
    }
}

/// Returns the part of what the host saves, in per cent.
fn share(saved: &FigureScalar, host_bytes: u64) -> String {
    match saved {
        FigureScalar::Unsigned(bytes) if host_bytes > 0 => {
            format!("{:.0} %", 100.0 * *bytes as f64 / host_bytes as f64)
        }
        _ => "-".to_owned(),
    }
}

fn guest_row(guest: &Guest, host_bytes: u64) -> (RowKey, Vec<String>) {
    let others = guest.processes.len().saturating_sub(1);
    let others = if others > 0 { format!("+{others}") } else { String::new() };
    let head = [guest.shown_name(), guest.kind.to_string(), format!("{}{others}", guest.id().pid())];
    let values: Vec<(&ModelFigure<Guest>, FigureScalar)> =
        columns().map(|figure| (figure, (figure.read)(guest))).collect();
    (RowKey::Guest(guest.id()), row_cells(head, &values, host_bytes))
}

fn group_row(group: GuestGroup, host_bytes: u64) -> (RowKey, Vec<String>) {
    let sums = summed().zip(group.sums).filter(|(figure, _)| figure.heading.is_some());
    let values: Vec<(&ModelFigure<Guest>, FigureScalar)> = sums.collect();
    let head = [group.name.clone(), group.guests.to_string(), String::new()];
    let cells = row_cells(head, &values, host_bytes);
    (RowKey::Group(group.name), cells)
}

/// Returns the cells of the sums over all guests that are listed.
fn total_row(report: &GuestsReport) -> Vec<String> {
    let sum = |figure: &ModelFigure<Guest>| {
        let values = report.guests.iter().map(|guest| (figure.read)(guest));
        values.reduce(|sum, value| sum.plus(&value)).unwrap_or(FigureScalar::Unknown)
    };
    let values: Vec<(&ModelFigure<Guest>, FigureScalar)> = columns().map(|figure| (figure, sum(figure))).collect();
    row_cells(
        [format!("{TOTAL} {}", report.guests.len()), String::new(), String::new()],
        &values,
        report.saved_bytes,
    )
}

/// Returns the cells of a row: its head, its figures, and its part of what the host saves.
fn row_cells(head: [String; HEAD], values: &[(&ModelFigure<Guest>, FigureScalar)], host_bytes: u64) -> Vec<String> {
    let saved = values.iter().find(|(figure, _)| figure.field.name == "saved_bytes");
    let share = saved.map_or_else(String::new, |(_, saved)| share(saved, host_bytes));
    let cells = values.iter().map(|(figure, value)| cell(&figure.field, value));
    head.into_iter().chain(cells).chain([share]).collect()
}

impl GuestListRows {
    /// Returns the index of the row of sums in the table.
    pub fn total(&self) -> usize {
        self.keys.len()
    }

    /// Returns the index of the chosen row, or of the first if that is gone.
    pub fn place(&self, chosen: Option<&RowKey>) -> usize {
        chosen.and_then(|chosen| self.keys.iter().position(|key| key == chosen)).unwrap_or(0)
    }
}
