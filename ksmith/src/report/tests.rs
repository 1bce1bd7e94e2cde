use ksmith_record::{HistoryReport, LabelSeries};
use serde_json::json;

use super::*;

const GIB: u64 = 1 << 30;

fn history() -> HistoryReport {
    let row = |n: u64| {
        json!([
            1_795_467_600 + n * 10,
            n.min(50) * GIB / 10,
            0,
            n.min(50) * GIB / 10,
            4 * GIB,
            if n < 50 { 90.0 } else { 1.0 },
            0.0,
            n,
            GIB,
            2 * GIB,
            0.05
        ])
    };
    let made = |time: u64, state: &str| json!({"time": 1_795_467_600 + time, "policy": "profit", "state": state, "reason": "a <reason> | with marks", "settings": ""});
    serde_json::from_value(json!({
        "since": 1_795_467_600.0, "until": 1_795_469_600.0, "resolution_seconds": 10.0, "guest": null,
        "columns": ["time", "saved_bytes", "profit_bytes", "exposure_bytes", "headroom_bytes", "ksmd_cpu_percent",
            "memory_pressure_percent", "daemon_cpu_seconds", "huge_bytes", "split_bytes", "split_cost_cpus"],
        "recorded_seconds": (0..200).map(|n| if n == 0 { 0.0 } else { 10.0 }).collect::<Vec<_>>(),
        "rows": (0..200).map(row).collect::<Vec<_>>(),
        "decisions": [made(5, "burst"), made(600, "parked"), made(1000, "probe"), made(1900, "parked")],
        "events": [], "guests": [],
    }))
    .unwrap()
}

fn report(history: &HistoryReport) -> ReportDocument {
    document(&ReportInputs { host: "web<1>", kernel: "6.18.0", history, savers: &[], labels: &[], findings: &[] })
        .unwrap()
}

#[test]
fn the_report_has_the_sums_and_tells_decisions_that_paid_from_those_that_did_not() {
    let document = report(&history());
    let table = |heading: &str| {
        let at = document.parts.iter().position(|part| *part == DocumentPart::Heading(heading.to_owned())).unwrap();
        document.parts[at..].iter().find_map(|part| match part {
            DocumentPart::Table(_, rows) => Some(rows.clone()),
            _ => None,
        })
    };
    let paid = table("Decisions that paid").unwrap();
    assert_eq!((paid.len(), paid[0][1].as_str(), paid[0][3].as_str()), (1, "burst", "5.00 GiB"));
    let vain = table("Decisions that did not").unwrap();
    let states: Vec<&str> = vain.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(states, ["probe", "parked", "parked"], "{vain:?}");
    let text = document.markdown();
    assert!(text.contains("| saved at most | 5.00 GiB |"), "{text}");
    assert!(text.contains("| split by merging when last read | 2.00 GiB |"), "{text}");
    assert!(text.contains("| CPU time lost by splits, at most | 99.5 s |"), "{text}");
    // Exposure is over 4 GiB from row 41 on.
    assert!(text.contains("For 26 min 30 s the host could not have borne it"), "{text}");
}

#[test]
fn guests_are_drawn_and_summed_by_their_role() {
    let history = history();
    let series = |value: &str, gib: f64| LabelSeries {
        label: "role".to_owned(),
        value: value.to_owned(),
        points: (0..10).map(|n| (history.since + f64::from(n) * 200.0, gib * GIB as f64)).collect(),
    };
    let labels = [series("<db>", 1.0), series("front", 3.0), series("queue", 2.0)];
    let inputs = ReportInputs {
        host: "h",
        kernel: "6.18.0",
        history: &history,
        savers: &[],
        labels: &labels,
        findings: &[],
    };
    let document = document(&inputs).unwrap();
    let at = document.parts.iter().position(|part| *part == DocumentPart::Heading("By role".to_owned())).unwrap();
    let [DocumentPart::Picture(caption, svg), DocumentPart::Table(headings, rows)] =
        &document.parts[at + 1..at + 3]
    else {
        panic!("{:?}", document.parts);
    };
    assert_eq!((caption.as_str(), headings[0].as_str()), ("Memory saved by role", "role"));
    let values: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(values, ["front", "queue", "<db>"], "the one that saves most first");
    assert_eq!(rows[0][1..], ["3.00 GiB", "3.00 GiB"]);
    assert!(svg.contains("front") && svg.contains("&lt;db&gt;") && !svg.contains("<db>"), "{svg}");
    assert!(svg.matches("<polyline").count() >= 3, "a line for each role: {svg}");
}

#[test]
fn names_and_reasons_mean_nothing_to_a_browser_nor_to_markdown() {
    let document = report(&history());
    let html = document.html();
    assert!(html.contains("web&lt;1&gt;") && !html.contains("<reason>"), "{html}");
    assert!(
        !html.contains("http://") || html.matches("http://").count() == html.matches("http://www.w3.org").count()
    );
    let text = document.markdown();
    assert!(text.contains("web\\<1\\>") && text.contains("a \\<reason\\> \\| with marks"), "{text}");
}

#[test]
fn an_empty_history_is_a_report_that_says_so() {
    let mut empty = history();
    empty.rows.clear();
    empty.decisions.clear();
    let text = report(&empty).markdown();
    assert!(text.contains("Nothing was recorded in that time."), "{text}");
}

#[test]
fn prose_is_aligned_left_and_wraps_and_figures_are_aligned_right() {
    let html = report(&history()).html();
    let reason = html.find("a &lt;reason&gt;").unwrap();
    assert!(html[..reason].ends_with("<td>"), "{html}");
    assert!(html.contains("<td class=\"number\">5.00 GiB</td>"), "{html}");
    assert!(html.contains("<th class=\"number\">gained</th>") && html.contains("<th>reason</th>"), "{html}");
    let css = &html[html.find("<style>").unwrap()..html.find("</style>").unwrap()];
    assert!(css.contains("th, td {") && css.contains("text-align: left"), "{css}");
    assert!(!html.contains("<td style") && html.contains("<body class=\"report\">"));
}

/// Returns the texts of a picture.
fn texts(svg: &str) -> Vec<&str> {
    let starts = svg.split("<text").skip(1);
    starts.filter_map(|part| Some(part.split_once('>')?.1.split_once("</text>")?.0.trim())).collect()
}

#[test]
fn the_axes_are_cut_to_what_was_recorded_and_a_small_host_has_digits() {
    let mut history = history();
    // A day was asked for, and six minutes were recorded on a host that saves 12 MiB.
    history.since -= 86_400.0;
    history.rows.truncate(36);
    history.until = 1_795_467_600.0 + 360.0;
    for row in &mut history.rows {
        row[1] = json!(12 << 20);
        row[5] = json!(0.02);
    }
    let svg = saved_and_spent(&history, &[TimeMark { time: history.since }]).unwrap();
    let texts = texts(&svg);
    assert!(texts.contains(&"saved, MiB"), "{texts:?}");
    let first = ksmith_record::times::local(1_795_467_600_000);
    let minute = first.chars().skip(11).take(5).collect::<String>();
    let (hour, _) = minute.split_once(':').unwrap();
    let clocks: Vec<&&str> = texts.iter().filter(|text| text.matches(':').count() == 2).collect();
    assert!(clocks.len() > 2 && clocks.iter().all(|clock| clock.starts_with(hour)), "within an hour: {texts:?}");
    assert!(texts.contains(&"10.0") || texts.contains(&"10"), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("0.0") && text.trim_end_matches('0') != "0."), "{texts:?}");
    // The mark stands before the first record, and so outside.
    assert!(!svg.contains("#969696"), "{svg}");
    let mut document = report(&history).markdown();
    document.retain(|c| c != '\\');
    assert!(document.contains("| saved over time | 0.0011 GiB-hours |"), "{document}");
}
