//! The command `ksmith fold`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use ksmith_core::sample::ProcessSample;
use ksmith_host::fold::{FoldError, FoldSettings, FoldTally, FoldTarget, fold_hindrance};
use ksmith_host::memory::error::UnreadableProcess;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;

use super::{CommandFailure, GlobalArgs, amounts, naming, patience, print};
use crate::exit::{self, NamedExitCode};
use crate::show::fold::{self, FoldCommandReport, FoldedProcess};

/// Free zero pages in huge pages, from outside and without ksmd.
///
/// It splits those huge pages of guests and programs that hold enough zeros: the kernel then frees the zero pages by
/// itself. They still read as zero, and cost memory only when written to again. The program needs no preparation, and
/// none of its writes is lost. It needs Linux 6.12, and root or CAP_SYS_NICE and CAP_SYS_PTRACE. Memory in small pages
/// is left alone without --collapse.
#[derive(Debug, Args)]
pub struct FoldArgs {
    /// Guests and processes to fold, by name, UUID, PID, kind:name or VMID
    #[arg(value_name = "GUEST", required_unless_present = "all")]
    guests: Vec<String>,
    /// Fold every guest, and every process with mergeable memory
    #[arg(long)]
    all: bool,
    /// First also collapse small pages with enough zeros into huge pages: some 2 ms of CPU for each
    #[arg(long, conflicts_with = "dry_run")]
    collapse: bool,
    /// Say what would be freed, and split nothing
    #[arg(long)]
    dry_run: bool,
    /// Split only huge pages of which at least this part is zero
    #[arg(long, value_name = "PERCENT", default_value = "12.5", value_parser = amounts::per_cent)]
    least_zero: f64,
    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
}

impl FoldArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = global.live_root()?;
        if let Some(why) = fold_hindrance(&root).filter(|_| !self.dry_run) {
            return Err(CommandFailure::impossible(why.to_string()).into());
        }
        patience::watch();
        let pids = self.pids(global, &root)?;
        let begin = Instant::now();
        let outcomes = self.fold_all(&pids);
        let mut report = FoldCommandReport {
            dry_run: self.dry_run,
            processes: Vec::new(),
            total: FoldTally::default(),
            seconds: begin.elapsed().as_secs_f64(),
        };
        let errors: Vec<&FoldError> = outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().err()).collect();
        if let Some(why) = errors.first().filter(|_| errors.len() == outcomes.len()) {
            return Err(CommandFailure::with_code(code_of(why), sentence(&pids, why)).into());
        }
        for (pid, (name, outcome)) in pids.iter().zip(outcomes) {
            let (tally, error) = match outcome {
                Ok(tally) => (tally, None),
                Err(why) => (FoldTally::default(), Some(why.to_string())),
            };
            report.total.add(&tally);
            report.processes.push(FoldedProcess { pid: *pid, name, tally, error });
        }
        print::answer(global.json, || &report, || fold::text(&report, print::width()))
    }

    /// Returns the PIDs of all that is named, each once.
    fn pids(&self, global: &GlobalArgs, root: &Root) -> anyhow::Result<Vec<u32>> {
        let mut pids = Vec::new();
        for wanted in &self.guests {
            match wanted.parse() {
                // One that has ended is named in the report, and the others are folded.
                Ok(pid) => pids.push(pid),
                Err(_) => pids.extend(naming::processes(root, &global.load_config()?, wanted)?),
            }
        }
        if self.all {
            let sample = HostObserver::new(root.clone()).sample();
            pids.extend(sample.processes.iter().map(|process: &ProcessSample| process.id.pid));
        }
        pids.sort_unstable();
        pids.dedup();
        if pids.is_empty() {
            return Err(CommandFailure::impossible(
                "no guest runs here and no process has mergeable memory: name one",
            )
            .into());
        }
        Ok(pids)
    }

    /// Folds all processes, several at once where there are threads for it.
    fn fold_all(&self, pids: &[u32]) -> Vec<(String, Result<FoldTally, FoldError>)> {
        let threads = usize::from(self.threads);
        let at_once = threads.min(pids.len()).max(1);
        let settings = FoldSettings {
            least_zero_permille: (self.least_zero * 10.0).round() as u32,
            threads: (threads / at_once).max(1),
            collapses: self.collapse,
            is_dry_run: self.dry_run,
            cpu_limit: None,
        };
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(vec![(String::new(), Err(FoldError::Denied)); pids.len()]);
        let work = || {
            while let Some((at, pid)) = Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, pids.get(at)?))) {
                let outcome = fold_one(*pid, &settings);
                if let Some(slot) = outcomes.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at) {
                    *slot = outcome;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..at_once {
                scope.spawn(work);
            }
            work();
        });
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes one pass over a process. Returns its name too, as far as it is known.
fn fold_one(pid: u32, settings: &FoldSettings) -> (String, Result<FoldTally, FoldError>) {
    match FoldTarget::open(pid) {
        Ok(target) => (target.name().to_owned(), target.fold(settings)),
        Err(why) => (format!("process {pid}"), Err(why.into())),
    }
}

fn sentence(pids: &[u32], why: &FoldError) -> String {
    match pids {
        [pid] => format!("process {pid} can't be folded: {why}"),
        _ => format!("none of the {} processes can be folded: {why}", pids.len()),
    }
}

fn code_of(why: &FoldError) -> NamedExitCode {
    match why {
        FoldError::Denied | FoldError::Unreadable(UnreadableProcess::Denied) => exit::NO_PRIVILEGE,
        FoldError::NoCall(_) => exit::IMPOSSIBLE,
        FoldError::Unreadable(UnreadableProcess::NoSuchProcess) => exit::UNKNOWN_GUEST,
        FoldError::NoHeadroom { .. } | FoldError::Unreadable(_) => exit::FAILED,
    }
}
