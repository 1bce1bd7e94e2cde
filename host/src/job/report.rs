//! The report of a job, as text and as JSON for batch systems.

use std::path::Path;
use std::time::Duration;

use ksmith_core::job::OptInMethod;
use ksmith_core::printable::TextPage;
use ksmith_core::units::{Bytes, TimeSpan};
use serde::Serialize;

use super::fold::JobFoldReport;
use super::wait::ProgramEnd;
use super::watch::WatchOutcome;

/// The report of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobReport {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The way in which the job opted in: `prctl`, `preload` or `none`.
    pub method: OptInMethod,
    /// Exit code of the program, or 128 + the number of the signal that ended it.
    pub exit_code: u8,
    /// The signal that ended the program.
    pub signal: Option<u8>,
    /// Seconds from start to end.
    pub wall_seconds: f64,
    /// Peak of PSS and swap of all processes together.
    pub peak_pss_bytes: u64,
    /// Average of PSS and swap of all processes together.
    pub mean_pss_bytes: u64,
    /// Bytes saved by KSM, on the average of `wall_seconds`.
    pub mean_saved_bytes: u64,
    /// Peak of the bytes saved by KSM.
    pub peak_saved_bytes: u64,
    /// Bytes of zero pages that folding freed (`--fold`), besides KSM's savings; null without.
    pub folded_bytes: Option<u64>,
    /// The result of folding; null without `--fold`.
    pub fold: Option<JobFoldReport>,
    /// Merged pages of the whole host that were copied on a write during the job. The kernel does not count them by
    /// process. Null if the kernel does not count them at all.
    pub cow_breaks: Option<u64>,
    /// Cost of one such copy on this host, measured before the start.
    pub copy_nanoseconds: f64,
    /// `cow_breaks * copy_nanoseconds`, in seconds.
    pub copy_seconds: f64,
    /// Number of scans that the job asked for.
    pub scans: u64,
    /// CPU time of ksmd during the job, for all processes of the host; null if ksmd is not visible.
    pub ksmd_cpu_seconds: Option<f64>,
    /// Processes with unreadable memory figures, which are missing in the sums above.
    pub hidden_processes: usize,
    /// The result in a sentence.
    pub verdict: String,
    /// Report of each process.
    pub processes: Vec<ProcessReport>,
}

/// One process of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessReport {
    /// PID of the process.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
    /// Peak of its PSS and swap.
    pub peak_pss_bytes: u64,
    /// Bytes that KSM saved in it, on the average of the job's `wall_seconds`. They add up to those of the job.
    pub mean_saved_bytes: u64,
    /// Peak of the bytes saved by KSM.
    pub peak_saved_bytes: u64,
    /// True if all its memory was mergeable when last read. Null if the kernel does not show it or a library marks
    /// ranges.
    pub opted_in: Option<bool>,
}

impl JobReport {
    /// Creates the report.
    pub fn new(
        command: Vec<String>,
        method: OptInMethod,
        ended: ProgramEnd,
        outcome: &WatchOutcome,
        copy_nanoseconds: f64,
    ) -> Self {
        let totals = &outcome.totals;
        let copy_seconds = outcome.cow_breaks.unwrap_or(0) as f64 * copy_nanoseconds / 1e9;
        let process = |process: &ksmith_core::job::ProcessTotals| ProcessReport {
            pid: process.id.pid,
            name: process.name.to_string(),
            peak_pss_bytes: process.peak_held_bytes,
            mean_saved_bytes: process.mean_saved_bytes,
            peak_saved_bytes: process.peak_saved_bytes,
            opted_in: process.merge_any.filter(|_| method == OptInMethod::Prctl),
        };
        let mut report = Self {
            command,
            method,
            exit_code: ended.code(),
            signal: if let ProgramEnd::Signal(signal) = ended { Some(signal) } else { None },
            wall_seconds: outcome.wall.as_secs_f64(),
            peak_pss_bytes: totals.peak_held_bytes,
            mean_pss_bytes: totals.mean_held_bytes,
            mean_saved_bytes: totals.mean_saved_bytes,
            peak_saved_bytes: totals.peak_saved_bytes,
            folded_bytes: None,
            fold: None,
            cow_breaks: outcome.cow_breaks,
            copy_nanoseconds,
            copy_seconds,
            scans: 0,
            ksmd_cpu_seconds: None,
            hidden_processes: outcome.hidden,
            verdict: String::new(),
            processes: totals.processes.iter().map(process).collect(),
        };
        report.verdict = report.judge();
        report
    }

    /// Adds the result of folding.
    pub fn add_fold(&mut self, fold: JobFoldReport) {
        self.folded_bytes = Some(fold.folded_bytes);
        self.fold = Some(fold);
        self.verdict = self.judge();
    }

    fn judge(&self) -> String {
        let would_be = self.mean_pss_bytes.saturating_add(self.mean_saved_bytes);
        let share = if would_be > 0 { self.mean_saved_bytes as f64 * 100.0 / would_be as f64 } else { 0.0 };
        let loss = if self.wall_seconds > 0.0 { self.copy_seconds * 100.0 / self.wall_seconds } else { 0.0 };
        match () {
            () if self.processes.is_empty() => "the job ended before its first sample".to_owned(),
            () if self.peak_saved_bytes == 0 && self.folded_bytes.is_some_and(|folded| folded > 0) => {
                "nothing was merged; zero pages were folded".to_owned()
            }
            () if self.peak_saved_bytes == 0 => {
                "nothing was merged: its pages differ, or ksmd did not scan them while it ran".to_owned()
            }
            () if share < 1.0 => format!(
                "not worth it: {share:.1} % of its memory was saved, about {loss:.1} % of its time went into copies"
            ),
            () if loss >= 5.0 && loss > share => format!(
                "expensive: {share:.0} % of its memory was saved, but about {loss:.0} % of its time went into copying \
                pages that it writes to"
            ),
            () => format!(
                "worth it: {share:.0} % of its memory was saved, for about {loss:.1} % of its time in copies"
            ),
        }
    }

    /// Writes the report as JSON.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, text)
    }
}

/// The most processes in the text. The JSON has all.
const SHOWN: usize = 8;

impl JobReport {
    /// Returns the report as text.
    pub fn page(&self) -> TextPage {
        let mut page = TextPage::new();
        let bytes = |bytes: u64| Bytes::from(bytes);
        let wall = TimeSpan(Duration::from_secs_f64(self.wall_seconds));
        page.line(format_args!(
            "held {} at peak, {} on average; KSM saved {} at peak, {} on average, in {wall}",
            bytes(self.peak_pss_bytes),
            bytes(self.mean_pss_bytes),
            bytes(self.peak_saved_bytes),
            bytes(self.mean_saved_bytes),
        ));
        let mut processes: Vec<&ProcessReport> = self.processes.iter().collect();
        processes.sort_by_key(|process| std::cmp::Reverse(process.peak_pss_bytes));
        for process in processes.iter().take(SHOWN).filter(|_| processes.len() > 1) {
            page.line(format_args!(
                "  {:>7} {:<16} peak {:>9}, saved {:>9} at peak, {:>9} on average{}",
                process.pid,
                process.name,
                bytes(process.peak_pss_bytes).to_string(),
                bytes(process.peak_saved_bytes).to_string(),
                bytes(process.mean_saved_bytes).to_string(),
                if process.opted_in == Some(false) { "; not mergeable" } else { "" },
            ));
        }
        if processes.len() > SHOWN {
            page.line(format_args!("  and {} more", processes.len() - SHOWN));
        }
        if let Some(breaks) = self.cow_breaks {
            page.line(format_args!(
                "{breaks} merged pages were written to on this host meanwhile: {} of copying",
                TimeSpan(Duration::from_secs_f64(self.copy_seconds))
            ));
        }
        if let Some(fold) = &self.fold {
            let cpu = TimeSpan(Duration::from_secs_f64(fold.cpu_seconds));
            page.line(format_args!(
                "folded {} of zero pages in {} over {}, for {cpu} of CPU",
                bytes(fold.folded_bytes),
                counted(fold.passes, "pass", "passes"),
                counted(fold.processes, "process", "processes")
            ));
            if let Some(why) = &fold.refusal {
                page.line(format_args!("a pass folded nothing: {why}"));
            } else if fold.processes == 0 {
                page.line("no process was folded: all ended before their first pass");
            }
        }
        page.line(&self.verdict);
        page
    }
}

fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use ksmith_core::job::{JobTotals, ProcessTotals};
    use ksmith_core::sample::ProcessId;

    use super::*;

    fn outcome(saved: u64, breaks: u64) -> WatchOutcome {
        let process = ProcessTotals {
            id: ProcessId { pid: 7, start_ticks: 1 },
            name: "rank".into(),
            peak_held_bytes: 900 << 20,
            mean_saved_bytes: saved,
            peak_saved_bytes: saved,
            merge_any: Some(true),
            has_opted_in: true,
        };
        let totals = JobTotals {
            peak_held_bytes: 900 << 20,
            mean_held_bytes: 900 << 20,
            peak_saved_bytes: saved,
            mean_saved_bytes: saved,
            processes: vec![process],
        };
        WatchOutcome { totals, wall: Duration::from_secs(10), cow_breaks: Some(breaks), hidden: 0, looks: 9 }
    }

    fn report(saved: u64, breaks: u64) -> JobReport {
        JobReport::new(
            vec!["rank".into()],
            OptInMethod::Prctl,
            ProgramEnd::Code(3),
            &outcome(saved, breaks),
            1000.0,
        )
    }

    #[test]
    fn the_verdict_weighs_memory_against_time() {
        assert!(report(100 << 20, 1000).verdict.starts_with("worth it: 10 % of its memory"));
        assert!(report(100 << 20, 2_000_000).verdict.starts_with("expensive: "));
        assert!(report(1 << 20, 0).verdict.starts_with("not worth it: "));
        assert!(report(0, 0).verdict.starts_with("nothing was merged"));
    }

    #[test]
    fn what_was_folded_is_told_apart() {
        let mut folded = report(0, 0);
        assert!(serde_json::to_value(&folded).unwrap()["folded_bytes"].is_null());
        let fold = JobFoldReport { folded_bytes: 64 << 20, passes: 2, processes: 1, ..JobFoldReport::default() };
        folded.add_fold(fold);
        let text = folded.page().text().to_owned();
        assert!(text.contains("folded 64.0 MiB of zero pages in 2 passes over 1 process, for"), "{text}");
        assert_eq!(folded.verdict, "nothing was merged; zero pages were folded");
        assert_eq!(serde_json::to_value(&folded).unwrap()["folded_bytes"], 64 << 20);
    }

    #[test]
    fn a_job_in_which_no_process_is_folded_is_told_so() {
        let mut idle = report(0, 0);
        idle.add_fold(JobFoldReport::default());
        assert!(idle.page().text().contains("no process was folded"));
        let mut refused = report(0, 0);
        refused.add_fold(JobFoldReport { refusal: Some("not permitted".into()), ..JobFoldReport::default() });
        let text = refused.page().text().to_owned();
        assert!(
            text.contains("a pass folded nothing: not permitted") && !text.contains("no process was folded"),
            "{text}"
        );
    }
}
