//! `ksmith demo` as text.

use ksmith_core::printable::{TextPage, TextTone};
use ksmith_core::units::Bytes;
use ksmith_lab::demo::{DemoMode, DemoReport};

use super::TextTable;

/// Returns the text for people.
pub fn text(report: &DemoReport) -> TextPage {
    let mut page = TextPage::new();
    write_text(report, &mut page);
    page
}

fn write_text(report: &DemoReport, page: &mut TextPage) {
    let percent = 100.0 * report.saved_bytes as f64 / report.mergeable_bytes.max(1) as f64;
    let seconds = |seconds: Option<f64>| seconds.map_or("not reached".to_owned(), |s| format!("{s:.1} s"));
    let pages = report.pages.in_words();
    let heading = match report.mode {
        DemoMode::Live => format!("measured on this kernel, on {pages}"),
        DemoMode::Simulated => format!("SIMULATED, on {pages}"),
    };
    let mut table = TextTable::new([heading.as_str(), ""]);
    let label = |text: &str| match report.mode {
        DemoMode::Live => text.to_owned(),
        DemoMode::Simulated => format!("SIMULATED {text}"),
    };
    table.row([label("mergeable, known beforehand"), Bytes::from(report.mergeable_bytes).to_string()]);
    table.row([label("saved"), format!("{} ({percent:.1} %)", Bytes::from(report.saved_bytes))]);
    table.row([label("time to 90 %"), seconds(report.seconds_to_90)]);
    table.row([label("the late guest's part, after its start"), seconds(report.late_seconds_to_90)]);
    table.row([label("ksmd's CPU"), format!("{:.2} s", report.ksmd_cpu_seconds)]);
    table.row([label("ksmith's own CPU"), format!("{:.2} s", report.ksmith_cpu_seconds)]);
    table.row([label("ksmith's own memory"), Bytes::from(report.ksmith_rss_bytes).to_string()]);
    page.line("");
    page.lines(table.lines(None));
    if let Some(missed) = &report.missed {
        page.toned(TextTone::Warning, label(missed));
    }
    if report.wrong_pages > 0 {
        let wrong = format!("{} pages of guests DO NOT HOLD WHAT THEY SHOULD", report.wrong_pages);
        page.toned(TextTone::Problem, wrong);
    }
    match report.restored {
        true => page.toned(TextTone::Good, "all settings restored"),
        false => page.toned(TextTone::Problem, "settings are NOT all restored: ksmith restore"),
    }
}
