//! The rules for writing each file, and the effects.

use super::*;
use crate::kernel::AdvisorMode;
use crate::knobs::KnobSettings;

#[test]
fn a_booted_kernel_has_the_kernels_defaults() {
    let ksm = SimMachine::new(SimConfig::default()).sample().ksm;
    let defaults = KnobSettings::none()
        .with(Knob::MaxPtesShared, 256)
        .with(Knob::MaxPtesNone, 511)
        .with(Knob::AdvisorMode, 0)
        .with(Knob::AdvisorMaxCpu, 70)
        .with(Knob::AdvisorMinPagesToScan, 500)
        .with(Knob::AdvisorMaxPagesToScan, 30_000)
        .with(Knob::AdvisorTargetScanTime, 200)
        .with(Knob::SmartScan, 1)
        .with(Knob::UseZeroPages, 0)
        .with(Knob::MergeAcrossNodes, 1)
        .with(Knob::MaxPageSharing, 256)
        .with(Knob::StableNodeChainsPruneMillisecs, 2000)
        .with(Knob::PagesToScan, 100)
        .with(Knob::SleepMillisecs, 20)
        .with(Knob::Run, 0);
    assert_eq!(KnobSettings::current(&ksm), defaults);
}

#[test]
fn an_old_kernel_lacks_files_and_refuses_to_write_them() {
    let mut machine = running(KernelVersion::new(6, 1));
    machine.add_guest("a", [5; 4]);
    passes(&mut machine, 10);
    let sample = machine.sample();
    for (field, reading) in sample.ksm.entries() {
        assert_eq!(reading.value().is_some(), field.since <= KernelVersion::new(6, 1), "{}", field.name);
    }
    let stat = sample.processes[0].ksm;
    assert_eq!((stat.rmap_items, stat.zero_pages, stat.process_profit), (Some(4), None, None));
    assert_eq!(machine.write(Knob::SmartScan, 0), Err(KnobRefusal::Absent(Knob::SmartScan)));
    // It also skips nothing.
    assert_eq!(machine.ksmd.skipped, 0);
}

#[test]
fn pages_scanned_of_6_6_misses_the_batch_in_which_a_pass_ends() {
    let scanned = |minor| {
        let mut machine = running(KernelVersion::new(6, minor));
        machine.write(Knob::PagesToScan, 40).unwrap();
        machine.add_guest("a", repeat_n(UNIQUE, 100));
        passes(&mut machine, 1);
        machine.sample().ksm.pages_scanned.get()
    };
    // Two whole batches, each counted as one page too many, against every visit.
    assert_eq!([6, 9, 10, 18].map(scanned), [Some(82), Some(82), Some(100), Some(100)]);
}

#[test]
fn values_out_of_range_are_invalid() {
    let mut machine = today();
    for (knob, value) in [(Knob::Run, 3), (Knob::MaxPageSharing, 1), (Knob::PagesToScan, 1 << 32)] {
        assert_eq!(machine.write(knob, value), Err(KnobRefusal::Invalid { knob, value }));
    }
    assert_eq!(machine.sample().ksm.run.get(), Some(1));
}

#[test]
fn some_knobs_are_busy_until_all_is_unmerged() {
    let mut machine = today();
    machine.add_guest("a", [5; 100]);
    machine.add_guest("b", [ZERO; 100]);
    passes(&mut machine, 2);
    for knob in [Knob::MaxPageSharing, Knob::MergeAcrossNodes] {
        let now = knob.current(&machine.sample().ksm).unwrap();
        assert_eq!(machine.write(knob, now), Ok(()), "the value it has already is no change");
    }
    assert_eq!(machine.write(Knob::MaxPageSharing, 9), Err(KnobRefusal::Merged(Knob::MaxPageSharing)));
    assert_eq!(machine.write(Knob::MergeAcrossNodes, 0), Err(KnobRefusal::Merged(Knob::MergeAcrossNodes)));
    machine.write(Knob::Run, 2).unwrap();
    assert_eq!(gauges(&machine), [0, 0, 0, 0]);
    assert_eq!(machine.sample().ksm.full_scans.get(), Some(0));
    assert_eq!(cow(&machine.sample()), 200);
    machine.write(Knob::MaxPageSharing, 9).unwrap();
    machine.write(Knob::MergeAcrossNodes, 0).unwrap();
    machine.write(Knob::Run, 1).unwrap();
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [0, 0, 0, 200], "after unmerging every visit is the first");
    passes(&mut machine, 1);
    // Of each content eleven frames with nine mappings each, and one page over.
    assert_eq!(gauges(&machine), [22, 176, 2, 0]);
    audit(&machine).unwrap();
}

#[test]
fn unmerging_without_memory_stops_half_way_with_run_0() {
    let config = SimConfig { total_bytes: 1 << 20, other_bytes: 0, ..SimConfig::default() };
    let mut machine = SimMachine::new(config);
    machine.write_all(&KnobSettings::none().with(Knob::PagesToScan, 10_000).with(Knob::Run, 1)).unwrap();
    machine.add_guest("a", 1..=120);
    machine.add_guest("b", 1..=120);
    passes(&mut machine, 3);
    machine.add_guest("c", [UNIQUE; 100]);
    assert_eq!(machine.write(Knob::Run, 2), Err(KnobRefusal::NoMemory));
    assert_eq!(machine.sample().ksm.run.get(), Some(0));
    let broken = cow(&machine.sample());
    assert!((1..120).contains(&broken), "{broken}");
    audit(&machine).unwrap();
}

#[test]
fn pages_to_scan_is_the_advisors_while_it_is_on() {
    let mut machine = today();
    machine.write(Knob::AdvisorMode, 1).unwrap();
    let ksm = machine.sample().ksm;
    assert_eq!((ksm.advisor_mode.get(), ksm.pages_to_scan.get()), (Some(AdvisorMode::ScanTime), Some(500)));
    assert_eq!(machine.write(Knob::PagesToScan, 7), Err(KnobRefusal::Advisor));
    machine.write(Knob::AdvisorMode, 1).unwrap();
    machine.write(Knob::AdvisorMode, 0).unwrap();
    assert_eq!(machine.sample().ksm.pages_to_scan.get(), Some(100));
    machine.write(Knob::PagesToScan, 7).unwrap();
    machine.write(Knob::AdvisorMode, 0).unwrap();
    assert_eq!(machine.sample().ksm.pages_to_scan.get(), Some(7), "what it is already changes nothing");
}

#[test]
fn the_advisor_steers_a_pass_to_its_target_time() {
    let mut machine = SimMachine::new(SimConfig::default());
    machine.write(Knob::SmartScan, 0).unwrap();
    machine.write(Knob::AdvisorMode, 1).unwrap();
    machine.write(Knob::AdvisorTargetScanTime, 10).unwrap();
    machine.write(Knob::Run, 1).unwrap();
    machine.add_guest("a", repeat_n(UNIQUE, 1 << 20));
    // 2^20 pages at 500 in 20 ms: the first pass takes over 42 s, and nothing is corrected before its end.
    machine.advance(Duration::from_secs(40));
    assert_eq!(machine.sample().ksm.pages_to_scan.get(), Some(500));
    machine.advance(Duration::from_secs(600));
    let (before, start) = (machine.ksmd.full_scans, machine.now());
    passes(&mut machine, 5);
    let took = (machine.now() - start).as_secs_f64() / (machine.ksmd.full_scans - before) as f64;
    assert!((8.0..14.0).contains(&took), "{took}");
}

#[test]
fn the_advisor_leaves_an_idle_host_a_tenth_of_a_cpu_to_pay() {
    let mut machine = SimMachine::new(SimConfig::default());
    machine.write(Knob::SmartScan, 0).unwrap();
    machine.write(Knob::AdvisorMode, 1).unwrap();
    machine.write(Knob::Run, 1).unwrap();
    machine.add_guest("a", repeat_n(UNIQUE, 100_000));
    machine.advance(Duration::from_secs(600));
    let (cpu, at) = (machine.ksmd.cpu_ns_at(machine.now_ns), machine.now_ns);
    machine.advance(Duration::from_secs(600));
    let share = (machine.ksmd.cpu_ns_at(machine.now_ns) - cpu) as f64 / (machine.now_ns - at) as f64;
    assert!((0.08..0.13).contains(&share), "{share}");
}
