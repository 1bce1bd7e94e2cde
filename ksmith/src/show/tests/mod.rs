//! Tests of the views, on made-up models.

mod answers;
mod balance;
mod guests;
mod hostile;
pub(crate) mod models;
mod overview;
mod schemas;
mod status;
mod trimmed;

use super::history::DecisionsShown;

#[test]
fn a_history_by_label_has_the_bytes_of_each_value() {
    let mut report = models::history();
    report.label = Some("role".to_owned());
    report.columns = ["time", "db", "web"].map(str::to_owned).to_vec();
    report.rows = vec![vec![serde_json::json!(1_795_467_600.0), serde_json::json!(0), serde_json::json!(3 << 20)]];
    let text = crate::show::history::text(&report, DecisionsShown::Counted, None).text().to_owned();
    assert!(text.starts_with("saved by guests with each role\n") && text.contains("3.00 MiB"), "{text}");
    assert!(crate::show::plot::plot(&report, 60).text().contains("3.00 MiB"));
    report.guest = report.guests.pop();
    report.guest.as_mut().unwrap().labels.insert("role".to_owned(), "web".to_owned());
    assert!(
        crate::show::history::text(&report, DecisionsShown::Counted, None)
            .text()
            .contains("(qemu, 42:1, role web)")
    );
}

#[test]
fn the_arithmetic_behind_a_decision_is_shown_where_it_is_asked_for() {
    let report = models::history();
    let [short, long] = [DecisionsShown::Reasons, DecisionsShown::Details]
        .map(|shown| crate::show::history::text(&report, shown, None));
    assert!(short.text().contains("burst: a new guest (run 0 -> 1)\n"), "{short}");
    assert!(long.text().contains("burst: a new guest (run 0 -> 1) [every page, up to 20 % of a CPU]\n"), "{long}");
}

#[test]
fn figures_of_the_history_are_drawn_with_their_axes() {
    let mut report = models::history();
    report.columns = vec!["time".to_owned(), "saved_bytes".to_owned()];
    report.rows = (0..100_u64)
        .map(|n| vec![serde_json::json!(1_795_467_600 + n * 72), serde_json::json!((n.min(50)) << 30)])
        .collect();
    let text = crate::show::plot::plot(&report, 60).text().to_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "saved");
    assert!(text.contains("50.0 GiB") && text.contains("25.0 GiB") && text.contains("0 B"), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 60), "{text}");
    // The first half rises from the axis, and the second is flat at the top.
    let drawn = |line: &str| line.chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count();
    assert!(drawn(lines[1]) > 20 && (1..10).contains(&drawn(lines[8])), "{text}");
    report.rows.clear();
    assert_eq!(crate::show::plot::plot(&report, 60).text(), "nothing was recorded in that time\n");
}

#[test]
fn a_history_has_headings_in_words_and_decisions_on_demand_and_breaks_lines_between_words() {
    let mut report = models::history();
    report.columns = ["time", "saved_bytes", "ksmd_cpu_percent"].map(str::to_owned).to_vec();
    report.rows = vec![vec![serde_json::json!(1_795_467_600), serde_json::json!(3 << 20), serde_json::json!(1.5)]];
    report.decisions[0].reason = "a sentence of many words that no terminal has room for in one line ".repeat(3);
    let text = |shown| crate::show::history::text(&report, shown, Some(80)).text().to_owned();
    let (short, long) = (text(DecisionsShown::Counted), text(DecisionsShown::Reasons));
    let heading = short.lines().next().unwrap();
    assert!(heading.starts_with("time ") && heading.ends_with("    saved  ksmd CPU %"), "{short}");
    assert!(short.contains("events in that time: --decisions shows them\n"), "{short}");
    assert!(!short.contains("sentence") && long.contains("a sentence of many words"), "{long}");
    assert!(long.lines().all(|line| crate::show::width(line) <= 80), "{long}");
    let words = |text: &str| text.split_whitespace().filter(|word| *word == "sentence").count();
    assert_eq!(words(&long), 3, "{long}");
}
