//! `ksmith history` as text and as CSV.

use ksmith_core::figures::FigureScalar as Figure;
use ksmith_core::printable::{OneLine, TextPage};
use ksmith_record::{GuestLife, HistoryReport, columns, times};
use serde_json::Value;

use super::wrap::wrap_text;
use super::{ALWAYS, TableColumn, TextTable, cell};

/// Most decisions and events in the text: the newest.
const SHOWN: usize = 20;

/// The decisions and events in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionsShown {
    /// Their number.
    Counted,
    /// The newest, with their reasons.
    Reasons,
    /// The newest, with the arithmetic behind each reason.
    Details,
}

/// Returns the text for people, on a terminal of this width.
pub fn text(report: &HistoryReport, shown: DecisionsShown, width: Option<usize>) -> TextPage {
    let mut page = TextPage::new();
    if let Some(guest) = &report.guest {
        add_wrapped(&mut page, title(guest), width);
        page.line("");
    }
    if let Some(label) = &report.label {
        page.line(format_args!("saved by guests with each {label}"));
        page.line("");
    }
    if report.rows.is_empty() {
        page.line("nothing was recorded in that time");
    } else {
        page.lines(table(report).lines(width));
    }
    let (decisions, events) = (report.decisions.len(), report.events.len());
    if report.guest.is_some() || decisions + events == 0 {
        return page;
    }
    page.line("");
    if shown == DecisionsShown::Counted {
        page.line(format_args!("{decisions} decisions and {events} events in that time: --decisions shows them"));
    } else {
        write_decisions(report, shown == DecisionsShown::Details, width, &mut page);
    }
    page
}

/// Adds the newest decisions and events, in their order.
fn write_decisions(report: &HistoryReport, is_detailed: bool, width: Option<usize>, page: &mut TextPage) {
    let decisions = report.decisions.iter().map(|made| {
        let settings = if made.settings.is_empty() { String::new() } else { format!(" ({})", made.settings) };
        let detail = made.reason_detail.as_ref().filter(|_| is_detailed);
        let detail = detail.map_or(String::new(), |detail| format!(" [{detail}]"));
        (made.time, format!("{}: {}{settings}{detail}", made.state, made.reason))
    });
    let events = report.events.iter().map(|event| (event.time, event.text.clone()));
    let mut notes: Vec<(f64, String)> = decisions.chain(events).collect();
    notes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let hidden = notes.len().saturating_sub(SHOWN);
    if hidden > 0 {
        page.line(format_args!("… {hidden} earlier decisions and events; --json shows all"));
    }
    for (time, sentence) in notes.iter().skip(hidden) {
        add_wrapped(page, format!("{}  {sentence}", moment(*time)), width);
    }
}

/// Adds a line, which is wrapped at words where there is a width.
fn add_wrapped(page: &mut TextPage, text: String, width: Option<usize>) {
    match width {
        // Escapes are wider than what they stand for.
        Some(width) => page.lines(wrap_text(&OneLine(text).to_string(), width)),
        None => page.line(text),
    }
}

fn title(guest: &GuestLife) -> String {
    let end = guest.last.map_or("lives".to_owned(), |last| format!("until {}", moment(last)));
    let labels: String = guest.labels.iter().map(|(label, value)| format!(", {label} {value}")).collect();
    format!("{} ({}, {}{labels}), from {}, {end}", guest.name, guest.kind, guest.id, moment(guest.first))
}

fn moment(seconds: f64) -> String {
    times::local((seconds * 1000.0) as i64)
}

fn table(report: &HistoryReport) -> TextTable {
    let known = if report.guest.is_some() { columns::guest() } else { columns::host() };
    // The time is first, and then what matters more is further to the left.
    let importance = (1..ALWAYS).rev();
    let columns = report.columns.iter().zip(importance).map(|(name, importance)| {
        // The columns of a label are its values.
        let heading = if report.label.is_some() { name.clone() } else { columns::format_heading(name) };
        TableColumn::new(&heading, importance).whole()
    });
    let mut table = TextTable::of_columns(columns.collect());
    for row in &report.rows {
        let cells = report.columns.iter().enumerate().zip(row).map(|((at, name), value)| {
            let figure_name = if report.label.is_some() { "saved_bytes" } else { name.as_str() };
            match known.iter().find(|column| at > 0 && column.name == figure_name) {
                Some(column) => cell(&column.field, &figure(value)),
                None => value.as_f64().map_or("-".to_owned(), moment),
            }
        });
        table.cells(cells.collect());
    }
    table
}

fn figure(value: &Value) -> Figure {
    match (value.as_u64(), value.as_i64(), value.as_f64()) {
        (Some(number), ..) => Figure::Unsigned(number),
        (_, Some(number), _) => Figure::Signed(number),
        (.., Some(number)) => Figure::Real(number),
        _ => Figure::Unknown,
    }
}

/// Returns the rows as CSV: a heading, and numbers as they are. An unknown value is empty.
pub fn csv(report: &HistoryReport) -> TextPage {
    let mut page = TextPage::new();
    page.line(report.columns.join(","));
    for row in &report.rows {
        let cells: Vec<String> =
            row.iter().map(|value| if value.is_null() { String::new() } else { value.to_string() }).collect();
        page.line(cells.join(","));
    }
    page
}
