//! For tests of policies: a host in a few words, and arbitrary sequences of samples.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::kernel::{AdvisorMode, HostReadings, Ksm, Meminfo};
use crate::knobs::{Knob, KnobSettings};
use crate::reading::{Malformed, Reading};
use crate::sample::{ProcessId, ProcessSample, Sample};

use super::{PassHistory, Policy, PolicyDecision, PolicyLimits, PolicyView, decide};

/// A host that a test prepares the samples of, and that does as a policy decides.
#[derive(Debug)]
pub(crate) struct PolicyTestHost {
    pub sample: Sample,
    pub history: PassHistory,
    pub limits: PolicyLimits,
}

impl PolicyTestHost {
    /// Linux 6.18 with KSM as it boots (`run` = 0, everything at its default) and 16 GiB, half of it free.
    pub fn linux_6_18() -> Self {
        let ksm = Ksm {
            smart_scan: Reading::Value(1),
            advisor_mode: Reading::Value(AdvisorMode::None),
            advisor_max_cpu: Reading::Value(70),
            advisor_min_pages_to_scan: Reading::Value(500),
            advisor_max_pages_to_scan: Reading::Value(30_000),
            advisor_target_scan_time: Reading::Value(200),
            pages_scanned: Reading::Value(0),
            pages_skipped: Reading::Value(0),
            ksm_zero_pages: Reading::Value(0),
            general_profit: Reading::Value(0),
            ..Self::linux_6_1().sample.ksm
        };
        let mut host = Self::linux_6_1();
        host.sample.ksm = ksm;
        host
    }

    /// The same with Linux 6.1: no smart_scan, no advisor, no pages_scanned.
    pub fn linux_6_1() -> Self {
        let zero = || Reading::Value(0);
        let ksm = Ksm {
            run: zero(),
            pages_to_scan: Reading::Value(100),
            sleep_millisecs: Reading::Value(20),
            use_zero_pages: zero(),
            merge_across_nodes: Reading::Value(1),
            max_page_sharing: Reading::Value(256),
            stable_node_chains_prune_millisecs: Reading::Value(2000),
            full_scans: zero(),
            pages_shared: zero(),
            pages_sharing: zero(),
            pages_unshared: zero(),
            pages_volatile: zero(),
            stable_node_chains: zero(),
            stable_node_dups: zero(),
            ..Ksm::default()
        };
        let sample = Sample {
            at: Duration::from_secs(1000),
            page_size: 4096,
            ksm,
            ksmd_cpu_ns: zero(),
            ..Sample::default()
        };
        let mut host = Self { sample, history: PassHistory::default(), limits: PolicyLimits::default() };
        host.memory(16 << 20, 8 << 20);
        host
    }

    /// Advances time by `seconds`.
    pub fn after(&mut self, seconds: u64) -> &mut Self {
        self.sample.at += Duration::from_secs(seconds);
        self
    }

    /// Advances time by `seconds` in which a pass ends and `pages` more (or fewer) are shared.
    pub fn pass(&mut self, seconds: u64, pages: i64) -> &mut Self {
        let ksm = &mut self.sample.ksm;
        ksm.full_scans = Reading::Value(ksm.full_scans.get().unwrap_or(0) + 1);
        ksm.pages_sharing = Reading::Value(ksm.pages_sharing.get().unwrap_or(0).saturating_add_signed(pages));
        self.after(seconds)
    }

    /// Adds CPU time of ksmd.
    pub fn ksmd_cpu_ms(&mut self, ms: u64) -> &mut Self {
        self.sample.ksmd_cpu_ns = Reading::Value(self.sample.ksmd_cpu_ns.get().unwrap_or(0) + ms * 1_000_000);
        self
    }

    /// Sets MemTotal and MemFree in KiB; there are no caches.
    pub fn memory(&mut self, total_kib: u64, free_kib: u64) -> &mut Self {
        self.sample.host.memory = Reading::Value(Meminfo {
            total: Some(total_kib * 1024),
            free: Some(free_kib * 1024),
            buffers: Some(0),
            cached: Some(0),
            ..Meminfo::default()
        });
        self
    }

    /// Starts a VM with that much resident memory.
    pub fn vm(&mut self, pid: u32, rss_kib: u64) -> &mut Self {
        self.process(pid, rss_kib, true)
    }

    /// Starts a program that is no VM, with mergeable memory.
    pub fn program(&mut self, pid: u32, rss_kib: u64) -> &mut Self {
        self.process(pid, rss_kib, false)
    }

    fn process(&mut self, pid: u32, rss_kib: u64, is_vm: bool) -> &mut Self {
        self.sample.processes.push(process(pid, rss_kib, is_vm));
        self
    }

    /// Ends a process.
    pub fn exit(&mut self, pid: u32) -> &mut Self {
        self.sample.processes.retain(|process| process.id.pid != pid);
        self
    }

    /// Shows the sample to the history alone.
    pub fn observe(&mut self) -> &mut Self {
        self.history.push(&self.sample);
        self
    }

    /// Shows the sample to the history and the policy, and does as it decides.
    pub fn decide(&mut self, policy: &mut dyn Policy) -> PolicyDecision {
        self.observe();
        let view = PolicyView { now: &self.sample, history: &self.history, limits: &self.limits };
        let decision = decide(policy, &view);
        self.apply(&decision.knobs);
        decision
    }

    /// Writes knobs as the kernel would take them.
    pub fn apply(&mut self, knobs: &KnobSettings) {
        for (knob, value) in knobs.iter() {
            assert!(knob.range().contains(&value), "the kernel does not take {knob}={value}");
            let ksm = &mut self.sample.ksm;
            if knob == Knob::AdvisorMode {
                let mode = if value == 0 { AdvisorMode::None } else { AdvisorMode::ScanTime };
                let start = if value == 0 { 100 } else { ksm.advisor_min_pages_to_scan.get().unwrap_or(0) };
                if ksm.advisor_mode.get().is_some_and(|before| before != mode) {
                    ksm.advisor_mode = Reading::Value(mode);
                    ksm.pages_to_scan = Reading::Value(start);
                }
                continue;
            }
            let refused = knob == Knob::PagesToScan && ksm.advisor_mode.get() == Some(AdvisorMode::ScanTime);
            assert!(!refused, "the kernel refuses pages_to_scan while its advisor is on");
            if !knob.needs_nothing_merged() {
                knob.set(ksm, value);
            }
        }
    }
}

fn process(pid: u32, rss_kib: u64, is_vm: bool) -> ProcessSample {
    ProcessSample {
        rss_bytes: Some(rss_kib * 1024),
        ..ProcessSample::new(ProcessId { pid, start_ticks: u64::from(pid) * 10 }, "guest".into(), is_vm)
    }
}

/// Every decision that a policy takes over `samples`.
pub(crate) fn run(policy: &mut dyn Policy, samples: &[Sample], limits: &PolicyLimits) -> Vec<PolicyDecision> {
    let mut history = PassHistory::default();
    samples
        .iter()
        .map(|now| {
            history.push(now);
            decide(policy, &PolicyView { now, history: &history, limits })
        })
        .collect()
}

/// Checks the properties of every policy, and returns its decisions. The same views give the same decisions, and the
/// kernel takes every value. No decision unmerges anything or touches a knob that needs that, and each has a reason and
/// a time.
pub(crate) fn holds_for_any(
    make: impl Fn() -> Box<dyn Policy>,
    samples: &[Sample],
) -> Result<Vec<PolicyDecision>, TestCaseError> {
    let decisions = run(make().as_mut(), samples, &PolicyLimits::default());
    prop_assert_eq!(&run(make().as_mut(), samples, &PolicyLimits::default()), &decisions);
    for decision in &decisions {
        sound(decision)?;
    }
    Ok(decisions)
}

fn sound(decision: &PolicyDecision) -> TestCaseResult {
    for (knob, value) in decision.knobs.iter() {
        prop_assert!(knob.range().contains(&value), "{}={}", knob, value);
        prop_assert!(!knob.needs_nothing_merged(), "{}", knob);
    }
    let knobs = &decision.knobs;
    prop_assert!(knobs.get(Knob::Run).is_none_or(|run| run <= 1));
    prop_assert!(knobs.get(Knob::AdvisorMode) != Some(1) || knobs.get(Knob::PagesToScan).is_none());
    // Without a sleep, a batch of no pages takes a whole CPU for nothing.
    let sleeps = knobs.get(Knob::SleepMillisecs) != Some(0);
    prop_assert!(sleeps || knobs.get(Knob::PagesToScan).is_some_and(|pages| pages > 0));
    prop_assert!(!decision.reason.text.is_empty() && !decision.check_after.is_zero());
    Ok(())
}

/// Small numbers often, so that counters meet and thresholds are crossed; any number now and then.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..5, 4 => 0_u64..100_000, 1 => any::<u64>()]
}

fn reading<T: std::fmt::Debug + Clone + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Reading<T>> {
    prop_oneof![
        8 => value.prop_map(Reading::Value),
        1 => Just(Reading::Absent),
        1 => Just(Reading::Denied),
        1 => Just(Reading::Malformed(Malformed::new(1, "a number", "x"))),
    ]
}

fn any_ksm() -> impl Strategy<Value = Ksm> {
    let mode = prop_oneof![Just(AdvisorMode::None), Just(AdvisorMode::ScanTime)];
    (prop::collection::vec(reading(number()), 15), reading(mode)).prop_map(|(mut numbers, advisor_mode)| {
        let mut next = || numbers.pop().unwrap_or_default();
        Ksm {
            run: next(),
            pages_to_scan: next(),
            sleep_millisecs: next(),
            smart_scan: next(),
            full_scans: next(),
            pages_scanned: next(),
            pages_shared: next(),
            pages_sharing: next(),
            pages_volatile: next(),
            ksm_zero_pages: next().map(u64::cast_signed),
            use_zero_pages: next(),
            advisor_max_cpu: next(),
            advisor_min_pages_to_scan: next(),
            advisor_max_pages_to_scan: next(),
            advisor_target_scan_time: next(),
            advisor_mode,
            ..Ksm::default()
        }
    })
}

fn any_memory() -> impl Strategy<Value = Meminfo> {
    let field = || prop::option::weighted(0.9, prop_oneof![(0_u64..64).prop_map(|gib| gib << 30), any::<u64>()]);
    (field(), field(), field(), field(), field()).prop_map(|(total, free, available, buffers, cached)| Meminfo {
        total,
        free,
        available,
        buffers,
        cached,
        ..Meminfo::default()
    })
}

fn any_process() -> impl Strategy<Value = ProcessSample> {
    (0_u32..6, prop_oneof![0_u64..1 << 24, 0_u64..1 << 54], any::<bool>())
        .prop_map(|(pid, rss_kib, is_vm)| process(pid, rss_kib, is_vm))
}

/// One sample in which anything may be missing or wrong. Its time is seconds from a small range.
fn any_sample() -> impl Strategy<Value = Sample> {
    let processes = prop::collection::vec(any_process(), 0..5);
    let at = prop_oneof![8 => 0_u64..600, 1 => any::<u64>()];
    let page_size = prop_oneof![8 => Just(4096_u64), 1 => any::<u64>()];
    (at, page_size, any_ksm(), reading(number()), reading(any_memory()), processes, 0_u64..2).prop_map(
        |(at, page_size, ksm, ksmd_cpu_ns, memory, processes, hidden_processes)| Sample {
            at: Duration::from_secs(at),
            page_size,
            ksm,
            ksmd_cpu_ns,
            host: HostReadings { memory, ..HostReadings::default() },
            processes,
            hidden_processes,
            ..Sample::default()
        },
    )
}

/// Samples with nothing in common: counters go backwards, sources fail, processes come and go. In half of the
/// sequences time moves on, in the others it jumps about or stands still.
pub(crate) fn any_samples() -> impl Strategy<Value = Vec<Sample>> {
    (prop::collection::vec(any_sample(), 1..30), any::<bool>()).prop_map(|(mut samples, sorted)| {
        if sorted {
            samples.sort_by_key(|sample| sample.at);
        }
        samples
    })
}
