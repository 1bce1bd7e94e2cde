//! The assumptions of core's policies about the kernel, checked on the live one: that it accepts their decisions, and
//! the start of the kernel's advisor.

use crate::support;
use std::fs;
use std::time::Duration;

use crate::support::{A_HANDFUL, KSM, KernelLock, guest, ksm, number, wait_until, write, zero_pages};
use ksmith_core::decide::{
    AdvisorConfig, AdvisorPolicy, FixedPolicy, KsmtunedConfig, KsmtunedPolicy, PassHistory, Policy, PolicyDecision,
    PolicyLimits, PolicyView, ScoreConfig, ScorePolicy,
};
use ksmith_core::kernel::{HostReadings, KernelFileSource, Ksm, Meminfo};
use ksmith_core::knobs::Knob;
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};
use ksmith_lab::MemoryPart;

/// The live KSM directory.
#[derive(Default)]
struct LiveKsmFiles(String);

impl KernelFileSource for LiveKsmFiles {
    fn text(&mut self, path: &'static str) -> Reading<&str> {
        match fs::read_to_string(path) {
            Ok(text) => {
                self.0 = text;
                Reading::Value(&self.0)
            }
            Err(_) => Reading::Absent,
        }
    }
}

/// A policy on the live KSM, with a clock and a process list of the test's own.
struct PolicyFixture {
    policy: Box<dyn Policy>,
    history: PassHistory,
    seconds: u64,
    guests: Vec<ProcessSample>,
}

impl PolicyFixture {
    fn new(policy: impl Policy + 'static) -> Self {
        Self { policy: Box::new(policy), history: PassHistory::default(), seconds: 0, guests: Vec::new() }
    }

    fn guest(mut self, pid: u32) -> Self {
        self.guests.push(ProcessSample::new(ProcessId { pid, start_ticks: 1 }, "guest".into(), true));
        self
    }

    /// Samples KSM a second later, decides, and writes every setting that differs.
    fn apply_decision(&mut self) -> PolicyDecision {
        self.seconds += 1;
        let memory = Meminfo { total: Some(1 << 34), free: Some(1 << 30), ..Meminfo::default() };
        let now = Sample {
            at: Duration::from_secs(self.seconds),
            page_size: 4096,
            ksm: Ksm::read(&mut LiveKsmFiles::default()),
            host: HostReadings { memory: Reading::Value(memory), ..HostReadings::default() },
            processes: self.guests.clone(),
            ..Sample::default()
        };
        self.history.push(&now);
        let decision =
            self.policy.decide(&PolicyView { now: &now, history: &self.history, limits: &PolicyLimits::default() });
        for (knob, value) in decision.knobs.iter() {
            let ksm = Ksm::read(&mut LiveKsmFiles::default());
            if knob.current(&ksm).is_some_and(|current| current != value) {
                write(knob.name(), &knob.text(value));
            }
        }
        decision
    }
}

fn has_advisor() -> bool {
    let has = fs::exists(format!("{KSM}/advisor_mode")).unwrap_or(false);
    if !has {
        support::skipped("this kernel has no advisor");
    }
    has
}

#[test]
fn the_kernel_takes_what_every_policy_decides_even_from_its_advisor() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !has_advisor() {
        return;
    }
    let desks = [
        PolicyFixture::new(FixedPolicy::preset("kernel-default").unwrap()),
        PolicyFixture::new(FixedPolicy::preset("morfik").unwrap()),
        PolicyFixture::new(KsmtunedPolicy::new(KsmtunedConfig::default())),
        PolicyFixture::new(ScorePolicy::new(ScoreConfig::default())).guest(1),
    ];
    for mut desk in desks {
        write("advisor_mode", "scan-time");
        let decision = desk.apply_decision();
        let ksm = Ksm::read(&mut LiveKsmFiles::default());
        for (knob, value) in decision.knobs.iter() {
            assert_eq!(knob.current(&ksm), Some(value), "{knob} after {}", desk.policy.name());
        }
        assert!(decision.knobs.get(Knob::PagesToScan).is_some(), "{}", desk.policy.name());
        assert_eq!(ksm.advisor_mode.get().map(|mode| mode.word()), Some("none"), "{}", desk.policy.name());
        // And a second look finds nothing left to do.
        assert_eq!(desk.apply_decision().knobs.differing_from(&ksm).to_string(), "", "{}", desk.policy.name());
        write("run", "0");
    }
}

#[test]
fn the_advisor_starts_from_its_least_pages_at_the_moment_it_is_switched_on() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !has_advisor() {
        return;
    }
    let config = AdvisorConfig { min_pages_to_scan: Some(1234), ..AdvisorConfig::default() };
    let mut desk = PolicyFixture::new(AdvisorPolicy::new(config));
    assert_eq!(desk.apply_decision().reason.state, "handing-over");
    assert_eq!((ksm("advisor_mode").as_str(), number("pages_to_scan")), ("none [scan-time]", 1234));
    // Later it makes no difference: this is why parameters are written before the mode.
    write("advisor_min_pages_to_scan", "4321");
    assert_eq!(number("pages_to_scan"), 1234);
    let refused = fs::write(format!("{KSM}/pages_to_scan"), "100").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    assert!(desk.apply_decision().reason.text.contains("scans 1234 pages a batch"));
}

#[test]
fn score_merges_two_guests_and_stops() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let parts = [MemoryPart::Equal { seed: 7, pages: 4096 }];
    let _guests = [guest(&parts), guest(&parts)];
    let mut desk = PolicyFixture::new(ScorePolicy::new(ScoreConfig::default())).guest(1).guest(2);
    // The clock stands at a second per look whatever a look takes: too little for a try after the stop.
    let mut states = Vec::new();
    wait_until("the score falls to 0", || {
        let decision = desk.apply_decision();
        states.push(decision.reason.state);
        decision.reason.state == "stopped"
    });
    assert_eq!(states.first(), Some(&"scanning"));
    assert_eq!((number("pages_to_scan"), number("run")), (0, 1));
    // Each pair of pages is one frame now.
    let saved = number("pages_sharing") + zero_pages();
    assert!((4096 - A_HANDFUL..=4096).contains(&saved), "{saved}");
}
