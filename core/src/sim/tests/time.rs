//! Tests of the times at which ksmd works and sleeps, and of its costs.

use super::*;

/// A machine in which a visit takes a microsecond, and all else takes no time.
fn microseconds() -> SimMachine {
    let costs = SimCosts {
        checksum: 1000,
        unshared: 1000,
        merge: 1000,
        join: 1000,
        zero: 1000,
        merged: 1000,
        skip: 0,
        walk: 0,
        free: 0,
        batch: 0,
        pass: 0,
        write: 0,
        stable_level: 0,
        unstable_level: 0,
        chain: 0,
        split: 0,
        freed: 0,
        collapse: 0,
    };
    let mut machine = SimMachine::new(SimConfig { costs, ..SimConfig::default() });
    machine.write(Knob::SmartScan, 0).unwrap();
    machine.write(Knob::SleepMillisecs, 9).unwrap();
    machine.write(Knob::PagesToScan, 1000).unwrap();
    machine.write(Knob::Run, 1).unwrap();
    machine
}

fn scanned(machine: &SimMachine) -> u64 {
    machine.sample().ksm.pages_scanned.get().unwrap()
}

fn cpu(machine: &SimMachine) -> Duration {
    Duration::from_nanos(machine.sample().ksmd_cpu_ns.get().unwrap())
}

#[test]
fn a_batch_then_a_sleep() {
    let mut machine = microseconds();
    machine.add_guest("a", repeat_n(UNIQUE, 100_000));
    machine.advance(Duration::from_micros(500));
    assert_eq!((scanned(&machine), cpu(&machine)), (500, Duration::from_micros(500)));
    machine.advance(Duration::from_micros(9500));
    assert_eq!((scanned(&machine), cpu(&machine)), (1000, Duration::from_millis(1)));
    machine.advance(Duration::from_millis(990));
    assert_eq!((scanned(&machine), cpu(&machine)), (100_000, Duration::from_millis(100)));
    let times = *machine.sample().host.cpu.value().unwrap();
    assert_eq!((times.busy_ticks, times.idle_ticks, times.cpus), (10, 190, 2));
}

#[test]
fn how_time_is_cut_changes_nothing() {
    let run = |steps: u32| {
        let mut machine = today();
        machine.write(Knob::PagesToScan, 77).unwrap();
        machine.start(GuestPlan::new("a").equal(0, 300).rewritten(30, Duration::from_millis(70)));
        machine.start(GuestPlan::new("b").equal(0, 300).zero(5).starting_at(Duration::from_millis(300)));
        for _ in 0..steps {
            machine.advance(Duration::from_secs(1) / steps);
        }
        format!("{:?}", machine.sample())
    };
    assert_eq!(run(1), run(1000));
    assert_eq!(run(1), run(100_000));
}

#[test]
fn a_step_under_way_is_carried_over() {
    let mut machine = microseconds();
    machine.add_guest("a", repeat_n(UNIQUE, 100));
    machine.advance(Duration::from_nanos(300));
    assert_eq!(cpu(&machine), Duration::from_nanos(300));
    machine.advance(Duration::from_nanos(300));
    assert_eq!((scanned(&machine), cpu(&machine)), (1, Duration::from_nanos(600)));
    machine.advance(Duration::from_nanos(500));
    assert_eq!(scanned(&machine), 2);
}

#[test]
fn the_end_of_a_pass_ends_the_batch() {
    let mut machine = microseconds();
    machine.add_guest("a", repeat_n(UNIQUE, 300));
    machine.advance(Duration::from_millis(9));
    assert_eq!((scanned(&machine), machine.ksmd.full_scans), (300, 1));
    // A batch that ends with the last page leaves the end of the pass to an empty batch of its own.
    let mut machine = microseconds();
    machine.add_guest("a", repeat_n(UNIQUE, 1000));
    machine.advance(Duration::from_micros(9999));
    assert_eq!((scanned(&machine), machine.ksmd.full_scans), (1000, 0));
    machine.advance(Duration::from_micros(2));
    assert_eq!((scanned(&machine), machine.ksmd.full_scans), (1000, 1));
}

#[test]
fn a_changed_sleep_wakes_ksmd_and_a_changed_batch_does_not() {
    let mut machine = microseconds();
    machine.write(Knob::SleepMillisecs, 1_000_000).unwrap();
    machine.add_guest("a", repeat_n(UNIQUE, 10_000));
    machine.advance(Duration::from_secs(1));
    assert_eq!(scanned(&machine), 1000);
    machine.write(Knob::PagesToScan, 50).unwrap();
    machine.write(Knob::SleepMillisecs, 1_000_000).unwrap();
    machine.advance(Duration::from_secs(1));
    assert_eq!(scanned(&machine), 1000);
    machine.write(Knob::SleepMillisecs, 999_999).unwrap();
    machine.advance(Duration::from_secs(1));
    assert_eq!(scanned(&machine), 1050);
}

#[test]
fn writing_run_waits_for_the_end_of_the_batch() {
    let mut machine = microseconds();
    machine.add_guest("a", repeat_n(UNIQUE, 10_000));
    machine.advance(Duration::from_micros(100));
    machine.write(Knob::SmartScan, 1).unwrap();
    assert_eq!(machine.now(), Duration::from_micros(100));
    machine.write(Knob::Run, 0).unwrap();
    assert_eq!((machine.now(), scanned(&machine)), (Duration::from_millis(1), 1000));
    machine.advance(Duration::from_secs(3600));
    assert_eq!((scanned(&machine), cpu(&machine)), (1000, Duration::from_millis(1)));
}

#[test]
fn an_empty_batch_costs_a_wake_up_and_without_sleep_a_whole_cpu() {
    let mut machine = SimMachine::new(SimConfig::default());
    machine.add_guest("a", repeat_n(UNIQUE, 100));
    machine.write(Knob::PagesToScan, 0).unwrap();
    machine.write(Knob::Run, 1).unwrap();
    let wake_up = machine.config.costs.batch;
    machine.advance(Duration::from_secs(3600));
    let wake_ups = 3600 * 1_000_000_000 / (20_000_000 + wake_up);
    assert!(cpu(&machine).as_nanos().abs_diff(u128::from(wake_ups * wake_up)) <= u128::from(wake_up));
    machine.write(Knob::SleepMillisecs, 0).unwrap();
    let before = cpu(&machine);
    machine.advance(Duration::from_secs(3600));
    assert_eq!(cpu(&machine) - before, Duration::from_secs(3600));
    assert_eq!(scanned(&machine), 0);
    machine.write(Knob::PagesToScan, 10).unwrap();
    machine.advance(Duration::from_millis(1));
    assert!(scanned(&machine) >= 100);
}

#[test]
fn ksmd_waits_without_guests() {
    let mut machine = today();
    machine.advance(Duration::from_secs(3600));
    assert_eq!((cpu(&machine), machine.ksmd.full_scans), (Duration::ZERO, 0));
    machine.add_guest("a", [5; 10]);
    machine.advance(Duration::from_millis(50));
    assert!(machine.ksmd.full_scans > 10);
}

#[test]
fn a_ksmd_that_gets_half_a_cpu_takes_twice_the_time() {
    let machine = |ksmd_share_permille| {
        let mut machine = SimMachine::new(SimConfig { ksmd_share_permille, ..SimConfig::default() });
        machine.add_guest("a", repeat_n(UNIQUE, 10_000));
        for (knob, value) in [(Knob::SmartScan, 0), (Knob::SleepMillisecs, 0), (Knob::Run, 1)] {
            machine.write(knob, value).unwrap();
        }
        machine
    };
    let (mut whole, mut half) = (machine(1000), machine(500));
    whole.advance(Duration::from_secs(1));
    half.advance(Duration::from_secs(2));
    assert_eq!(scanned(&whole), scanned(&half));
    assert!(cpu(&half).abs_diff(cpu(&whole)) < Duration::from_millis(1), "{:?}, {:?}", cpu(&half), cpu(&whole));
    assert_eq!(cpu(&half), Duration::from_secs(1));
}

#[test]
fn full_frames_of_empty_pages_make_each_visit_dearer() {
    let second_passes = |chain, empty: usize| {
        let mut machine =
            SimMachine::new(SimConfig { costs: SimCosts { chain, ..SimCosts::default() }, ..SimConfig::default() });
        machine.add_guest("a", repeat_n(ZERO, empty).chain(repeat_n(UNIQUE, 1000)));
        for (knob, value) in [(Knob::SmartScan, 0), (Knob::PagesToScan, 100_000), (Knob::Run, 1)] {
            machine.write(knob, value).unwrap();
        }
        while machine.figures().passes < 3 {
            machine.advance(Duration::from_millis(10));
        }
        cpu(&machine)
    };
    let more = |empty| second_passes(1000, empty) - second_passes(0, empty);
    // Two passes in which each of the 1,000 pages passes four frames, and empty pages that pass some of them.
    let full = more(1024);
    assert!(full >= Duration::from_millis(8) && full < Duration::from_millis(9), "{full:?}");
    assert!(more(1023) < Duration::from_millis(3), "the last frame has room, and is found first");
}
