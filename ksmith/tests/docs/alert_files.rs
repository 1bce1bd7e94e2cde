//! What follows from the table of alerts: the rules of Prometheus, their tests, the runbooks, and two tables of the page.

use std::fmt::Write;
use std::fs;

use ksmith_core::alarm::{ALERTS, AlertRow, FiringAlert};

use crate::generated::compare;
use crate::page;

const RULES: &str = "packaging/prometheus/ksmith.rules.yml";
const RULE_TESTS: &str = "packaging/prometheus/ksmith.rules.test.yml";
const FAULTS: &str = "packaging/tests/alert-faults.json";
const PAGE: &str = "docs/how-to/alerts.md";
const RUNBOOKS: &str = "docs/how-to/runbooks";

/// The width of lines of text.
const WIDTH: usize = 120;

const RULES_HEAD: &str = "# Alerts over the metrics of `ksmith serve`, for /etc/prometheus/rules. Where the scrape job is not called \"ksmith\", change\n\
    # KsmithDown. Each alert has a page under docs/how-to/runbooks/. `make alerts-test` fires and resolves all of them. This file is\n\
    # generated from core/src/alarm/table.rs: `KSMITH_WRITE=1 cargo test -p ksmith --test docs`.\n\
    groups:\n  - name: ksmith\n    rules:\n";

const TESTS_HEAD: &str = "# `promtool test rules ksmith.rules.test.yml`: each alert is quiet before its time, fires, and resolves. This file is generated\n\
    # from core/src/alarm/table.rs: `KSMITH_WRITE=1 cargo test -p ksmith --test docs`.\n\
    rule_files:\n  - ksmith.rules.yml\nevaluation_interval: 1m\ntests:\n";

fn runbook_url(row: &AlertRow) -> String {
    format!("https://github.com/ksmith/ksmith/blob/main/{RUNBOOKS}/{}.md", row.name)
}

/// Wraps a paragraph into lines with an indent.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent.len() + line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.iter().map(|line| format!("{indent}{line}\n")).collect()
}

/// A value of YAML that is folded into one line.
fn folded(key: &str, text: &str, indent: &str) -> String {
    format!("{indent}{key}: >-\n{}", wrapped(text, &format!("{indent}  ")))
}

/// A duration with its unit, as Prometheus (`5m`) or a person (`5 min`) writes it.
fn duration(minutes: u32, [hour, minute]: [&str; 2]) -> String {
    if minutes > 0 && minutes.is_multiple_of(60) {
        format!("{}{hour}", minutes / 60)
    } else {
        format!("{minutes}{minute}")
    }
}

fn rule(row: &AlertRow) -> String {
    let mut text = format!("      - alert: {}\n", row.name);
    if row.condition.contains('\n') {
        text.push_str("        expr: >-\n");
        row.condition.lines().for_each(|line| writeln!(text, "          {line}").unwrap());
    } else {
        writeln!(text, "        expr: {}", row.condition).unwrap();
    }
    if row.minutes > 0 {
        writeln!(text, "        for: {}", duration(row.minutes, ["h", "m"])).unwrap();
    }
    writeln!(text, "        labels:\n          severity: {}\n        annotations:", row.severity.word()).unwrap();
    writeln!(text, "          summary: {}", row.summary).unwrap();
    text.push_str(&folded("description", row.description, "          "));
    writeln!(text, "          runbook_url: {}", runbook_url(row)).unwrap();
    text
}

/// Fills in a template of Prometheus: each label with its value, and `$value` with its text.
fn filled(template: &str, alert: &FiringAlert) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (inner, rest) = part.split_once("}}").expect("a template is closed");
        let label = inner.trim().strip_prefix("$labels.");
        let value = match label {
            Some(label) => {
                alert.labels.iter().find(|(name, _)| *name == label).expect("the alert has its labels").1
            }
            None => alert.value,
        };
        text.push_str(value);
        text.push_str(rest);
    }
    text
}

fn rule_test(row: &AlertRow) -> String {
    let test = &row.rule_test;
    let mut text = format!("  - name: {}\n    interval: 1m\n    input_series:\n", test.name);
    for (series, values) in test.series {
        writeln!(text, "      - series: {series}\n        values: {values}").unwrap();
    }
    writeln!(text, "    alert_rule_test:\n      - {{ eval_time: {}m, alertname: {} }}", test.quiet, row.name)
        .unwrap();
    writeln!(text, "      - eval_time: {}m\n        alertname: {}\n        exp_alerts:", test.firing, row.name)
        .unwrap();
    for alert in test.alerts {
        let labels: String = alert.labels.iter().map(|(name, value)| format!(", {name}: \"{value}\"")).collect();
        writeln!(text, "          - exp_labels: {{ severity: {}, job: ksmith{labels} }}", row.severity.word())
            .unwrap();
        writeln!(text, "            exp_annotations:\n              summary: {}", filled(row.summary, alert))
            .unwrap();
        text.push_str(&folded("description", &filled(row.description, alert), "              "));
        writeln!(text, "              runbook_url: {}", runbook_url(row)).unwrap();
    }
    writeln!(text, "      - {{ eval_time: {}m, alertname: {} }}", test.resolved, row.name).unwrap();
    text
}

fn runbook(row: &AlertRow) -> String {
    let book = &row.runbook;
    let mut text = format!(
        "# {}\n\n{} Severity: {}.\n\n## Meaning\n\n{}\n## How to see it\n\n```sh,not-run=needs-a-daemon\n{}\n```\n",
        row.name,
        book.headline,
        row.severity.word(),
        wrapped(book.meaning, ""),
        book.commands
    );
    if let Some(elsewhere) = book.elsewhere {
        write!(text, "\n{}", wrapped(elsewhere, "")).unwrap();
    }
    text.push_str("\n## What to do\n\n");
    for (index, step) in book.steps.iter().enumerate() {
        let lines = wrapped(step, "   ");
        writeln!(text, "{}. {}", index + 1, lines.trim()).unwrap();
    }
    text
}

fn alarm_table() -> String {
    let rows = ALERTS
        .iter()
        .filter_map(|row| row.alarm.as_ref())
        .map(|alarm| format!("| `{}` | {} | `{}` |\n", alarm.name, alarm.condition, alarm.message_id));
    format!("| alarm | begins | `MESSAGE_ID` |\n|---|---|---|\n{}", rows.collect::<String>())
}

fn alert_table() -> String {
    let rows = ALERTS.iter().map(|row| {
        let after = if row.minutes == 0 { "-".to_owned() } else { duration(row.minutes, [" h", " min"]) };
        format!("| [{0}](runbooks/{0}.md) | {after} | {1} |\n", row.name, row.severity.word())
    });
    format!("| alert | after | severity |\n|---|---|---|\n{}", rows.collect::<String>())
}

/// Puts a table in the place of the one with the same head.
fn with_table(page: &str, table: &str) -> String {
    let head = table.lines().next().unwrap();
    let start = page.find(head).unwrap_or_else(|| panic!("{PAGE} has no table {head}"));
    let end = page[start..].find("\n\n").map_or(page.len(), |end| start + end + 1);
    format!("{}{table}{}", &page[..start], &page[end..])
}

#[test]
fn the_rules_of_prometheus_and_their_tests_are_fresh() {
    let joined = |text: fn(&AlertRow) -> String| ALERTS.iter().map(text).collect::<Vec<_>>().join("\n");
    compare(RULES, &format!("{RULES_HEAD}{}", joined(rule)));
    compare(RULE_TESTS, &format!("{TESTS_HEAD}{}", joined(rule_test)));
}

#[test]
fn the_faults_that_fire_alerts_are_fresh() {
    let faults = ALERTS.iter().filter_map(|row| Some((row.name, row.fault.as_ref()?))).map(|(name, fault)| {
        format!("  \"{name}\": [\"{}\", \"{}\", {}, {}]", fault.host, fault.key, fault.bad, fault.good)
    });
    compare(FAULTS, &format!("{{\n{}\n}}\n", faults.collect::<Vec<_>>().join(",\n")));
}

#[test]
fn the_runbooks_and_the_tables_of_alerts_are_fresh() {
    for row in ALERTS {
        compare(&format!("{RUNBOOKS}/{}.md", row.name), &runbook(row));
    }
    let names: Vec<String> = ALERTS.iter().map(|row| format!("{}.md", row.name)).collect();
    for entry in fs::read_dir(page::workspace().join(RUNBOOKS)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&name), "{RUNBOOKS}/{name} is of no alert");
    }
    let text = fs::read_to_string(page::workspace().join(PAGE)).unwrap();
    compare(PAGE, &with_table(&with_table(&text, &alarm_table()), &alert_table()));
}

#[test]
fn a_template_is_filled_in() {
    let alert = FiringAlert { labels: &[("guest", "web")], value: "1ki" };
    assert_eq!(filled("{{ $labels.guest }} needs {{ $value | humanize1024 }}B.", &alert), "web needs 1kiB.");
}
