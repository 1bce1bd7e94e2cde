//! `ksmith status` as text and as JSON.

use std::cmp::Reverse;
use std::time::Duration;

use ksmith_core::account::HostTotals;
use ksmith_core::figures::{
    self, BALANCE, CONTROLLER, DOMAIN, FigureRow, HISTORY, HOST, ModelFigure, PROCESS, SKETCH, VERDICT, insert,
    schema,
};
use ksmith_core::kernel::{self, FIELDS, RunState};
use ksmith_core::lease::is_leased;
use ksmith_core::model::{BalanceStatus, StatusReport, VerdictLevel};
use ksmith_core::printable::{TextPage, TextTone};
use ksmith_core::reading::Reading;
use ksmith_core::units::{Bytes, TimeSpan};
use serde_json::{Map, Value, json};

use super::{ALWAYS, TableColumn, TextTable, cell};

/// Returns the stable JSON form: each figure of the host by its key, the processes, the daemon, domains and balance.
pub fn json(status: &StatusReport) -> Value {
    let mut whole = Map::new();
    for (field, value) in figures::host(status) {
        insert(&mut whole, field.name, json!(value));
    }
    let processes = status.processes().0;
    let processes: Vec<_> = processes.iter().map(|process| figures::object(PROCESS, process)).collect();
    let daemon = status.daemon.as_ref().map(|daemon| {
        let mut object = figures::object(figures::POLICY, daemon);
        object.extend(figures::object(CONTROLLER, daemon));
        object
    });
    let domains = status.domains.as_ref().map(|report| {
        json!({
            "mode": report.mode,
            "domains": report.domains.iter().map(|domain| figures::object(DOMAIN, domain)).collect::<Vec<_>>(),
            "may_share_across": report.may_share_across,
            "meaning": report.meaning,
        })
    });
    let balance = status.balance.as_ref().map(|balance| figures::object(BALANCE, balance));
    let history = status.history.as_ref().map(|history| figures::object(HISTORY, history));
    whole.insert("history".to_owned(), json!(history));
    let sketch = status.sketch.as_ref().map(|sketch| figures::object(SKETCH, sketch));
    whole.insert("sketch".to_owned(), json!(sketch));
    whole.insert("verdict".to_owned(), json!(figures::object(VERDICT, &status.verdict())));
    whole.insert("processes".to_owned(), json!(processes));
    whole.insert("daemon".to_owned(), json!(daemon));
    whole.insert("domains".to_owned(), json!(domains));
    whole.insert("balance".to_owned(), json!(balance));
    whole.insert("errors".to_owned(), json!(status.errors()));
    Value::Object(whole)
}

/// Returns the schema of [`json()`].
pub fn schema() -> Value {
    let rows = FIELDS
        .iter()
        .map(|field| FigureRow { field: *field, heading: None })
        .chain(HOST.iter().map(ModelFigure::row));
    let processes = schema::object(PROCESS.iter().map(ModelFigure::row), []);
    let daemon = figures::POLICY.iter().map(ModelFigure::row).chain(CONTROLLER.iter().map(ModelFigure::row));
    let domains = schema::object(
        [],
        [
            ("mode", schema::plain("string", "Mode of the domains: report, one or node.")),
            (
                "domains",
                schema::list("Domains with guests.", schema::object(DOMAIN.iter().map(ModelFigure::row), [])),
            ),
            ("may_share_across", schema::plain("boolean", "True if pages of different domains may be merged.")),
            ("meaning", schema::plain("string", "Consequence of KSM's side channels here, in a sentence.")),
        ],
    );
    let parts = [
        ("verdict", schema::object(VERDICT.iter().map(ModelFigure::row), [])),
        ("processes", schema::list("Processes with mergeable memory.", processes)),
        ("daemon", schema::or_null(schema::object(daemon, []))),
        ("domains", schema::or_null(domains)),
        ("balance", schema::or_null(schema::object(BALANCE.iter().map(ModelFigure::row), []))),
        ("history", schema::or_null(schema::object(HISTORY.iter().map(ModelFigure::row), []))),
        ("sketch", schema::or_null(schema::object(SKETCH.iter().map(ModelFigure::row), []))),
        ("errors", schema::errors()),
    ];
    schema::document("ksmith status --json", schema::object(rows, parts))
}

/// Returns the text for people, on a terminal of this width.
pub fn text(status: &StatusReport, width: Option<usize>) -> TextPage {
    let mut page = TextPage::new();
    write_text(status, width, false, &mut page);
    page
}

/// Returns the text with the arithmetic behind the policy's reason.
pub fn detailed_text(status: &StatusReport, width: Option<usize>) -> TextPage {
    let mut page = TextPage::new();
    write_text(status, width, true, &mut page);
    page
}

/// Returns the end of the line of what is saved. KSM's counters lie in both directions where there are huge pages; without
/// a daemon, which reads page tables, all figures are theirs. An old reading is no better.
fn unverified_note(status: &StatusReport, totals: &HostTotals) -> String {
    let memory = status.sample.host.memory.value();
    let has_huge_pages = memory.is_some_and(|memory| memory.anonymous_huge.is_some_and(|bytes| bytes > 0));
    if totals.unverified_bytes == 0 || status.daemon.is_none() && !has_huge_pages {
        return String::new();
    }
    let unverified = Bytes::from(totals.unverified_bytes);
    format!(
        "; {unverified} of it without a look at page tables of late: khugepaged may have undone some, and freed zeros are not in it"
    )
}

/// Returns the age of what page tables have shown, and a bound of what they could not show any more.
fn readings_note(totals: &HostTotals) -> Option<String> {
    let age = TimeSpan(Duration::from_secs(totals.oldest_reading_seconds?));
    let bound = match totals.earlier_zero_bytes {
        Some(bytes) => format!("splits freed at most {} more before the first look", Bytes::from(bytes)),
        None => "what splits freed before the first look has no bound: not all could be read".to_owned(),
    };
    Some(format!("by page tables that were read within {age}; {bound}"))
}

/// Writes the verdict in a line. In detail its other findings follow, but for the errors, which end the text.
fn write_verdict(status: &StatusReport, is_detailed: bool, page: &mut TextPage) {
    let verdict = status.verdict();
    let (tone, word) = verdict_tone(verdict.level);
    page.partly_toned("", tone, word, format_args!(": {}", verdict.sentence));
    if is_detailed {
        let errors = status.errors();
        for finding in status.findings().iter().skip(1).filter(|finding| !errors.contains(&finding.sentence)) {
            let (tone, word) = verdict_tone(finding.level);
            page.partly_toned("  ", tone, word, format_args!(": {}", finding.sentence));
        }
    }
}

/// Returns a level's tone and its word at the beginning of a line.
fn verdict_tone(level: VerdictLevel) -> (TextTone, &'static str) {
    match level {
        VerdictLevel::Fine => (TextTone::Good, "Fine"),
        VerdictLevel::Look => (TextTone::Warning, "Look"),
        VerdictLevel::Act => (TextTone::Problem, "Act"),
    }
}

fn write_text(status: &StatusReport, width: Option<usize>, is_detailed: bool, page: &mut TextPage) {
    write_verdict(status, is_detailed, page);
    match status.sample.ksm.run_state() {
        Some(RunState::Running) => page.toned(TextTone::Good, headline(status)),
        Some(_) => page.line(headline(status)),
        None => page.toned(TextTone::Warning, headline(status)),
    }
    if let Some(daemon) = &status.daemon {
        page.line(format_args!("policy    {}: {}, {}", daemon.policy, daemon.state, daemon.reason));
        if let Some(detail) = daemon.reason_detail.as_ref().filter(|_| is_detailed) {
            page.line(format_args!("          {detail}"));
        }
    }
    if status.sample.ksm.is_present() {
        let totals = HostTotals::from_sample(&status.sample);
        let bytes = |bytes: u64| Bytes::from(bytes);
        match totals.is_unknown {
            true => page.line("saved     unknown: KSM's counters can't be read"),
            false => page.line(format_args!(
                "saved     {}  (metadata {}, profit {}){}",
                bytes(totals.saved_bytes),
                bytes(totals.overhead_bytes),
                Bytes::from(totals.profit_bytes),
                unverified_note(status, &totals)
            )),
        }
        if let Some(note) = readings_note(&totals).filter(|_| is_detailed) {
            page.line(format_args!("          {note}"));
        }
        if let Some(folded) = status.sample.folded_bytes {
            page.line(format_args!(
                "folded    {}  (zeros freed by splitting huge pages; a part of what is saved)",
                bytes(folded)
            ));
        }
        if let Some(huge) = totals.huge_bytes {
            let split = totals.split.filter(|split| split.bytes > 0).map_or(String::new(), |split| {
                let cost = split.cost_cpus();
                format!("; {} were split by merging, which costs up to {cost:.2} CPU", bytes(split.bytes))
            });
            page.line(format_args!("huge      {}  (in huge pages, of what may merge{split})", bytes(huge)));
        }
        let headroom = totals.headroom_bytes.map_or("unknown".to_owned(), |b| bytes(b).to_string());
        let exposed =
            if totals.is_unknown { "unknown".to_owned() } else { bytes(totals.exposure_bytes).to_string() };
        let exposure = format!("exposure  {exposed}  (headroom {headroom})");
        match totals.is_overexposed() {
            true => page.partly_toned(exposure + "  ", TextTone::Problem, "WARNING: more than the host has", ""),
            false => page.line(exposure),
        }
        page.line(format_args!("settings  {}", settings(status)));
        if let Some(domains) = &status.domains {
            page.line(format_args!("domains   {}", domains.meaning));
        }
        if let Some(BalanceStatus { policy, state, reason, taken_bytes, exposed }) = &status.balance {
            let taken = match taken_bytes {
                0 => String::new(),
                taken => format!("; {} taken from guests", bytes(*taken)),
            };
            page.line(format_args!("balance   {policy}: {state}, {reason}{taken}"));
            if let Some(exposed) = exposed {
                page.partly_toned("          ", TextTone::Warning, exposed, "");
            }
        }
        write_processes(status, width, page);
    }
    for error in status.errors() {
        page.partly_toned("", TextTone::Warning, "note", format_args!("      {error}"));
    }
}

/// Returns the state of KSM in a line.
pub fn headline(status: &StatusReport) -> String {
    let ksm = &status.sample.ksm;
    let state = match (ksm.run_state(), &ksm.run) {
        (Some(RunState::Stopped), _) => "KSM is stopped; what is merged stays merged",
        (Some(RunState::Running), _) => "KSM is running",
        (Some(RunState::Unmerged), _) => "KSM is stopped and everything is unmerged",
        (None, Reading::Absent) => return "KSM: this kernel has none".to_owned(),
        (None, Reading::Denied) => return "KSM: its settings may not be read by this user".to_owned(),
        (None, _) => "KSM is in a state that ksmith does not know",
    };
    match (&status.daemon, status.ksmd_cpu_percent) {
        (Some(daemon), _) if ksm.run_state() == Some(RunState::Stopped) => {
            format!("KSM is parked by ksmith (pid {}); what is merged stays merged", daemon.pid)
        }
        (_, Some(percent)) if ksm.run_state() == Some(RunState::Running) => {
            format!("{state}; ksmd uses {percent:.1} % of a CPU")
        }
        _ => state.to_owned(),
    }
}

/// Most processes in the text. `ksmith guests` and `--json` show more.
const SHOWN: usize = 20;

fn write_processes(status: &StatusReport, width: Option<usize>, page: &mut TextPage) {
    let (mut processes, unattributed) = status.processes();
    if processes.is_empty() {
        let seen_by = if status.sample.hidden_processes > 0 { " that this user may see" } else { "" };
        return page.line(format_args!("processes none with mergeable memory{seen_by}"));
    }
    processes.sort_by_key(|process| Reverse(process.share.saved_bytes));
    let columns: Vec<_> = PROCESS.iter().filter(|figure| figure.heading.is_some()).collect();
    let headings = columns.iter().filter_map(|figure| Some(TableColumn::new(figure.heading?, figure.importance)));
    let mut table =
        TextTable::of_columns([TableColumn::new("process", ALWAYS)].into_iter().chain(headings).collect());
    for process in processes.iter().take(SHOWN) {
        let cells = columns.iter().map(|figure| cell(&figure.field, &(figure.read)(process)));
        table.cells([process.name.clone()].into_iter().chain(cells).collect());
    }
    page.line("");
    page.lines(table.lines(width));
    if processes.len() > SHOWN {
        page.line(format_args!("… and {} more; --json shows all", processes.len() - SHOWN));
    }
    if unattributed > 0 {
        page.line(format_args!("{} more saved in processes that are not shown", Bytes::from(unattributed)));
    }
}

/// Returns the settings that this kernel has, in the kernel's own words.
fn settings(status: &StatusReport) -> String {
    let shown = [
        "pages_to_scan",
        "sleep_millisecs",
        "smart_scan",
        "use_zero_pages",
        "advisor_mode",
        "max_ptes_shared",
        "max_ptes_none",
    ];
    let entries = status.sample.ksm.entries().filter(|(field, _)| shown.contains(&field.name));
    let words = entries.filter_map(|(field, reading)| {
        let is_leased = matches!(reading.value()?, kernel::KsmValue::Unsigned(value) if is_leased(*value));
        let note =
            if field.name == "sleep_millisecs" && is_leased { " (ksmith wakes ksmd for each batch)" } else { "" };
        Some(format!("{} {}{note}", field.name, reading.value()?))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "unknown".to_owned() } else { words.join(", ") }
}
