//! The content of the report.

use ksmith_core::diagnose::{Finding, Severity};
use ksmith_core::units::{Bytes, TimeSpan};
use ksmith_record::{
    DecisionEpisode, HistoryReport, HistorySummary, LabelSeries, SavingGuest, episodes, summary, times,
};
use std::time::Duration;

use super::chart::{TimeMark, VALUES, saved_and_spent, saved_by_value};
use super::document::{DocumentPart, ReportDocument};

/// Most decisions, and most guests, that are listed.
const MOST: usize = 15;

/// The inputs of the report.
#[derive(Debug)]
pub struct ReportInputs<'a> {
    /// The name of the host.
    pub host: &'a str,
    /// The release of the kernel.
    pub kernel: &'a str,
    /// The history of the host.
    pub history: &'a HistoryReport,
    /// The guests that saved most.
    pub savers: &'a [SavingGuest],
    /// Memory saved by the guests with each value of each label.
    pub labels: &'a [LabelSeries],
    /// The present findings of `ksmith doctor`.
    pub findings: &'a [Finding],
}

/// Makes the report.
///
/// # Errors
/// A picture can't be drawn.
pub fn document(facts: &ReportInputs<'_>) -> anyhow::Result<ReportDocument> {
    let ReportInputs { host, kernel, history, savers, labels, findings } = facts;
    let mut parts = vec![DocumentPart::Text(format!(
        "From {} to {}; ksmith {} on Linux {kernel}.",
        moment(history.since),
        moment(history.until),
        env!("CARGO_PKG_VERSION")
    ))];
    match summary(history) {
        None => parts.push(DocumentPart::Text("Nothing was recorded in that time.".to_owned())),
        Some(sums) => {
            parts.push(totals(&sums));
            parts.push(DocumentPart::Text(format!(
                "Each row of the history is a mean of some {}: shorter peaks are not in these figures.",
                span(history.resolution_seconds)
            )));
            if sums.exposed_seconds > 0.0 {
                parts.push(DocumentPart::Text(format!(
                    "For {} the host could not have borne it if guests had written to all merged memory.",
                    span(sums.exposed_seconds)
                )));
            }
            let marks: Vec<TimeMark> = history.decisions.iter().map(|made| TimeMark { time: made.time }).collect();
            let svg = saved_and_spent(history, &marks)?;
            parts.push(DocumentPart::Picture(
                "Memory saved and ksmd's CPU; a grey line is a decision".to_owned(),
                svg,
            ));
            parts.extend(by_guest(savers));
            parts.extend(by_label(history, labels)?);
            parts.extend(by_decision(&episodes(history)));
        }
    }
    parts.extend(advice(findings));
    Ok(ReportDocument { title: format!("Memory merging on {host}"), parts })
}

fn moment(seconds: f64) -> String {
    times::local((seconds * 1000.0) as i64)
}

fn bytes(bytes: f64) -> String {
    Bytes::from(bytes as i64).to_string()
}

fn span(seconds: f64) -> String {
    TimeSpan(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()).to_string()
}

/// Returns a figure with three significant digits, but at most four after the point.
fn format_significant(figure: f64) -> String {
    let digits = match figure.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        size if size > 0.0 => 4,
        _ => 0,
    };
    format!("{figure:.digits$}")
}

fn totals(sums: &HistorySummary) -> DocumentPart {
    let yields = match sums.ksmd_cpu_seconds {
        cpu if cpu > 0.01 => {
            format!("{} GiB-hours for each CPU-second of ksmd", format_significant(sums.saved_gib_hours / cpu))
        }
        _ => "ksmd took no CPU time".to_owned(),
    };
    let row = |what: &str, figure: String| vec![what.to_owned(), figure];
    let of_splits = sums.huge_pages.iter().flat_map(|huge| {
        [
            row("in huge pages when last read", bytes(huge.huge_last_bytes)),
            row("split by merging when last read", bytes(huge.split_last_bytes)),
            row("CPU time lost by splits, at most", format!("{} s", format_significant(huge.lost_cpu_seconds))),
        ]
    });
    let figures = vec![
        row("saved on average", bytes(sums.saved_mean_bytes)),
        row("saved at the end", bytes(sums.saved_last_bytes)),
        row("saved at most", bytes(sums.saved_max_bytes)),
        row("saved over time", format!("{} GiB-hours", format_significant(sums.saved_gib_hours))),
        row("ksmd's CPU time", format!("{} s", format_significant(sums.ksmd_cpu_seconds))),
        row("the daemon's CPU time", format!("{} s", format_significant(sums.daemon_cpu_seconds))),
        row("yield", yields),
        row("exposure at most", bytes(sums.exposure_max_bytes)),
        row("headroom at least", sums.headroom_min_bytes.map_or("unknown".to_owned(), bytes)),
        row("time with records", span(sums.recorded_seconds)),
    ];
    DocumentPart::Table(row("figure", "value".to_owned()), figures.into_iter().chain(of_splits).collect())
}

fn by_guest(savers: &[SavingGuest]) -> Vec<DocumentPart> {
    if savers.is_empty() {
        return Vec::new();
    }
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), bytes);
    let row = |saver: &SavingGuest| {
        let end = saver.life.last.map_or("lives".to_owned(), moment);
        vec![
            saver.life.name.clone(),
            saver.life.kind.clone(),
            saver.life.domain.clone().unwrap_or_else(|| "-".to_owned()),
            figure(saver.rss_bytes),
            figure(saver.saved_bytes),
            figure(saver.profit_bytes),
            end,
        ]
    };
    let headings = ["guest", "kind", "domain", "rss", "saved", "profit", "until"].map(str::to_owned).to_vec();
    vec![
        DocumentPart::Heading("By guest".to_owned()),
        DocumentPart::Text("The last figures of each guest in that time.".to_owned()),
        DocumentPart::Table(headings, savers.iter().take(MOST).map(row).collect()),
    ]
}

/// Shows each label that the operator gave, the values that saved most first.
fn by_label(history: &HistoryReport, labels: &[LabelSeries]) -> anyhow::Result<Vec<DocumentPart>> {
    let mut parts = Vec::new();
    for of_label in labels.chunk_by(|one, other| one.label == other.label) {
        let mut values: Vec<&LabelSeries> = of_label.iter().collect();
        values.sort_by(|one, other| other.mean_bytes().total_cmp(&one.mean_bytes()));
        values.truncate(VALUES.len());
        let Some(label) = values.first().map(|one| one.label.clone()) else { continue };
        let last = |one: &LabelSeries| one.points.last().map_or(0.0, |(_, saved)| *saved);
        let row = |one: &&LabelSeries| vec![one.value.clone(), bytes(one.mean_bytes()), bytes(last(one))];
        let headings = vec![label.clone(), "saved on average".to_owned(), "saved at the end".to_owned()];
        parts.push(DocumentPart::Heading(format!("By {label}")));
        parts.push(DocumentPart::Picture(format!("Memory saved by {label}"), saved_by_value(history, &values)?));
        parts.push(DocumentPart::Table(headings, values.iter().map(row).collect()));
    }
    Ok(parts)
}

/// Less than this is no gain, in bytes.
const NO_GAIN: f64 = (1 << 20) as f64;

/// Less than this is no cost, in CPU-seconds.
const NO_COST: f64 = 0.1;

fn by_decision(all: &[DecisionEpisode]) -> Vec<DocumentPart> {
    let mut paid: Vec<&DecisionEpisode> = all.iter().filter(|episode| episode.gained_bytes >= NO_GAIN).collect();
    paid.sort_by(|a, b| b.gained_bytes.total_cmp(&a.gained_bytes));
    let is_vain =
        |episode: &&DecisionEpisode| episode.gained_bytes < NO_GAIN && episode.ksmd_cpu_seconds >= NO_COST;
    let mut vain: Vec<&DecisionEpisode> = all.iter().filter(is_vain).collect();
    vain.sort_by(|a, b| b.ksmd_cpu_seconds.total_cmp(&a.ksmd_cpu_seconds));
    let mut parts = Vec::new();
    for (heading, sentence, list) in [
        ("Decisions that paid", "Each lasts until the policy's next state.", paid),
        (
            "Decisions that did not",
            "ksmd took CPU time, and less than 1 MiB more was saved. Guests that end take their savings with them.",
            vain,
        ),
    ] {
        if list.is_empty() {
            continue;
        }
        let row = |episode: &&DecisionEpisode| {
            vec![
                moment(episode.decision.time),
                episode.decision.state.clone(),
                span(episode.seconds),
                bytes(episode.gained_bytes),
                format!("{:.1} s", episode.ksmd_cpu_seconds),
                episode.decision.reason.clone(),
            ]
        };
        let headings = ["time", "state", "lasted", "gained", "ksmd's CPU", "reason"].map(str::to_owned).to_vec();
        parts.push(DocumentPart::Heading(heading.to_owned()));
        parts.push(DocumentPart::Text(sentence.to_owned()));
        parts.push(DocumentPart::Table(headings, list.iter().take(MOST).map(row).collect()));
    }
    parts
}

fn advice(findings: &[Finding]) -> Vec<DocumentPart> {
    let mut parts = vec![DocumentPart::Heading("Advice".to_owned())];
    if findings.is_empty() {
        parts.push(DocumentPart::Text("ksmith doctor finds nothing now.".to_owned()));
        return parts;
    }
    let word = |severity: Severity| match severity {
        Severity::Problem => "problem".to_owned(),
        Severity::Warning => "warning".to_owned(),
        Severity::Note => "note".to_owned(),
    };
    let row = |finding: &Finding| vec![word(finding.severity), finding.what.clone(), finding.remedy.clone()];
    let headings = ["weight", "finding", "remedy"].map(str::to_owned).to_vec();
    parts.push(DocumentPart::Table(headings, findings.iter().map(row).collect()));
    parts
}
