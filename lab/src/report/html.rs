//! The HTML page around the plots.

use std::fmt::Write;

use super::{ReportError, colour, plots};
use crate::results::{CompetitorResults, LabResults, ScenarioResults};

/// The style of every report, which is that of the web page too.
const STYLE: &str = include_str!("../../../serve/assets/look.css");

/// The beginning of a report's page, up to its first heading.
pub fn head(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>\n{STYLE}</style></head><body class=\"report\">\n",
        escape(title)
    )
}

/// Renders the whole page.
///
/// # Errors
/// A plot can't be drawn.
pub fn page(results: &LabResults) -> Result<String, ReportError> {
    let mut page = head("ksmith lab");
    add(
        &mut page,
        format_args!(
            "<h1>ksmith lab</h1>\n<p>ksmith {} on Linux {}, {} CPUs; {} form, {} of each. In the table: medians, with the \
         least and the greatest where they differ.</p>\n",
            escape(results.ksmith),
            escape(&results.host.kernel),
            results.host.cpus,
            escape(results.form),
            if results.repeat == 1 { "one run".to_owned() } else { format!("{} runs", results.repeat) },
        ),
    );
    for scenario in &results.scenarios {
        section(&mut page, scenario)?;
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

fn section(page: &mut String, scenario: &ScenarioResults) -> Result<(), ReportError> {
    let attainable = scenario.attainable_bytes >> 20;
    let known =
        if scenario.is_attainable_known { "known from the guests' contents" } else { "the most that was saved" };
    add(
        page,
        format_args!(
            "<h2>{}</h2>\n<p>{}</p>\n<p class=\"note\">{:.0} s; {attainable} MiB can be saved at most ({known}).</p>\n",
            escape(&scenario.headline()),
            escape(&scenario.about),
            scenario.seconds,
        ),
    );
    table(page, scenario);
    counted_table(page, scenario);
    balance_table(page, scenario);
    add(page, format_args!("<h3>Saved memory over time (grey: what could be saved)</h3>\n"));
    legend(page, scenario);
    page.push_str(&plots::saved(scenario)?);
    add(page, format_args!("<h3>ksmd's CPU over time</h3>\n"));
    legend(page, scenario);
    page.push_str(&plots::cpu(scenario)?);
    add(page, format_args!("<h3>Cost and benefit: best is top left</h3>\n"));
    page.push_str(&plots::plane(scenario)?);
    Ok(())
}

/// A column: heading, key of the figure, and format of its value.
type Column = (&'static str, &'static str, fn(f64) -> String);

const COLUMNS: [Column; 11] = [
    ("saved, MiB", "saved_bytes", |bytes| format!("{:.0}", bytes / 1_048_576.0)),
    ("50 %, s", "seconds_to_50", |s| format!("{s:.1}")),
    ("90 %, s", "seconds_to_90", |s| format!("{s:.1}")),
    ("99 %, s", "seconds_to_99", |s| format!("{s:.1}")),
    ("GiB-s", "gib_seconds", |x| format!("{x:.1}")),
    ("ksmd CPU-s", "ksmd_cpu_seconds", |s| format!("{s:.2}")),
    ("controller CPU-s", "controller_cpu_seconds", |s| format!("{s:.2}")),
    ("its RSS, MiB", "controller_rss_bytes", |bytes| format!("{:.1}", bytes / 1_048_576.0)),
    ("late CPU, %", "late_percent", |x| format!("{x:.2}")),
    ("breaks", "breaks", |x| format!("{x:.0}")),
    ("guests hold, MiB", "held_bytes", |bytes| format!("{:.0}", bytes / 1_048_576.0)),
];

fn table(page: &mut String, scenario: &ScenarioResults) {
    page.push_str("<table class=\"measures\"><tr><th></th>");
    for (heading, ..) in COLUMNS {
        add(page, format_args!("<th>{heading}</th>"));
    }
    page.push_str("<th>GiB-s of reference</th><th>guests' work</th></tr>\n");
    for (place, competitor) in scenario.competitors.iter().enumerate() {
        add(page, format_args!("<tr><td>{}{}</td>", mark(place), escape(&competitor.name)));
        for column in COLUMNS {
            add(page, format_args!("<td>{}</td>", cell(competitor, column)));
        }
        let percent = |ratio: Option<f64>| ratio.map_or("".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio));
        let (share, work) = (percent(competitor.share_of_reference), percent(competitor.work_ratio));
        add(page, format_args!("<td>{share}</td><td>{work}</td></tr>\n"));
    }
    page.push_str("</table>\n");
    let wrong: f64 = scenario.competitors.iter().filter_map(|c| c.summary.get("wrong_pages")?.max).sum();
    if wrong > 0.0 {
        page.push_str("<p class=\"bad\">Pages of guests DID NOT HOLD WHAT THEY SHOULD: see wrong_pages.</p>\n");
    }
}

const BALANCE_COLUMNS: [Column; 8] = [
    ("overflow, s", "overflow_seconds", |s| format!("{s:.0}")),
    ("overflow, GiB-s", "overflow_gib_seconds", |x| format!("{x:.1}")),
    ("most overflow, MiB", "most_overflow_bytes", |bytes| format!("{:.0}", bytes / 1_048_576.0)),
    ("taken, MiB", "taken_bytes", |bytes| format!("{:.0}", bytes / 1_048_576.0)),
    ("guests lacked, GiB-s", "away_gib_seconds", |x| format!("{x:.1}")),
    ("pages read back", "refaults", |x| format!("{x:.0}")),
    ("guests waited, s", "waited_seconds", |s| format!("{s:.1}")),
    ("programs killed in guests", "guest_kills", |x| format!("{x:.0}")),
];

const COUNTED_COLUMNS: [Column; 2] = [
    ("counted, MiB", "counted_bytes", |bytes| format!("{:.0}", bytes / 1_048_576.0)),
    ("counted, GiB-s", "counted_gib_seconds", |x| format!("{x:.1}")),
];

/// The figures of balance, where guests were balanced.
fn balance_table(page: &mut String, scenario: &ScenarioResults) {
    if scenario.competitors.iter().any(CompetitorResults::has_balance) {
        page.push_str("<h3>Memory of the host and of its guests</h3>\n");
        further_table(page, scenario, &BALANCE_COLUMNS);
    }
}

/// The figures of KSM's counters, where guests are on huge pages.
fn counted_table(page: &mut String, scenario: &ScenarioResults) {
    if scenario.competitors.iter().any(CompetitorResults::is_counted_apart) {
        page.push_str("<h3>What KSM's counters say of it</h3>\n");
        further_table(page, scenario, &COUNTED_COLUMNS);
    }
}

fn further_table(page: &mut String, scenario: &ScenarioResults, columns: &[Column]) {
    page.push_str("<table class=\"measures\"><tr><th></th>");
    for (heading, ..) in columns {
        add(page, format_args!("<th>{heading}</th>"));
    }
    page.push_str("</tr>\n");
    for (place, competitor) in scenario.competitors.iter().enumerate() {
        add(page, format_args!("<tr><td>{}{}</td>", mark(place), escape(&competitor.name)));
        for &column in columns {
            add(page, format_args!("<td>{}</td>", cell(competitor, column)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

fn cell(competitor: &CompetitorResults, (_, key, text): Column) -> String {
    let Some(spread) = competitor.summary.get(key) else { return String::new() };
    let or_never = |value: Option<f64>| value.map_or("never".to_owned(), text);
    let (median, min, max) = (or_never(spread.median), or_never(spread.min), or_never(spread.max));
    if min == max { median } else { format!("{median}<br><span class=\"note\">{min} – {max}</span>") }
}

fn legend(page: &mut String, scenario: &ScenarioResults) {
    page.push_str("<p class=\"legend\">");
    for (place, competitor) in scenario.competitors.iter().enumerate() {
        add(page, format_args!("<span>{}{}</span> ", mark(place), escape(&competitor.name)));
    }
    page.push_str("</p>\n");
}

fn mark(place: usize) -> String {
    let (r, g, b) = colour(place);
    format!("<span class=\"mark\" style=\"background:rgb({r},{g},{b})\"></span>")
}

/// Text that means nothing to a browser.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Appends text. Writing to a string can't fail.
fn add(page: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = page.write_fmt(text);
}
