use proptest::prelude::*;

use super::*;
use crate::decide::testing::{PolicyTestHost, any_samples, holds_for_any};
use crate::kernel::{AdvisorMode, Ksm};

const GIB: u64 = 1 << 20;

fn policy() -> KsmtunedPolicy {
    KsmtunedPolicy::new(KsmtunedConfig::default())
}

/// Returns the batch after another look at a host of 16 GiB, of which 3,355,443 KiB should be free.
fn pages(host: &mut PolicyTestHost, policy: &mut KsmtunedPolicy) -> Option<u64> {
    host.after(60).decide(policy).knobs.get(Knob::PagesToScan)
}

#[test]
fn sleep_and_threshold_follow_the_hosts_memory() {
    let config = KsmtunedConfig::default();
    let gib = |gib: i64| HostScale::from_total(&config, gib << 20);
    assert_eq!(gib(16), HostScale { total: 16 << 20, sleep: 10, thres: 3_355_443 });
    assert_eq!(gib(64).sleep, 10);
    assert_eq!(gib(4).sleep, 40);
    assert_eq!(gib(3).sleep, 53);
    // The constant counts only on hosts under 10 MiB: the original's 2048 are KiB and not MiB.
    assert_eq!(HostScale::from_total(&config, 10_239).thres, 2048);
    assert_eq!(HostScale::from_total(&config, 10_245).thres, 2049);
    let proxmox = KsmtunedConfig { sleep_msec: 100, ..config };
    assert_eq!(HostScale::from_total(&proxmox, 64 << 20).sleep, 25);
}

#[test]
fn a_host_with_enough_memory_is_not_scanned() {
    let mut host = PolicyTestHost::linux_6_18();
    let decision = host.vm(1, 4 * GIB).decide(&mut policy());
    assert_eq!(decision.knobs, KnobSettings::none().with(Knob::Run, 0));
    assert_eq!(
        format!("{:#}", decision.reason),
        "stop: enough memory is free: no need to scan \
         (guests hold 4.00 GiB of 16.0 GiB, and 8.00 GiB is free, more than 3.20 GiB; looks every 1 min)"
    );
    assert_eq!(decision.check_after, Duration::from_secs(60));
}

#[test]
fn short_memory_boosts_and_ample_memory_decays_within_the_bounds() {
    let mut host = PolicyTestHost::linux_6_18();
    let mut policy = policy();
    host.vm(1, 14 * GIB).memory(16 * GIB, 2 * GIB);
    let looks: Vec<_> = (0..6).map(|_| pages(&mut host, &mut policy).unwrap()).collect();
    assert_eq!(looks, [300, 600, 900, 1200, 1250, 1250]);
    host.memory(16 * GIB, 8 * GIB);
    let looks: Vec<_> = (0..25).map(|_| pages(&mut host, &mut policy).unwrap()).collect();
    assert_eq!(looks[..3], [1200, 1150, 1100]);
    assert_eq!(looks[22..], [100, 64, 64]);
    let reason = host.after(60).decide(&mut policy).reason;
    assert_eq!(
        format!("{reason:#}"),
        "decay: enough memory is free, but guests hold much: ksmd scans less \
         (8.00 GiB is free, 3.20 GiB is enough, and guests hold 14.0 GiB of 16.0 GiB; \
         64 pages (before: 64) every 10 ms; looks every 1 min)"
    );
}

#[test]
fn a_stop_does_not_forget_the_speed() {
    let mut host = PolicyTestHost::linux_6_18();
    let mut policy = policy();
    host.vm(1, 14 * GIB).memory(16 * GIB, 2 * GIB);
    assert_eq!(pages(&mut host, &mut policy), Some(300));
    host.exit(1).memory(16 * GIB, 12 * GIB);
    assert_eq!(pages(&mut host, &mut policy), None);
    host.vm(2, 14 * GIB).memory(16 * GIB, 2 * GIB);
    assert_eq!(pages(&mut host, &mut policy), Some(600));
}

#[test]
fn exactly_at_the_threshold_it_decays() {
    let mut host = PolicyTestHost::linux_6_18();
    host.memory(16 * GIB, 3_355_443);
    assert_eq!(host.decide(&mut policy()).reason.state, "decay");
    host.memory(16 * GIB, 3_355_442);
    assert_eq!(host.decide(&mut policy()).reason.state, "boost");
    host.memory(16 * GIB, 3_355_444);
    assert_eq!(host.decide(&mut policy()).reason.state, "stop");
    host.vm(1, 16 * GIB - 3_355_443);
    assert_eq!(host.decide(&mut policy()).reason.state, "decay");
}

#[test]
fn caches_count_as_free_and_programs_are_no_guests() {
    let mut host = PolicyTestHost::linux_6_18();
    host.program(7, 15 * GIB).memory(16 * GIB, GIB);
    if let Reading::Value(memory) = &mut host.sample.host.memory {
        memory.buffers = Some(GIB * 1024);
        memory.cached = Some(2 * GIB * 1024);
    }
    assert_eq!(host.decide(&mut policy()).reason.state, "stop");
}

#[test]
fn between_two_looks_nothing_moves_unless_a_vm_starts_or_ends() {
    let mut host = PolicyTestHost::linux_6_18();
    let mut policy = policy();
    let first = host.vm(1, 14 * GIB).memory(16 * GIB, 2 * GIB).decide(&mut policy);
    let next = host.after(20).decide(&mut policy);
    assert_eq!(next.knobs, first.knobs);
    assert_eq!(next.check_after, Duration::from_secs(40));
    let started = host.after(1).vm(2, GIB).decide(&mut policy);
    assert_eq!(started.knobs.get(Knob::PagesToScan), Some(600));
    assert_eq!(host.after(1).exit(2).decide(&mut policy).knobs.get(Knob::PagesToScan), Some(900));
    assert_eq!(host.after(59).decide(&mut policy).knobs.get(Knob::PagesToScan), Some(900));
    assert_eq!(host.after(1).decide(&mut policy).knobs.get(Knob::PagesToScan), Some(1200));
}

#[test]
fn without_memory_figures_it_says_so_and_changes_nothing() {
    let mut host = PolicyTestHost::linux_6_18();
    let mut policy = policy();
    for (memory, why) in [
        (Reading::Absent, "there is none"),
        (Reading::Denied, "it may not be read"),
        (Reading::Value(Meminfo::default()), "it lacks MemTotal or MemFree"),
        (Reading::Value(Meminfo { total: Some(0), free: Some(0), ..Meminfo::default() }), "it lacks MemTotal"),
    ] {
        host.sample.host.memory = memory;
        let decision = host.decide(&mut policy);
        assert_eq!((decision.knobs, decision.reason.state), (KnobSettings::none(), "blind"));
        assert!(decision.reason.text.contains(why), "{}", decision.reason);
    }
    // And it goes on as if it had not looked.
    host.memory(16 * GIB, 2 * GIB);
    assert_eq!(host.decide(&mut policy).knobs.get(Knob::PagesToScan), Some(300));
}

#[test]
fn the_kernels_advisor_is_switched_off_to_scan_and_left_alone_to_stop() {
    let mut host = PolicyTestHost::linux_6_18();
    host.sample.ksm.advisor_mode = Reading::Value(AdvisorMode::ScanTime);
    assert_eq!(host.decide(&mut policy()).knobs.get(Knob::AdvisorMode), None);
    host.memory(16 * GIB, 2 * GIB);
    assert_eq!(host.decide(&mut policy()).knobs.get(Knob::AdvisorMode), Some(0));
    assert_eq!(host.sample.ksm.pages_to_scan, Reading::Value(300));
}

#[test]
fn an_old_kernel_is_enough_and_none_is_not() {
    let mut host = PolicyTestHost::linux_6_1();
    assert_eq!(host.memory(16 * GIB, 2 * GIB).decide(&mut policy()).reason.state, "boost");
    host.sample.ksm = Ksm::default();
    let decision = host.decide(&mut policy());
    assert_eq!((decision.knobs, decision.reason.state), (KnobSettings::none(), "no-ksm"));
}

#[test]
fn the_configuration_has_the_originals_names() {
    let config: KsmtunedConfig = toml::from_str("sleep_msec = 100\nmonitor_interval_seconds = 10").unwrap();
    assert_eq!(config.sleep_msec, 100);
    assert_eq!(config.npages_max, 1250);
    assert!(toml::from_str::<KsmtunedConfig>("monitor_interval_seconds = 0").is_err());
    let error = toml::from_str::<KsmtunedConfig>("\nsleep_ms = 100").unwrap_err().to_string();
    assert!(error.contains("line 2, column 1") && error.contains("sleep_msec"), "{error}");
}

fn any_config() -> impl Strategy<Value = KsmtunedConfig> {
    let number = any::<u32>;
    (1..=u32::MAX, any::<i32>(), any::<i32>(), number(), number(), number(), number(), number()).prop_map(
        |(interval, npages_boost, npages_decay, a, b, sleep_msec, thres_coef, thres_const)| KsmtunedConfig {
            monitor_interval_seconds: NonZeroU32::new(interval).unwrap(),
            npages_boost,
            npages_decay,
            npages_min: a.min(b),
            npages_max: a.max(b),
            sleep_msec,
            thres_coef,
            thres_const,
        },
    )
}

proptest! {
    #[test]
    fn any_host_is_scanned_within_the_bounds(
        samples in any_samples(),
        config in prop_oneof![Just(KsmtunedConfig::default()), any_config()],
    ) {
        for decision in holds_for_any(|| Box::new(KsmtunedPolicy::new(config.clone())), &samples)? {
            if let Some(pages) = decision.knobs.get(Knob::PagesToScan) {
                prop_assert!((u64::from(config.npages_min)..=u64::from(config.npages_max)).contains(&pages));
                prop_assert!(decision.knobs.get(Knob::SleepMillisecs).is_some_and(|ms| ms >= 10));
                prop_assert_eq!(decision.knobs.get(Knob::Run), Some(1));
            }
        }
    }
}
