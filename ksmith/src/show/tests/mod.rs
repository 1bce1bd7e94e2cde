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

#[test]
fn a_history_by_label_has_the_bytes_of_each_value() {
    let mut report = models::history();
    report.label = Some("role".to_owned());
    report.columns = ["time", "db", "web"].map(str::to_owned).to_vec();
    report.rows = vec![vec![serde_json::json!(1_795_467_600.0), serde_json::json!(0), serde_json::json!(3 << 20)]];
    let text = crate::show::history::text(&report, None).text().to_owned();
    assert!(text.starts_with("saved by guests with each role\n") && text.contains("3.00 MiB"), "{text}");
    assert!(crate::show::plot::plot(&report, 60).text().contains("3.00 MiB"));
    report.guest = report.guests.pop();
    report.guest.as_mut().unwrap().labels.insert("role".to_owned(), "web".to_owned());
    assert!(crate::show::history::text(&report, None).text().contains("(qemu, 42:1, role web)"));
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
    assert_eq!(lines[0], "saved_bytes");
    assert!(text.contains("50.0 GiB") && text.contains("25.0 GiB") && text.contains("0 B"), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 60), "{text}");
    // The first half rises from the axis, and the second is flat at the top.
    let drawn = |line: &str| line.chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count();
    assert!(drawn(lines[1]) > 20 && (1..10).contains(&drawn(lines[8])), "{text}");
    report.rows.clear();
    assert_eq!(crate::show::plot::plot(&report, 60).text(), "nothing was recorded in that time\n");
}
