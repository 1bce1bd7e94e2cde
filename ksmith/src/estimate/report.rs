//! The estimate as it is shown: JSON with stable keys, or a table and a sentence.

use std::collections::BTreeMap;
use std::fmt;

use ksmith_core::kernel::Ineligible;
use ksmith_core::sketch::{Advice, GuestOutcome, Pairs, Verdict};
use ksmith_core::units::{Bytes, Span};
use serde::Serialize;

use super::run::GuestSums;
use crate::show::Table;

/// More guests than this do not fit side by side.
const MOST_IN_TABLE: usize = 16;

/// Everything that came out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `exact`, `sketch` or `sample`.
    pub mode: &'static str,
    /// The chance with which each page was read, in sample mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Each guest.
    pub guests: Vec<GuestReport>,
    /// All together.
    pub total: GuestReport,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time it took, pauses included.
    pub seconds: f64,
    /// CPU time it took.
    pub cpu_seconds: f64,
    /// The most memory the sketch took, in sketch mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sketch_bytes: Option<u64>,
    /// The verdict in a word.
    pub advice: Advice,
    /// CPU time of ksmd per day, once all is merged.
    pub ksmd_cpu_seconds_per_day: f64,
    /// The verdict in a sentence.
    pub verdict: String,
    /// What each two guests share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<MatrixReport>,
    /// Processes that were left out, and why.
    pub skipped: Vec<SkippedReport>,
}

/// One guest, or all.
#[derive(Debug, Clone, Serialize)]
pub struct GuestReport {
    /// Its name.
    pub name: String,
    /// Its process, if it is one.
    pub pid: Option<u32>,
    /// Its processes.
    pub pids: Vec<u32>,
    /// Anonymous memory that is present and could be merged, with what changes.
    pub present_bytes: u64,
    /// Pages of zeros.
    pub zero_bytes: u64,
    /// Copies within the guest, beyond the first of each content.
    pub equal_within_bytes: u64,
    /// Contents that another guest has as well.
    pub equal_across_bytes: u64,
    /// Merged by now.
    pub merged_bytes: u64,
    /// Changed between two looks. `null` if there was only one.
    pub changing_bytes: Option<u64>,
    /// What can't be merged, by reason.
    pub ineligible: BTreeMap<&'static str, u64>,
    /// Whether it has memory that is marked mergeable.
    pub is_mergeable: bool,
    /// What merging saves in all, with what is saved by now.
    pub expected_saved_bytes: u64,
    /// The lower end of the 95 % interval.
    pub low_bytes: u64,
    /// The upper end.
    pub high_bytes: u64,
    /// KSM's own memory for it.
    pub metadata_bytes: u64,
    /// Saved less metadata.
    pub net_profit_bytes: i64,
    /// CPU time of ksmd until all is merged.
    pub ksmd_cpu_seconds: f64,
}

/// What each two guests share.
#[derive(Debug, Clone, Serialize)]
pub struct MatrixReport {
    /// The guests, in the order of the rows and columns.
    pub guests: Vec<String>,
    /// Rows of bytes. On the diagonal what a guest shares with itself.
    pub shared_bytes: Vec<Vec<u64>>,
}

/// A process that was left out.
#[derive(Debug, Clone, Serialize)]
pub struct SkippedReport {
    /// Its PID.
    pub pid: u32,
    /// Why.
    pub reason: String,
}

impl GuestReport {
    pub(super) fn new(
        name: String,
        pid: Option<u32>,
        pids: Vec<u32>,
        outcome: &GuestOutcome,
        sums: &GuestSums,
        page_size: u64,
    ) -> Self {
        let bytes = |pages: f64| (pages.max(0.0) * page_size as f64).round() as u64;
        let reason = |reason: Ineligible| (reason.key(), sums.ineligible.get(&reason).copied().unwrap_or(0));
        Self {
            name,
            pid,
            pids,
            present_bytes: (outcome.pages + sums.changing) * page_size,
            zero_bytes: bytes(outcome.zero),
            equal_within_bytes: bytes(outcome.within),
            equal_across_bytes: bytes(outcome.across),
            merged_bytes: sums.merged * page_size,
            changing_bytes: sums.looked_twice.then_some(sums.changing * page_size),
            ineligible: Ineligible::ALL.map(reason).into_iter().collect(),
            is_mergeable: sums.is_mergeable,
            expected_saved_bytes: 0,
            low_bytes: 0,
            high_bytes: 0,
            metadata_bytes: 0,
            net_profit_bytes: 0,
            ksmd_cpu_seconds: 0.0,
        }
    }

    pub(super) fn weigh(&mut self, verdict: &Verdict) {
        [self.low_bytes, self.expected_saved_bytes, self.high_bytes] = verdict.saved_bytes;
        self.metadata_bytes = verdict.metadata_bytes;
        self.net_profit_bytes = verdict.net_profit_bytes;
        self.ksmd_cpu_seconds = verdict.ksmd_cpu_seconds;
    }

    fn row(&self) -> [String; 9] {
        let show = |bytes: u64| Bytes::from(bytes).to_string();
        let pid = self.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let [expected, low, high] = [self.expected_saved_bytes, self.low_bytes, self.high_bytes].map(show);
        let saved = if low == high { expected } else { format!("{expected} ({low} to {high})") };
        [
            self.name.clone(),
            pid,
            show(self.present_bytes),
            show(self.zero_bytes),
            show(self.equal_within_bytes),
            show(self.equal_across_bytes),
            show(self.merged_bytes),
            self.changing_bytes.map_or_else(|| "-".to_owned(), show),
            saved,
        ]
    }
}

impl MatrixReport {
    pub(super) fn new(guests: Vec<String>, pairs: &Pairs, page_size: u64) -> Self {
        let bytes = |a, b| (pairs.get(a, b) * page_size as f64).round() as u64;
        let shared_bytes = (0..guests.len()).map(|a| (0..guests.len()).map(|b| bytes(a, b)).collect()).collect();
        Self { guests, shared_bytes }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "guest",
            "pid",
            "present",
            "zero",
            "equal within",
            "across",
            "merged",
            "changing",
            "saves",
        ]);
        let (shown, empty): (Vec<_>, Vec<_>) = self.guests.iter().partition(|guest| guest.present_bytes > 0);
        for guest in shown {
            table.row(guest.row());
        }
        if self.guests.len() > 1 {
            table.row(self.total.row());
        }
        writeln!(f, "{table}")?;
        if !empty.is_empty() {
            writeln!(f, "{} more have nothing that could be merged.", empty.len())?;
        }
        let lost = self.total.ineligible.iter().filter(|(_, bytes)| **bytes > 0);
        let words =
            |key: &str| Ineligible::ALL.into_iter().find(|reason| reason.key() == key).map(Ineligible::words);
        let lost: Vec<String> =
            lost.filter_map(|(key, &bytes)| Some(format!("{} {}", Bytes::from(bytes), words(key)?))).collect();
        if !lost.is_empty() {
            writeln!(f, "Can't be merged: {}.", lost.join(", "))?;
        }
        if let Some(matrix) = &self.matrix {
            match matrix.guests.len() {
                0..=MOST_IN_TABLE => {
                    writeln!(f, "\nShared by two guests (on the diagonal: within one):\n{matrix}")?
                }
                guests => {
                    writeln!(f, "\n{guests} guests are too many for a table: see --json or --matrix=FILE.svg.")?
                }
            }
        }
        for skipped in &self.skipped {
            writeln!(f, "Process {} is left out: {}.", skipped.pid, skipped.reason)?;
        }
        let took = Span(std::time::Duration::try_from_secs_f64(self.seconds).unwrap_or_default());
        let mode = match self.rate {
            Some(rate) => format!("sample of {} %; the interval is a bound, its middle no estimate", rate * 100.0),
            None => self.mode.to_owned(),
        };
        writeln!(f, "{} read in {took} ({mode}).\n\n{}", Bytes::from(self.read_bytes), self.verdict)
    }
}

impl fmt::Display for MatrixReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = std::iter::once(String::new()).chain(self.guests.iter().cloned()).collect();
        let mut table = Table::of_columns(names);
        for (name, row) in self.guests.iter().zip(&self.shared_bytes) {
            let cells = row.iter().map(|&bytes| Bytes::from(bytes).to_string());
            table.cells(std::iter::once(name.clone()).chain(cells).collect());
        }
        table.fmt(f)
    }
}
