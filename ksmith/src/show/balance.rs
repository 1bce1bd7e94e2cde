//! `ksmith balance` as text and as JSON.

use ksmith_core::balance::KsmStep;
use ksmith_core::figures::{self, BALANCED_GUEST, ModelFigure, POOL, RESIZE, schema};
use ksmith_core::model::{BalanceReport, GuestRow, ResizeRecord};
use ksmith_core::printable::{TextPage, TextTone};
use ksmith_core::units::Bytes;
use serde_json::{Value, json};

use super::{ALWAYS, TableColumn, TextTable, cell};

/// Returns the stable JSON form: the pool, the guests with their plans, and recent resizes.
pub fn json(report: &BalanceReport) -> Value {
    let mut whole = figures::object(POOL, report);
    let guests = report.guests.iter().map(|row| figures::object(BALANCED_GUEST, row));
    whole.insert("guests".to_owned(), json!(guests.collect::<Vec<_>>()));
    whole.insert("merging".to_owned(), json!(report.merging));
    let recent = report.recent.iter().map(|done| figures::object(RESIZE, done));
    whole.insert("recent".to_owned(), json!(recent.collect::<Vec<_>>()));
    Value::Object(whole)
}

/// Returns the schema of [`json()`].
pub fn schema() -> Value {
    let guest = schema::object(BALANCED_GUEST.iter().map(ModelFigure::row), []);
    let step = schema::object(
        [],
        [
            ("step", schema::plain("string", "burst-merge, unmerge or refuse-switches.")),
            ("key", schema::plain("string", "Key of the guest, for unmerge.")),
        ],
    );
    let reason = schema::plain("string", "The reason, in a sentence.");
    let merging = json!({
        "description": "What is asked of merging, each with its reason.",
        "type": "array",
        "items": { "type": "array", "prefixItems": [schema::optional(step, "key"), reason] },
    });
    let recent = schema::object(RESIZE.iter().map(ModelFigure::row), []);
    let parts = [
        ("guests", schema::list("Guests that balance knows.", guest)),
        ("merging", merging),
        ("recent", schema::list("What was done lately, the newest first.", recent)),
    ];
    schema::document("ksmith balance --json", schema::object(POOL.iter().map(ModelFigure::row), parts))
}

/// Returns the text for people, on a terminal of this width.
pub fn text(report: &BalanceReport, width: Option<usize>) -> TextPage {
    let mut page = TextPage::new();
    write_text(report, width, &mut page);
    page
}

/// Most recent resizes in the text. `--json` has all.
const SHOWN: usize = 5;

fn write_text(report: &BalanceReport, width: Option<usize>, page: &mut TextPage) {
    let bytes = |bytes: u64| Bytes::from(bytes);
    let pool = &report.pool;
    let word = if report.is_enabled { "" } else { " (a plan: [balance] is not enabled)" };
    page.line(format_args!("policy    {}: {}, {}{word}", report.policy, report.state, report.reason));
    page.line(format_args!(
        "pool      {}: {} of {} available; below {} memory is taken, above {} it goes back",
        report.pool_name,
        bytes(pool.available_bytes),
        bytes(pool.size_bytes),
        bytes(report.low_bytes),
        bytes(report.high_bytes)
    ));
    let exposure = format!("exposure  {}  (headroom {})", bytes(pool.exposure_bytes), bytes(pool.headroom_bytes));
    match &report.exposed {
        Some(why) => page.partly_toned(exposure + "  ", TextTone::Problem, format_args!("WARNING: {why}"), ""),
        None => page.line(exposure),
    }
    for (step, reason) in &report.merging {
        page.line(format_args!("merging   {}: {reason}", in_words(step)));
    }
    if report.guests.is_empty() {
        return page.line("guests    none to balance");
    }
    page.line("");
    page.lines(table(report).lines(width));
    let notes = report.guests.iter().filter_map(|row| {
        let why = row.reason.as_ref().or(row.guest.trouble.as_ref()).or(row.why_not.as_ref())?;
        Some(format!("{}: {why}", row.guest.name))
    });
    for (n, note) in notes.enumerate() {
        if n == 0 {
            page.line("");
        }
        page.line(note);
    }
    if !report.recent.is_empty() {
        page.lines(["", "lately"]);
    }
    page.lines(report.recent.iter().take(SHOWN).map(resize));
}

fn table(report: &BalanceReport) -> TextTable {
    let columns: Vec<&ModelFigure<GuestRow>> =
        BALANCED_GUEST.iter().filter(|figure| figure.heading.is_some()).collect();
    let headings = columns.iter().filter_map(|figure| Some(TableColumn::new(figure.heading?, figure.importance)));
    let plan = TableColumn::new("plan", 90);
    let headings = [TableColumn::new("guest", ALWAYS)].into_iter().chain(headings).chain([plan]);
    let mut table = TextTable::of_columns(headings.collect());
    for row in &report.guests {
        let given = row.guest.given_bytes;
        let plan = match row.to_bytes {
            _ if row.guest.held => "held".to_owned(),
            Some(to) if to < given => format!("-{}", Bytes::from(given - to)),
            Some(to) => format!("+{}", Bytes::from(to - given)),
            None => "-".to_owned(),
        };
        let cells = columns.iter().map(|figure| cell(&figure.field, &(figure.read)(row)));
        table.cells([row.guest.name.clone()].into_iter().chain(cells).chain([plan]).collect());
    }
    table
}

/// Returns a recent resize in a line.
fn resize(done: &ResizeRecord) -> String {
    let bytes = |bytes: u64| Bytes::from(bytes);
    let outcome = match (&done.error, done.got_bytes) {
        (Some(error), _) => format!("failed: {error}"),
        (None, Some(got)) if got == done.to_bytes => "done".to_owned(),
        (None, Some(got)) => format!("came to {}", bytes(got)),
        (None, None) => "under way".to_owned(),
    };
    let ResizeRecord { name, seconds_ago, from_bytes, to_bytes, reason, .. } = done;
    let (from, to) = (bytes(*from_bytes), bytes(*to_bytes));
    format!("  {seconds_ago:.0} s ago  {name} {from} -> {to}, {outcome} ({reason})")
}

fn in_words(step: &KsmStep) -> String {
    match step {
        KsmStep::BurstMerge => "merge now".to_owned(),
        KsmStep::Unmerge { key } => format!("stop merging {key}"),
        KsmStep::RefuseSwitches => "offer no more".to_owned(),
    }
}
