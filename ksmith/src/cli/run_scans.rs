//! The scans of a job's memory: their schedule, and the process that makes them.

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, never, select, tick};
use ksmith_core::account::HostTotals;
use ksmith_core::job::MarkedRanges;
use ksmith_core::units::{Bytes, TimeSpan};

use super::scan::{NEEDS_A_GUARD, scan_directly};
use super::{CommandFailure, GlobalArgs, amounts, control};
use ksmith_host::job::{GuidedProgress, JobNotice, MemoryOffers};
use ksmith_host::ksm_counts::ksm_as_counted;
use ksmith_host::live::LiveHost;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_host::signals::Signal;
use ksmith_service::control::scan_limits;
use ksmith_service::user_socket::{UserClient, UserError};

/// The schedule of scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanSchedule {
    EndOfInit,
    Every(Duration),
    Never,
}

impl fmt::Display for ScanSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndOfInit => f.write_str("end-of-init"),
            Self::Every(period) => write!(f, "{}", period.as_secs_f64()),
            Self::Never => f.write_str("never"),
        }
    }
}

impl FromStr for ScanSchedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "end-of-init" => Ok(Self::EndOfInit),
            "never" => Ok(Self::Never),
            time => {
                amounts::period(time).map(Self::Every).map_err(|why| format!("{why}, or end-of-init, or never"))
            }
        }
    }
}

/// Passes of each scan: a page merges at the second visit that finds it unchanged.
const PASSES: NonZeroU64 = NonZeroU64::MIN.saturating_add(1);

/// The process that makes the scans.
#[derive(Debug)]
pub(super) enum ScanProvider {
    /// No scan is wanted.
    Unwanted,
    /// A daemon, which is asked.
    Daemon(PathBuf),
    /// This process, because no daemon answers and this user may control KSM.
    Own {
        /// The options of the command.
        global: GlobalArgs,
        /// True to scan memory of others where KSM is off.
        scans_others: bool,
    },
    /// None: no daemon answers, and this user may not control KSM.
    Unavailable(io::Error),
}

impl ScanProvider {
    pub(super) fn find(global: &GlobalArgs, when: ScanSchedule, scans_others: bool, socket: &Path) -> Self {
        if when == ScanSchedule::Never {
            return Self::Unwanted;
        }
        match UserClient::connect(socket) {
            Ok(_) => Self::Daemon(socket.to_owned()),
            Err(_) if rustix::process::geteuid().is_root() => Self::Own { global: global.clone(), scans_others },
            Err(error) => Self::Unavailable(error),
        }
    }

    /// Returns a warning for the user before the program starts, if nothing may be merged.
    pub(super) fn warning(&self, root: &Root) -> Option<String> {
        let ksm = ksm_as_counted(root);
        if !ksm.is_present() {
            return Some("this kernel has no KSM (CONFIG_KSM): nothing will be merged".to_owned());
        }
        let is_running = ksm.run.get() == Some(1);
        match self {
            Self::Unavailable(why) if !is_running => Some(format!(
                "ksmd is off and no daemon takes requests for scans ({why}): nothing will be merged. Start \
                 `ksmith daemon`; this user must be in the group of its socket \
                 (/usr/share/doc/ksmith/docs/how-to/opt-in.md)"
            )),
            Self::Unwanted if !is_running => {
                Some("ksmd is off and no scan is wanted: nothing may be merged".to_owned())
            }
            _ => None,
        }
    }

    /// Returns the reason not to scan: the job has offered nothing, or others have where KSM is off.
    fn refusal(&self) -> Option<String> {
        let root = Root::host();
        let offers = MemoryOffers::read(&root);
        if !offers.is_any_of_job {
            return Some("the job has offered no memory".to_owned());
        }
        let may_scan_all = match self {
            Self::Own { scans_others, .. } => *scans_others || ksm_as_counted(&root).run.get() == Some(1),
            Self::Unwanted | Self::Unavailable(_) | Self::Daemon(_) => true,
        };
        let first = offers.others.first().filter(|_| !may_scan_all)?;
        let more = match offers.others.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "KSM is off on this host, and a scan would also merge memory that {first}{more} may have offered: --scan-others allows it"
        ))
    }

    fn scan(&self, stop: &Receiver<Signal>) -> Result<String, String> {
        if let Some(why) = self.refusal() {
            return Err(why);
        }
        match self {
            Self::Unwanted | Self::Unavailable(_) => Err("no daemon takes requests for scans".to_owned()),
            Self::Daemon(socket) => {
                let mut client = UserClient::connect(socket).map_err(|error| error.to_string())?;
                let done = client.scan(PASSES, || !stop.is_empty()).map_err(|error| match error {
                    UserError::GivenUp => "the job has ended".to_owned(),
                    error => error.to_string(),
                })?;
                let cpu = TimeSpan(Duration::from_nanos(done.ksmd_cpu_ns));
                Ok(format!("{} passes, {cpu} of ksmd's CPU", done.passes))
            }
            Self::Own { global, .. } => {
                let scan = || -> anyhow::Result<String> {
                    let config = global.load_config()?;
                    if config.domains.needs_a_guard() {
                        return Err(CommandFailure::impossible(NEEDS_A_GUARD).into());
                    }
                    let control = control::take_control(global, false, false)?;
                    let mut host = LiveHost::new(HostObserver::new(Root::host()), control);
                    let limits = scan_limits(&config.limits, config.limits.max_cpu);
                    let keep = config.huge_pages.keep_terms(&Root::host());
                    let (before, after) = scan_directly(&mut host, PASSES.get(), limits, keep, stop, |_, _, _| ())?;
                    host.control.restore()?;
                    let saved = |sample| HostTotals::from_sample(sample).saved_bytes;
                    let newly = i128::from(saved(&after)) - i128::from(saved(&before));
                    Ok(format!("{PASSES} passes, {} newly saved on this host", Bytes(newly)))
                };
                scan().map_err(|error| super::sentence(&error))
            }
        }
    }
}

/// The thread that asks for scans while the job runs.
pub(super) struct ScanThread {
    stop: Sender<Signal>,
    thread: JoinHandle<u64>,
}

impl ScanThread {
    pub(super) fn begin(
        scanner: ScanProvider,
        when: ScanSchedule,
        ranges: MarkedRanges,
        notices: Receiver<JobNotice>,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded(1);
        // Only a daemon names ranges.
        let waits = ranges == MarkedRanges::Guided
            && when == ScanSchedule::EndOfInit
            && matches!(scanner, ScanProvider::Daemon(_));
        let work = move || run_scan_loop(&scanner, when, waits, notices, &stopped);
        let thread = std::thread::Builder::new().name("scans".to_owned()).spawn(work)?;
        Ok(Self { stop, thread })
    }

    /// Ends a scan in progress. Returns the number of scans made.
    pub(super) fn finish(self) -> u64 {
        let Self { stop, thread } = self;
        let _ = stop.send(Signal::End);
        // A thread that has received the message finds the channel closed.
        drop(stop);
        thread.join().unwrap_or(0)
    }
}

/// Timeout for marked ranges. libksmith asks every ten seconds, and the daemon may have to read for other jobs first.
const RANGES_PATIENCE: Duration = Duration::from_secs(60);

/// Time between two readings of libksmith's progress.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until every process of the job has marked the ranges of a new answer of the daemon. An earlier scan
/// would find no marked range, or ranges from before the memory was filled.
fn wait_for_ranges(stop: &Receiver<Signal>) {
    let root = Root::host();
    let (then, began) = (GuidedProgress::now(&root), Instant::now());
    while !GuidedProgress::now(&root).all_since(&then) {
        if began.elapsed() >= RANGES_PATIENCE {
            tracing::warn!(
                "libksmith has not marked all ranges after {} (does the daemon refuse it?); scanning what is marked",
                TimeSpan(RANGES_PATIENCE)
            );
            return;
        }
        // The end of the job stays in the channel for the next reader.
        if !stop.is_empty() {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

fn run_scan_loop(
    scanner: &ScanProvider,
    when: ScanSchedule,
    waits_for_ranges: bool,
    mut notices: Receiver<JobNotice>,
    stop: &Receiver<Signal>,
) -> u64 {
    let ticker = if let ScanSchedule::Every(period) = when { tick(period) } else { never() };
    let (mut made, mut last_error) = (0, None);
    loop {
        let is_due = select! {
            recv(stop) -> _ => return made,
            recv(ticker) -> _ => true,
            recv(notices) -> notice => match notice {
                Ok(JobNotice::Settled) => when == ScanSchedule::EndOfInit,
                Ok(notice) => {
                    warn_of(&notice);
                    false
                }
                // The watching thread has ended; the end of the job is received next.
                Err(_) => {
                    notices = never();
                    false
                }
            },
        };
        if !is_due || matches!(scanner, ScanProvider::Unavailable(_) | ScanProvider::Unwanted) {
            continue;
        }
        if waits_for_ranges {
            wait_for_ranges(stop);
        }
        match scanner.scan(stop) {
            Ok(done) => {
                made += 1;
                tracing::debug!("scanned: {done}");
            }
            Err(_) if is_over(stop) => return made,
            // A persistent error is reported once.
            Err(why) if last_error.as_ref() == Some(&why) => {}
            Err(why) => {
                tracing::warn!("no scan: {why}");
                last_error = Some(why);
            }
        }
    }
}

/// Returns true if the job has ended: the message is in the channel, or a scan has received it.
fn is_over(stop: &Receiver<Signal>) -> bool {
    !stop.is_empty() || stop.try_recv() == Err(TryRecvError::Disconnected)
}

fn warn_of(notice: &JobNotice) {
    match notice {
        JobNotice::Settled => {}
        JobNotice::SparseGiant { pid, mapped_bytes } => tracing::warn!(
            "process {pid} maps {} and uses little of it: before Linux 6.18 ksmd visits each page of that, which \
            may take an hour; end it, or start it with --ranges none",
            Bytes::from(*mapped_bytes)
        ),
        JobNotice::OptInLost { pid, name } => tracing::warn!(
            "process {pid} ({name}) is not mergeable any more: ksmd found nothing to merge in it, or it opted out"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_scan_is_a_word_or_seconds() {
        assert_eq!("end-of-init".parse(), Ok(ScanSchedule::EndOfInit));
        assert_eq!("0.5".parse(), Ok(ScanSchedule::Every(Duration::from_millis(500))));
        assert_eq!("never".parse(), Ok(ScanSchedule::Never));
        for bad in ["", "0", "-1", "NaN", "often", "1e9"] {
            assert!(bad.parse::<ScanSchedule>().is_err(), "{bad}");
        }
        assert_eq!(ScanSchedule::Every(Duration::from_secs(60)).to_string(), "60");
    }
}
