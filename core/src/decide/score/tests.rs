use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::decide::testing::{PolicyTestHost, any_samples, holds_for_any, run};
use crate::kernel::AdvisorMode;
use crate::reading::Reading;

fn policy() -> ScorePolicy {
    ScorePolicy::new(ScoreConfig::default())
}

fn pages(decision: &PolicyDecision) -> u64 {
    decision.knobs.get(Knob::PagesToScan).unwrap()
}

/// A host with two VMs that have had their passes and merge nothing more: stopped just now.
fn settled(policy: &mut ScorePolicy) -> PolicyTestHost {
    let mut host = PolicyTestHost::linux_6_18();
    host.vm(1, 4 << 20).vm(2, 4 << 20).decide(policy);
    for _ in 0..3 {
        host.pass(30, 0).decide(policy);
    }
    assert_eq!(host.sample.ksm.pages_to_scan, Reading::Value(0));
    host
}

/// Seconds until `host` is scanned again.
fn seconds_stopped(host: &mut PolicyTestHost, policy: &mut ScorePolicy) -> u64 {
    (1..100_000).find(|_| pages(&host.after(1).decide(policy)) > 0).unwrap()
}

#[test]
fn a_vm_that_starts_has_two_passes_at_full_speed_and_one_at_half() {
    let mut policy = policy();
    let mut host = PolicyTestHost::linux_6_18();
    let first = host.vm(1, 4 << 20).decide(&mut policy);
    assert_eq!(first.knobs.to_string(), "smart_scan=0 pages_to_scan=3000 sleep_millisecs=20 run=1");
    assert_eq!(
        format!("{:#}", first.reason),
        "scanning: 3000 pages a batch (score 3000 = VMs 3000 (1 runs) + sharing 0 (last pass: 0 B saved) + idle 0)"
    );
    let speeds: Vec<_> = (0..4).map(|_| pages(&host.pass(30, 0).decide(&mut policy))).collect();
    assert_eq!(speeds, [3000, 1500, 0, 0]);
    assert_eq!(pages(&host.after(1).vm(2, 4 << 20).decide(&mut policy)), 3000);
}

#[test]
fn speed_stays_while_a_pass_goes_on() {
    let mut policy = policy();
    let mut host = PolicyTestHost::linux_6_18();
    host.vm(1, 4 << 20).decide(&mut policy);
    assert!((0..1000).all(|_| pages(&host.after(1).decide(&mut policy)) == 3000));
}

#[test]
fn passes_that_save_keep_ksmd_going_by_what_they_save() {
    let mut policy = policy();
    let mut host = settled(&mut policy);
    assert_eq!(pages(&host.pass(0, 9_999).decide(&mut policy)), 0);
    assert_eq!(pages(&host.pass(0, 12_345).decide(&mut policy)), 1234);
    let decision = host.pass(30, 50_000).decide(&mut policy);
    assert_eq!(pages(&decision), 3000);
    let detail = decision.reason.detail.unwrap();
    assert!(detail.contains("sharing 3000 (last pass: 195 MiB saved)"), "{detail}");
    assert_eq!(pages(&host.pass(30, -50_000).decide(&mut policy)), 0);
}

#[test]
fn several_short_passes_between_two_looks_count_one_by_one() {
    let mut policy = policy();
    let mut host = settled(&mut policy);
    for _ in 0..4 {
        host.pass(0, 15_000);
    }
    assert_eq!(pages(&host.decide(&mut policy)), 1500);
}

#[test]
fn zero_pages_are_saved_pages() {
    let mut policy = policy();
    let mut host = settled(&mut policy);
    host.sample.ksm.ksm_zero_pages = Reading::Value(20_000);
    assert_eq!(pages(&host.pass(0, 0).decide(&mut policy)), 2000);
}

#[test]
fn a_stopped_host_is_tried_again_ever_later() {
    let mut policy = policy();
    let mut host = settled(&mut policy);
    for stop in 1..=5 {
        assert_eq!(seconds_stopped(&mut host, &mut policy), 50 * stop);
        let started = host.decide(&mut policy);
        assert_eq!(pages(&started), 1000);
        assert!(started.reason.detail.unwrap().contains("idle 1000"));
        assert_eq!(pages(&host.pass(30, 0).decide(&mut policy)), 1000);
        assert_eq!(pages(&host.pass(30, 0).decide(&mut policy)), 0);
    }
    let reason = host.after(90).decide(&mut policy).reason;
    assert_eq!(
        format!("{reason:#}"),
        "stopped: little to gain: ksmd stands for 1 min 30 s \
         (score 300 = VMs 0 (2 run) + sharing 0 (last pass: 0 B saved) + idle 300, under 1000; stop 6)"
    );
}

#[test]
fn a_vm_that_starts_makes_earlier_stops_forgotten() {
    let mut policy = policy();
    let mut host = settled(&mut policy);
    for _ in 0..3 {
        seconds_stopped(&mut host, &mut policy);
        host.pass(30, 0).decide(&mut policy);
        host.pass(30, 0).decide(&mut policy);
    }
    host.vm(3, 1 << 20).decide(&mut policy);
    for _ in 0..3 {
        host.pass(30, 0).decide(&mut policy);
    }
    assert_eq!(seconds_stopped(&mut host, &mut policy), 50);
}

#[test]
fn without_vms_programs_count_and_do_not_start_when_the_last_vm_ends() {
    let mut policy = policy();
    let mut host = PolicyTestHost::linux_6_18();
    assert_eq!(pages(&host.program(8, 1 << 20).decide(&mut policy)), 3000);
    let mut host = settled(&mut policy);
    assert_eq!(pages(&host.program(8, 1 << 20).after(1).decide(&mut policy)), 0);
    assert_eq!(pages(&host.exit(1).exit(2).after(1).decide(&mut policy)), 0);
    assert_eq!(pages(&host.program(9, 1 << 20).after(1).decide(&mut policy)), 3000);
}

#[test]
fn an_empty_host_is_not_scanned_and_not_tried() {
    let mut policy = policy();
    let mut host = PolicyTestHost::linux_6_18();
    assert!((0..500).all(|_| pages(&host.after(1).decide(&mut policy)) == 0));
    assert_eq!(host.decide(&mut policy).reason.to_string(), "stopped: nothing runs that could be merged");
    // Unless there are processes that can't be seen into.
    host.sample.hidden_processes = 1;
    host.decide(&mut policy);
    assert_eq!(seconds_stopped(&mut host, &mut policy), 50);
}

#[test]
fn an_unmerge_forgets_what_passes_gained() {
    let mut policy = policy();
    let mut host = settled(&mut policy);
    assert_eq!(pages(&host.pass(0, 30_000).decide(&mut policy)), 3000);
    host.sample.ksm.full_scans = Reading::Value(0);
    host.sample.ksm.pages_sharing = Reading::Value(0);
    assert_eq!(pages(&host.after(1).decide(&mut policy)), 0);
    assert_eq!(pages(&host.pass(0, 20_000).decide(&mut policy)), 2000);
}

#[test]
fn old_kernels_do_and_unreadable_counters_do_not() {
    let mut policy = policy();
    let mut host = PolicyTestHost::linux_6_1();
    assert_eq!(pages(&host.vm(1, 4 << 20).decide(&mut policy)), 3000);
    assert_eq!(host.sample.ksm.pages_to_scan, Reading::Value(3000));
    host.sample.ksm.full_scans = Reading::Denied;
    let decision = host.decide(&mut policy);
    assert_eq!(decision.knobs, KnobSettings::none());
    assert_eq!(decision.reason.to_string(), "blind: needs full_scans, its reading is denied; nothing is changed");
    host.sample.ksm = Ksm::default();
    assert_eq!(host.decide(&mut policy).reason.state, "no-ksm");
}

#[test]
fn the_kernels_advisor_is_switched_off() {
    let mut host = PolicyTestHost::linux_6_18();
    host.sample.ksm.advisor_mode = Reading::Value(AdvisorMode::ScanTime);
    let decision = host.vm(1, 4 << 20).decide(&mut policy());
    assert_eq!(decision.knobs.get(Knob::AdvisorMode), Some(0));
    assert_eq!(host.sample.ksm.pages_to_scan, Reading::Value(3000));
}

#[test]
fn smart_scan_is_left_alone_if_so_configured() {
    let config: ScoreConfig = toml::from_str("smart_scan = true\ninterval_seconds = 5").unwrap();
    let decision = PolicyTestHost::linux_6_18().vm(1, 4 << 20).decide(&mut ScorePolicy::new(config));
    assert_eq!(decision.knobs.get(Knob::SmartScan), None);
    assert_eq!(decision.check_after, Duration::from_secs(5));
}

#[test]
fn constants_that_divide_may_not_be_zero() {
    for bad in ["interval_seconds = 0", "sharing_pages_per_point = 0", "sleep_millisecs = 0", "idle_passes = 0"] {
        let error = toml::from_str::<ScoreConfig>(bad).unwrap_err().to_string();
        assert!(error.contains("line 1, column") && error.contains("nonzero"), "{bad}: {error}");
    }
    assert!(toml::from_str::<ScoreConfig>("vm_count = 3000").is_err());
}

fn any_config() -> impl Strategy<Value = ScoreConfig> {
    let number = || prop_oneof![0_u32..5000, any::<u32>()];
    let above_zero = |most: u32| (1..=most).prop_map(|n| NonZeroU32::new(n).unwrap());
    let numbers = (number(), number(), number(), number(), number());
    let above = (above_zero(u32::MAX), above_zero(1000), above_zero(u32::MAX), above_zero(5));
    (numbers, above, any::<bool>()).prop_map(|((a, b, c, d, e), (f, g, h, i), smart_scan)| ScoreConfig {
        interval_seconds: f,
        sleep_millisecs: h,
        smart_scan,
        vm_count_full: a,
        vm_count_passes: b,
        vm_count_decay_per_pass: c,
        sharing_pages_per_point: g,
        idle_growth_per_second: d,
        idle_slowdown_percent: e,
        idle_passes: i,
    })
}

proptest! {
    #[test]
    fn any_host_is_scanned_fast_enough_to_be_of_use_or_not_at_all(
        samples in any_samples(),
        config in prop_oneof![Just(ScoreConfig::default()), any_config()],
    ) {
        for decision in holds_for_any(|| Box::new(ScorePolicy::new(config.clone())), &samples)? {
            if let Some(pages) = decision.knobs.get(Knob::PagesToScan) {
                prop_assert!(pages == 0 || (THRESHOLD..=FULL).contains(&pages), "{}", pages);
            }
        }
    }

    #[test]
    fn time_that_stands_still_never_starts_ksmd(samples in any_samples()) {
        // Without passes and VMs only time could.
        let mut samples = samples;
        for sample in &mut samples {
            sample.at = Duration::from_secs(7);
            sample.processes.clear();
            sample.ksm.full_scans = Reading::Value(3);
        }
        for decision in run(&mut policy(), &samples, &Default::default()) {
            prop_assert!(decision.knobs.get(Knob::PagesToScan).is_none_or(|pages| pages == 0));
        }
    }
}
