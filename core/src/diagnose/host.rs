//! The host: why KSM does not do here what one hoped, from what can be seen, with the remedy.

use std::time::Duration;

use serde::Serialize;

use crate::account::Totals;
use crate::field::KernelVersion;
use crate::kernel::{AdvisorMode, Run};
use crate::reading::Reading;
use crate::sample::{Process, Sample};
use crate::units::{Bytes, Span};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// KSM can't do its work, or endangers the host.
    Problem,
    /// KSM does less, or costs more, than it could.
    Warning,
    /// Worth knowing.
    Note,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A stable word for it.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is so, with the figures that show it.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// Whether a ksmith is in charge of KSM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Daemon {
    /// None is.
    #[default]
    Absent,
    /// This user can't see whether one is.
    Hidden,
    /// One is: a daemon, or a scan or a demo in progress.
    Present,
}

/// What is known besides the sample.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// The running kernel.
    pub kernel: Option<KernelVersion>,
    /// Whether a ksmith is in charge.
    pub daemon: Daemon,
    /// Other programs that control KSM, and how to stop them: `ksmtuned (pid 812)`, `systemctl stop ksmtuned`.
    pub holders: Vec<(String, String)>,
    /// Whether settings that an earlier ksmith changed still wait to be restored.
    pub unrestored: bool,
    /// Guests that do not trust each other may share pages: what that means, in a sentence.
    pub side_channel: Option<String>,
    /// Bytes that domains share now although they are to be kept apart.
    pub shared_across_bytes: u64,
    /// Guests whose RAM is switched off, and whose firmware is not, although domains are to be kept apart.
    pub residue: Vec<String>,
    /// Why the daemon keeps ksmd parked for the sake of the domains, where it does.
    pub guarded: Option<String>,
    /// What is wrong with a journal that can't be read as one. No ksmith starts beside it.
    pub damaged_journal: Option<String>,
    /// Guests that memory was taken from, and whose taker is gone.
    pub unreturned_guests: usize,
}

/// Everything found, the worst first. Empty when all is well.
pub fn diagnose(sample: &Sample, circumstances: &Circumstances) -> Vec<Finding> {
    if let Some(finding) = ksm_itself(sample) {
        return vec![finding];
    }
    let checks = [
        run_state(sample, circumstances),
        nothing_mergeable(sample),
        pace(sample, circumstances),
        smart_scan(sample, circumstances),
        advisor(sample, circumstances),
        exposure(sample),
        metadata(sample, circumstances),
        chains(sample),
        zero_pages(sample),
        sparse_giants(sample, circumstances),
        unrestored(circumstances),
        side_channel(circumstances),
        shared_across(circumstances),
        residue(circumstances),
        guarded(circumstances),
        damaged_journal(circumstances),
        unreturned(circumstances),
    ];
    let mut findings: Vec<Finding> = checks.into_iter().flatten().collect();
    findings.extend(circumstances.holders.iter().map(|(who, remedy)| {
        finding(
            "controller",
            Severity::Warning,
            format!("{who} also controls KSM: two controllers undo each other's settings"),
            format!("{remedy}, or `ksmith daemon --take-over` to pause it while ksmith runs"),
        )
    }));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn finding(code: &'static str, severity: Severity, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { code, severity, what: what.into(), remedy: remedy.into() }
}

fn ksm_itself(sample: &Sample) -> Option<Finding> {
    let (code, what, remedy) = match &sample.ksm.run {
        Reading::Value(_) => return None,
        Reading::Absent => (
            "no-ksm",
            "this kernel has no KSM: there is no /sys/kernel/mm/ksm".to_owned(),
            "use a kernel with CONFIG_KSM=y; in a container, ask on the host",
        ),
        Reading::Denied => (
            "no-privilege",
            "/sys/kernel/mm/ksm/run may not be read by this user".to_owned(),
            "run as root, or outside the sandbox that hides it",
        ),
        Reading::Malformed(why) => (
            "malformed",
            format!("/sys/kernel/mm/ksm/run makes no sense: {why}"),
            "this is not a kernel's file: check what is mounted there",
        ),
    };
    Some(finding(code, Severity::Problem, what, remedy))
}

fn run_state(sample: &Sample, circumstances: &Circumstances) -> Option<Finding> {
    match (sample.ksm.run_state()?, circumstances.daemon) {
        (Run::Running, _) | (_, Daemon::Present) => None,
        (_, Daemon::Hidden) => Some(finding(
            "perhaps-parked",
            Severity::Note,
            "ksmd does not scan now, and this user can't see whether a ksmith daemon has parked it",
            "ask as root: `sudo ksmith doctor`",
        )),
        (Run::Stopped, Daemon::Absent) => Some(finding(
            "switched-off",
            Severity::Problem,
            format!(
                "KSM is switched off (run=0): ksmd does not scan; {} stays merged",
                Bytes::from(Totals::of(sample).saved_bytes)
            ),
            "`ksmith daemon` to let ksmith decide, `ksmith scan` for one good look, `ksmith enable` to switch it on",
        )),
        (Run::Unmerged, Daemon::Absent) => Some(finding(
            "unmerged",
            Severity::Problem,
            "KSM is switched off and everything was unmerged (run=2)",
            "`ksmith daemon`, or `ksmith enable`",
        )),
    }
}

fn nothing_mergeable(sample: &Sample) -> Option<Finding> {
    if sample.processes.iter().any(Process::may_merge) || sample.ksm.tracked_pages() > 0 {
        return None;
    }
    if sample.hidden_processes > 0 {
        return Some(finding(
            "nothing-seen",
            Severity::Note,
            format!(
                "no process that this user can see has mergeable memory; {} are hidden",
                sample.hidden_processes
            ),
            "run as root to see all",
        ));
    }
    let what = match sample.processes.len() {
        0 => "no process has mergeable memory, so there is nothing to merge".to_owned(),
        machines => format!("{machines} virtual machines run, and none of them offers its memory to KSM"),
    };
    Some(finding(
        "nothing-mergeable",
        Severity::Problem,
        what,
        "memory must be offered: QEMU does so by default (not with -machine mem-merge=off, share=on or hugepages), \
         systemd services by MemoryKSM=yes, any program by madvise(MADV_MERGEABLE) or prctl(PR_SET_MEMORY_MERGE)",
    ))
}

/// How long a pass takes at the present settings, sleeping alone counted.
fn pace(sample: &Sample, circumstances: &Circumstances) -> Option<Finding> {
    let ksm = &sample.ksm;
    let (pages, sleep) = (ksm.pages_to_scan.get()?, ksm.sleep_millisecs.get()?);
    if circumstances.daemon != Daemon::Absent || ksm.run_state() != Some(Run::Running) {
        return None;
    }
    if pages == 0 {
        let what = if sleep == 0 {
            "pages_to_scan and sleep_millisecs are both 0: ksmd looks at nothing and takes a whole CPU for it"
        } else {
            "pages_to_scan is 0: ksmd wakes up and looks at nothing"
        };
        return Some(finding(
            "paused",
            Severity::Problem,
            what,
            "`ksmith set pages_to_scan=1000`, or `ksmith daemon`",
        ));
    }
    let mergeable: u64 = sample.processes.iter().map(|process| process.rss_bytes).sum();
    let tracked = ksm.tracked_pages().max(mergeable / sample.page_size.max(1));
    let batches = tracked.div_ceil(pages);
    let pass = Duration::from_millis(batches.saturating_mul(sleep));
    (pass > Duration::from_secs(300)).then(|| {
        finding(
            "slow",
            Severity::Warning,
            format!(
                "a pass over {} takes at least {} at {pages} pages every {sleep} ms, and a page merges on the second",
                Bytes::from(tracked.saturating_mul(sample.page_size)),
                Span(pass),
            ),
            "`ksmith daemon` spends ksmd's CPU where it pays; by hand, `ksmith set pages_to_scan=…`",
        )
    })
}

fn smart_scan(sample: &Sample, circumstances: &Circumstances) -> Option<Finding> {
    let ksm = &sample.ksm;
    let skipped = ksm.pages_skipped.get().unwrap_or(0);
    if ksm.smart_scan.get()? == 0 || skipped == 0 || ksm.run_state() != Some(Run::Running) {
        return None;
    }
    Some(finding(
        "smart-scan",
        Severity::Warning,
        format!(
            "smart_scan skipped {skipped} pages so far: pages that did not merge early are visited ever more rarely, \
             and two equal ones whose visits never coincide never merge"
        ),
        match circumstances.daemon {
            Daemon::Present => "`ksmith scan` asks the daemon for passes that visit every page",
            _ => "`ksmith scan` makes passes that visit every page; `ksmith daemon` does so when it pays",
        },
    ))
}

fn advisor(sample: &Sample, circumstances: &Circumstances) -> Option<Finding> {
    if circumstances.daemon != Daemon::Absent || sample.ksm.advisor_mode.get()? == AdvisorMode::None {
        return None;
    }
    Some(finding(
        "advisor",
        Severity::Note,
        "the kernel's own advisor sets pages_to_scan, and corrects itself once per pass",
        "`ksmith daemon` takes over and gives back; pages_to_scan can't be set by hand meanwhile",
    ))
}

fn exposure(sample: &Sample) -> Option<Finding> {
    let totals = Totals::of(sample);
    totals.is_overexposed().then(|| {
        finding(
            "exposure",
            Severity::Problem,
            format!(
                "if every merged page were written to the host would need {}, and it has {}",
                Bytes::from(totals.exposure_bytes),
                Bytes::from(totals.headroom_bytes.unwrap_or(0)),
            ),
            "add swap, or run fewer guests: when merged pages diverge the kernel has nothing but the OOM killer; [balance] \
             with exposure = \"cover\" keeps as much ready as guests can spare (docs/balance.md)",
        )
    })
}

fn metadata(sample: &Sample, circumstances: &Circumstances) -> Option<Finding> {
    let totals = Totals::of(sample);
    (totals.profit_bytes < 0 && sample.ksm.full_scans.get().unwrap_or(0) > 0).then(|| {
        finding(
            "loss",
            Severity::Warning,
            format!(
                "KSM costs more memory than it saves: {} saved, {} of metadata",
                Bytes::from(totals.saved_bytes),
                Bytes::from(totals.overhead_bytes)
            ),
            match circumstances.daemon {
                Daemon::Present => {
                    "`ksmith scan` shows whether more would merge; if not, end the daemon (`systemctl stop ksmith`), \
                     and `ksmith unmerge` frees the metadata"
                }
                _ => "`ksmith unmerge` frees the metadata; `ksmith scan` first shows whether more would merge",
            },
        )
    })
}

fn chains(sample: &Sample) -> Option<Finding> {
    let dups = sample.ksm.stable_node_dups.get().filter(|&dups| dups > 0)?;
    Some(finding(
        "chains",
        Severity::Note,
        format!(
            "{} contents have more copies than max_page_sharing and keep {dups} frames",
            sample.ksm.stable_node_chains.get().unwrap_or(0)
        ),
        "use_zero_pages=1 takes empty pages out of this; a larger max_page_sharing saves the rest, at the price of \
         slower reclaim",
    ))
}

fn zero_pages(sample: &Sample) -> Option<Finding> {
    let zero = sample.ksm.ksm_zero_pages.get().filter(|&pages| pages > 0)?;
    (sample.ksm.use_zero_pages.get()? == 0).then(|| {
        finding(
            "zero-pages",
            Severity::Note,
            format!("use_zero_pages is off now, but {zero} empty pages still map the kernel's zero page"),
            "nothing: they leave it when they are written to",
        )
    })
}

/// Sparse mappings of terabytes kept ksmd busy for hours before the fix of November 2025, in Linux 6.18.
fn sparse_giants(sample: &Sample, circumstances: &Circumstances) -> Option<Finding> {
    let kernel = circumstances.kernel.filter(|&kernel| kernel < KernelVersion::new(6, 18))?;
    let opted_in = sample.processes.iter().filter(|process| process.ksm.merge_any == Some(true)).count();
    (opted_in > 0).then(|| {
        finding(
            "sparse-giants",
            Severity::Note,
            format!("{opted_in} processes opted in as a whole, on Linux {kernel}: huge sparse mappings keep ksmd busy for hours"),
            "Linux 6.18 walks them fast",
        )
    })
}

fn unrestored(circumstances: &Circumstances) -> Option<Finding> {
    circumstances.unrestored.then(|| {
        finding(
            "unrestored",
            Severity::Warning,
            "an earlier ksmith was killed and its settings are still in force",
            "`ksmith restore` (the next `ksmith daemon` does so too)",
        )
    })
}

fn unreturned(circumstances: &Circumstances) -> Option<Finding> {
    let guests = circumstances.unreturned_guests;
    (guests > 0 && circumstances.daemon != Daemon::Present).then(|| {
        finding(
            "unreturned",
            Severity::Warning,
            format!("memory was taken from {guests} guests, and nobody watches whether they need it again"),
            "`ksmith restore` gives it back; `ksmith daemon` goes on balancing",
        )
    })
}

fn side_channel(circumstances: &Circumstances) -> Option<Finding> {
    let meaning = circumstances.side_channel.as_ref()?;
    let remedy = "if they belong to tenants who do not trust each other: [domains] with mode = \"one\" or \"node\" in \
                  /etc/ksmith.toml (docs/domains.md)";
    Some(finding("side-channel", Severity::Note, meaning, remedy))
}

fn shared_across(circumstances: &Circumstances) -> Option<Finding> {
    let bytes = Some(circumstances.shared_across_bytes).filter(|bytes| *bytes > 0)?;
    Some(finding(
        "shared-across-domains",
        Severity::Warning,
        format!("{} are shared across domains that are to be kept apart: merged before", Bytes::from(bytes)),
        "`ksmith unmerge`; what merges from then on stays apart as long as the daemon runs. `ksmith guests --by domain` \
         shows who shares with whom",
    ))
}

fn residue(circumstances: &Circumstances) -> Option<Finding> {
    let guests = &circumstances.residue;
    (!guests.is_empty()).then(|| {
        finding(
            "firmware-residue",
            Severity::Note,
            format!(
                "the RAM of {} is not offered to merging; QEMU's firmware and devices still are, and may be shared across \
                 domains",
                guests.join(", ")
            ),
            "start them with -machine mem-merge=off (libvirt: nosharepages): then nothing is offered (docs/domains.md)",
        )
    })
}

fn guarded(circumstances: &Circumstances) -> Option<Finding> {
    let why = circumstances.guarded.as_ref()?;
    Some(finding(
        "guarded",
        Severity::Warning,
        format!("nothing merges, since the domains could not be kept apart otherwise: {why}"),
        "see docs/domains.md: what each kind of guest needs so that it can be switched off",
    ))
}

fn damaged_journal(circumstances: &Circumstances) -> Option<Finding> {
    let why = circumstances.damaged_journal.as_ref()?;
    Some(finding(
        "damaged-journal",
        Severity::Problem,
        format!("the journal of an earlier ksmith is damaged ({why}): its settings may still be in force"),
        "compare /run/ksmith/journal.json with /sys/kernel/mm/ksm and put right what differs, then \
         `ksmith restore --discard`: until then no ksmith changes anything",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{KsmStat, Meminfo};
    use crate::sample::ProcessId;

    fn healthy() -> Sample {
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.ksm.run = Reading::Value(1);
        sample.ksm.pages_to_scan = Reading::Value(1000);
        sample.ksm.sleep_millisecs = Reading::Value(20);
        sample.ksm.smart_scan = Reading::Value(0);
        sample.ksm.pages_sharing = Reading::Value(1000);
        sample.memory = Reading::Value(Meminfo { available: Some(1 << 30), ..Meminfo::default() });
        sample.processes.push(Process {
            id: ProcessId { pid: 1, start_ticks: 1 },
            name: "guest".into(),
            is_vm: true,
            rss_bytes: 1 << 20,
            cpu_ticks: 0,
            minor_faults: 0,
            ksm: KsmStat::default(),
        });
        sample
    }

    fn codes(sample: &Sample, circumstances: &Circumstances) -> Vec<&'static str> {
        diagnose(sample, circumstances).into_iter().map(|finding| finding.code).collect()
    }

    /// What is found when `change` is made to a healthy host.
    fn found(change: impl FnOnce(&mut Sample, &mut Circumstances)) -> Vec<&'static str> {
        let (mut sample, mut circumstances) = (healthy(), Circumstances::default());
        change(&mut sample, &mut circumstances);
        codes(&sample, &circumstances)
    }

    #[test]
    fn a_healthy_host_has_no_findings() {
        assert_eq!(found(|_, _| ()), [""; 0]);
    }

    #[test]
    fn each_fault_is_named_and_nothing_else() {
        assert_eq!(found(|s, _| s.ksm = Default::default()), ["no-ksm"]);
        assert_eq!(found(|s, _| s.ksm.run = Reading::Denied), ["no-privilege"]);
        assert_eq!(found(|s, _| s.ksm.run = Reading::Value(0)), ["switched-off"]);
        assert_eq!(found(|s, _| s.ksm.run = Reading::Value(2)), ["unmerged"]);
        assert_eq!(found(|s, _| s.ksm.pages_to_scan = Reading::Value(0)), ["paused"]);
        assert_eq!(found(|s, _| s.processes[0].rss_bytes = 64 << 30), ["slow"]);
        assert_eq!(found(|s, _| s.ksm.advisor_mode = Reading::Value(AdvisorMode::ScanTime)), ["advisor"]);
        assert_eq!(found(|s, _| s.ksm.pages_sharing = Reading::Value(1 << 20)), ["exposure"]);
        assert_eq!(found(|_, c| c.unrestored = true), ["unrestored"]);
        assert_eq!(found(|_, c| c.unreturned_guests = 2), ["unreturned"]);
        assert_eq!(found(|_, c| c.side_channel = Some("x".into())), ["side-channel"]);
        assert_eq!(found(|_, c| c.shared_across_bytes = 4096), ["shared-across-domains"]);
        assert_eq!(found(|_, c| c.residue = vec!["x".into()]), ["firmware-residue"]);
        assert_eq!(found(|_, c| c.guarded = Some("x".into())), ["guarded"]);
        assert_eq!(found(|_, c| c.damaged_journal = Some("EOF".into())), ["damaged-journal"]);
        assert_eq!(found(|_, c| c.holders.push(("x".into(), "y".into()))), ["controller"]);
        let nothing = found(|s, _| {
            s.processes.clear();
            s.ksm.pages_sharing = Reading::Value(0);
        });
        assert_eq!(nothing, ["nothing-mergeable"]);
        let shared = found(|s, _| {
            s.processes[0].ksm.mergeable = Some(false);
            s.ksm.pages_sharing = Reading::Value(0);
        });
        assert_eq!(shared, ["nothing-mergeable"]);
        let trapped = found(|s, _| {
            s.ksm.smart_scan = Reading::Value(1);
            s.ksm.pages_skipped = Reading::Value(5000);
        });
        assert_eq!(trapped, ["smart-scan"]);
        let loss = found(|s, _| {
            s.ksm.pages_unshared = Reading::Value(100_000);
            s.ksm.full_scans = Reading::Value(3);
        });
        assert_eq!(loss, ["loss"]);
    }

    #[test]
    fn a_daemon_that_parked_ksmd_is_no_fault() {
        let beside = |daemon| {
            found(|s, c| {
                s.ksm.run = Reading::Value(0);
                s.ksm.advisor_mode = Reading::Value(AdvisorMode::ScanTime);
                c.daemon = daemon;
            })
        };
        assert_eq!(beside(Daemon::Present), [""; 0]);
        assert_eq!(beside(Daemon::Hidden), ["perhaps-parked"]);
        assert_eq!(beside(Daemon::Absent), ["switched-off", "advisor"]);
    }

    #[test]
    fn beside_a_daemon_no_remedy_is_one_that_it_refuses() {
        let mut sample = healthy();
        sample.ksm.pages_unshared = Reading::Value(100_000);
        sample.ksm.full_scans = Reading::Value(3);
        let remedy = |daemon| {
            let findings = diagnose(&sample, &Circumstances { daemon, ..Circumstances::default() });
            assert_eq!(findings[0].code, "loss");
            findings[0].remedy.clone()
        };
        assert!(remedy(Daemon::Absent).starts_with("`ksmith unmerge`"));
        assert!(remedy(Daemon::Present).contains("`systemctl stop ksmith`), and `ksmith unmerge`"));
    }

    #[test]
    fn problems_come_first() {
        let findings = diagnose(
            &{
                let mut sample = healthy();
                sample.ksm.advisor_mode = Reading::Value(AdvisorMode::ScanTime);
                sample.ksm.run = Reading::Value(0);
                sample
            },
            &Circumstances::default(),
        );
        assert_eq!(findings.iter().map(|f| f.code).collect::<Vec<_>>(), ["switched-off", "advisor"]);
    }
}
