//! `ksmith estimate` as text.

use std::time::Duration;

use ksmith_core::kernel::IneligibleReason;
use ksmith_core::printable::{TextPage, TextTone};
use ksmith_core::sketch::MergeAdvice;
use ksmith_core::units::{Bytes, TimeSpan};
use ksmith_host::estimate::{EstimateReport, GuestReport, HugePagesReport, JobAdvice, MatrixReport, RunningReport};

use super::{ALWAYS, TableColumn, TextTable};

/// Most guests of a pair matrix as text: more do not fit side by side.
const MOST_IN_TABLE: usize = 16;

/// Returns the text for people, on a terminal of this width.
pub fn text(report: &EstimateReport, width: Option<usize>) -> TextPage {
    let mut page = TextPage::new();
    write_text(report, width, &mut page);
    page
}

/// The columns of the table, with their importance. The last two are of huge pages, where merging would split some: what it
/// would split, and that for each GiB which it saves in them.
const COLUMNS: [(&str, u8); 11] = [
    ("guest", ALWAYS),
    ("pid", 60),
    ("present", 80),
    ("zero", 30),
    ("equal within", 40),
    ("across", 50),
    ("merged", 10),
    ("changing", 20),
    ("saves", 90),
    ("splits", 45),
    ("for a GiB", 35),
];

/// The number of columns about huge pages.
const OF_HUGE_PAGES: usize = 2;

fn write_text(report: &EstimateReport, width: Option<usize>, page: &mut TextPage) {
    let huge = report.huge_pages.filter(|huge| huge.split_bytes > 0);
    let shown_columns = if huge.is_some() { COLUMNS.len() } else { COLUMNS.len() - OF_HUGE_PAGES };
    let columns = COLUMNS.iter().take(shown_columns);
    let columns = columns.map(|(heading, importance)| TableColumn::new(heading, *importance));
    let mut table = TextTable::of_columns(columns.collect());
    let cells = |guest: &GuestReport| row(guest).into_iter().take(shown_columns).collect::<Vec<_>>();
    let (shown, empty): (Vec<_>, Vec<_>) = report.guests.iter().partition(|guest| guest.present_bytes > 0);
    for guest in shown {
        table.cells(cells(guest));
    }
    if report.guests.len() > 1 {
        table.cells(cells(&report.total));
    }
    page.lines(table.lines(width));
    page.line("");
    if !empty.is_empty() {
        page.line(format_args!("{} more have nothing that could be merged.", empty.len()));
    }
    let lost = report.total.ineligible.iter().filter(|(_, bytes)| **bytes > 0);
    let words = |key: &str| {
        IneligibleReason::ALL.into_iter().find(|reason| reason.key() == key).map(IneligibleReason::words)
    };
    let lost: Vec<String> =
        lost.filter_map(|(key, &bytes)| Some(format!("{} {}", Bytes::from(bytes), words(key)?))).collect();
    if !lost.is_empty() {
        page.line(format_args!("Can't be merged: {}.", lost.join(", ")));
    }
    if let Some(huge) = huge {
        page.line(format_args!(
            "Merging would split about {} of {} in huge pages, and save {} of that ({} for each GiB): programs that use it all \
             the time get slower.",
            Bytes::from(huge.split_bytes),
            Bytes::from(huge.huge_bytes),
            Bytes::from(huge.saved_bytes),
            split_for_gib(&huge),
        ));
    }
    if let Some(running) = &report.running {
        page.line(running_words(running));
    }
    if let Some(within) = report.within_nodes_saved_bytes {
        page.line(format_args!(
            "Merging within NUMA nodes alone (merge_across_nodes=0) would save {} of the {}.",
            Bytes::from(within),
            Bytes::from(report.total.expected_saved_bytes),
        ));
    }
    if let Some(matrix) = &report.matrix {
        match matrix.guests.len() {
            0..=MOST_IN_TABLE => {
                page.lines(["", "Shared by two guests (on the diagonal: within one):"]);
                page.lines(matrix_table(matrix).lines(width));
                page.line("");
            }
            guests => {
                page.line("");
                page.line(format_args!(
                    "{guests} guests are too many for a table: see --json or --matrix=FILE.svg."
                ));
                page.line("");
            }
        }
    }
    for skipped in &report.skipped {
        page.line(format_args!("Process {} is left out: {}.", skipped.pid, skipped.reason));
    }
    let took = TimeSpan(Duration::try_from_secs_f64(report.seconds).unwrap_or_default());
    let mode = match report.rate {
        Some(rate) => format!("sample of {} %; the interval is a bound, its middle no estimate", rate * 100.0),
        None => report.mode.to_owned(),
    };
    page.line(format_args!("{} read in {took} ({mode}).", Bytes::from(report.read_bytes)));
    page.line("");
    match report.advice {
        MergeAdvice::Yes => page.toned(TextTone::Good, &report.verdict),
        MergeAdvice::No => page.toned(TextTone::Warning, &report.verdict),
        _ => page.line(&report.verdict),
    }
}

/// Describes what merging does to processes that run all the time.
fn running_words(running: &RunningReport) -> String {
    let seconds = Duration::try_from_secs_f64(running.delay_seconds).unwrap_or_default();
    let delay = match (running.spare_cpus, running.delay_seconds > 0.0) {
        (0, true) => format!("merging would delay them by up to {}", TimeSpan(seconds)),
        (0, false) => "they leave ksmd a CPU".to_owned(),
        _ => "ksmd has CPUs of its own with ksmd_cpus = \"auto\"".to_owned(),
    };
    let advice = match running.advice {
        JobAdvice::Fold => "Fold their zeros; do not merge.",
        JobAdvice::Merge => "Merge them.",
        JobAdvice::FoldAndMerge => "Fold their zeros, and merge the rest.",
        JobAdvice::Neither => "Leave them alone.",
    };
    format!(
        "{} of these processes run all the time, on {} CPUs: {delay}. {advice}",
        running.processes, running.cpus
    )
}

fn row(guest: &GuestReport) -> Vec<String> {
    let show = |bytes: u64| Bytes::from(bytes).to_string();
    let pid = guest.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let [expected, low, high] = [guest.expected_saved_bytes, guest.low_bytes, guest.high_bytes].map(show);
    let saved = if low == high { expected } else { format!("{expected} ({low} to {high})") };
    vec![
        guest.name.clone(),
        pid,
        show(guest.present_bytes),
        show(guest.zero_bytes),
        show(guest.equal_within_bytes),
        show(guest.equal_across_bytes),
        show(guest.merged_bytes),
        guest.changing_bytes.map_or_else(|| "-".to_owned(), show),
        saved,
        guest.huge_pages.map_or_else(|| "-".to_owned(), |huge| show(huge.split_bytes)),
        guest.huge_pages.as_ref().map_or_else(|| "-".to_owned(), split_for_gib),
    ]
}

/// Returns the huge pages that merging would split for each GiB that it saves in them.
fn split_for_gib(huge: &HugePagesReport) -> String {
    let bytes = |part: f64| Bytes::from((part * f64::from(1 << 30)).round() as u64).to_string();
    huge.split_for_saved.map_or_else(|| "-".to_owned(), bytes)
}

fn matrix_table(matrix: &MatrixReport) -> TextTable {
    let names = std::iter::once("").chain(matrix.guests.iter().map(String::as_str));
    let mut table = TextTable::of_columns(names.map(|name| TableColumn::new(name, 1)).collect());
    for (name, row) in matrix.guests.iter().zip(&matrix.shared_bytes) {
        let cells = row.iter().map(|&bytes| Bytes::from(bytes).to_string());
        table.cells(std::iter::once(name.clone()).chain(cells).collect());
    }
    table
}
