//! `ksmith fold` as text and as JSON.

use ksmith_core::printable::TextPage;
use ksmith_core::units::{Bytes, TimeSpan};
use ksmith_host::fold::{FoldTally, LeftBytes};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

use super::{ALWAYS, TableColumn, TextTable};

/// The outcome of `ksmith fold`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FoldCommandReport {
    /// True if nothing was split.
    pub dry_run: bool,
    /// The processes in the order in which they were named.
    pub processes: Vec<FoldedProcess>,
    /// The sum over all processes.
    pub total: FoldTally,
    /// Time that it took, in seconds.
    pub seconds: f64,
}

/// One process that was folded, or was to be.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FoldedProcess {
    /// PID of the process.
    pub pid: u32,
    /// Name of the guest or the program.
    pub name: String,
    /// The figures of its pass. Zero where it was not folded.
    #[serde(flatten)]
    pub tally: FoldTally,
    /// The reason why it was not folded, or not to its end.
    pub error: Option<String>,
}

/// Returns the text for people, on a terminal of this width.
pub fn text(report: &FoldCommandReport, width: Option<usize>) -> TextPage {
    let mut page = TextPage::new();
    let gain = if report.dry_run { "would free" } else { "freed" };
    let columns = [("guest", ALWAYS), ("pid", 60), (gain, ALWAYS), ("in huge pages", 50), ("split", 40)];
    let mut table =
        TextTable::of_columns(columns.map(|(heading, importance)| TableColumn::new(heading, importance)).into());
    let mut add = |name: &str, pid: String, tally: &FoldTally| {
        let (freed, split) = gained(tally, report.dry_run);
        let bytes = |bytes| Bytes::from(bytes).to_string();
        table.row([name.to_owned(), pid, bytes(freed), bytes(tally.looked_bytes), bytes(split)]);
    };
    for process in &report.processes {
        add(&process.name, process.pid.to_string(), &process.tally);
    }
    if report.processes.len() > 1 {
        add("all", String::new(), &report.total);
    }
    page.lines(table.lines(width));
    page.line("");
    let cpu = TimeSpan(Duration::from_secs_f64(report.total.cpu_seconds));
    let time = TimeSpan(Duration::from_secs_f64(report.seconds));
    page.line(format_args!("in {time}, for {cpu} of CPU"));
    page.lines(reasons(&report.total.left));
    for process in &report.processes {
        if let Some(why) = &process.error {
            page.line(format_args!("{} (pid {}): {why}", process.name, process.pid));
        }
    }
    page
}

/// Returns the bytes of zeros freed and of huge pages split, or those that would be.
fn gained(tally: &FoldTally, is_dry_run: bool) -> (u64, u64) {
    if is_dry_run { (tally.zero_bytes, tally.foldable_bytes) } else { (tally.freed_bytes, tally.split_bytes) }
}

/// Returns a sentence for each reason why memory was left as it was.
fn reasons(left: &LeftBytes) -> Vec<String> {
    let all = [
        (left.few_zeros, "huge pages with too few zeros (--least-zero)"),
        (left.shared, "huge pages with zeros that a child of fork shares"),
        (left.locked, "huge pages with zeros that mlock holds"),
        (left.pinned, "huge pages with zeros that are pinned for I/O, or were in use"),
        (left.small, "pages that are not huge (--collapse)"),
    ];
    let some = all.into_iter().filter(|(bytes, _)| *bytes > 0);
    some.map(|(bytes, what)| format!("left: {} in {what}", Bytes::from(bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::schemas::command_schema;

    const MIB: u64 = 1 << 20;

    fn report(dry_run: bool) -> FoldCommandReport {
        let left = LeftBytes { few_zeros: 6 * MIB, pinned: 2 * MIB, small: 3 * MIB, ..LeftBytes::default() };
        let tally = FoldTally {
            looked_bytes: 100 * MIB,
            foldable_bytes: 80 * MIB,
            zero_bytes: 40 * MIB,
            freed_bytes: 41 * MIB,
            split_bytes: 78 * MIB,
            collapsed_bytes: 0,
            left,
            cpu_seconds: 0.02,
        };
        let process = |pid, error| FoldedProcess { pid, name: "web".into(), tally, error };
        let processes = vec![process(812, None), process(813, Some("it has ended".to_owned()))];
        FoldCommandReport { dry_run, processes, total: tally, seconds: 0.021 }
    }

    #[test]
    fn what_came_free_and_what_was_left_is_told() {
        let text = text(&report(false), None).text().to_owned();
        for part in [
            "freed",
            "41.0 MiB",
            "78.0 MiB",
            "left: 6.00 MiB in huge pages with too few zeros",
            "(pid 813): it has ended",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("mlock"), "{text}");
    }

    #[test]
    fn a_dry_run_tells_what_would_come_free() {
        let text = text(&report(true), None).text().to_owned();
        assert!(text.contains("would free") && text.contains("40.0 MiB") && text.contains("80.0 MiB"), "{text}");
    }

    #[test]
    fn json_is_as_its_schema_says() {
        let json = serde_json::to_value(report(false)).unwrap();
        assert!(jsonschema::validator_for(&command_schema("fold").unwrap()).unwrap().is_valid(&json), "{json}");
    }
}
