//! A ksmd under a lease: its sleep is a day, and each new value of `sleep_millisecs` has it make one batch.

use super::*;
use crate::lease::{BatchParts, PacerStep, SleepingKsmd, WakePacer, next_value};
use crate::sample::BoundaryPause;

/// A machine with ksmd under a lease, and with settings that let ksmd use a whole CPU.
fn leased() -> SimMachine {
    let mut machine = today();
    machine.add_guest("a", repeat_n(UNIQUE, 400_000));
    machine.write(Knob::SmartScan, 0).unwrap();
    machine.write(Knob::PagesToScan, 1250).unwrap();
    machine.write(Knob::SleepMillisecs, next_value(20)).unwrap();
    machine.write(Knob::Run, 1).unwrap();
    machine
}

fn sleep_ms(machine: &SimMachine) -> u64 {
    machine.sample().ksm.sleep_millisecs.get().unwrap()
}

fn scanned(machine: &SimMachine) -> u64 {
    machine.sample().ksm.pages_scanned.get().unwrap()
}

fn cpu_ns(machine: &SimMachine) -> u64 {
    machine.sample().ksmd_cpu_ns.get().unwrap()
}

fn full_scans(machine: &SimMachine) -> u64 {
    machine.sample().ksm.full_scans.get().unwrap()
}

fn pacer(sleep_ms: u64) -> WakePacer {
    WakePacer::new(Duration::from_millis(sleep_ms), 1)
}

/// Wakes ksmd as the pacer says, for as long as `time`.
fn wake(machine: &mut SimMachine, pacer: &mut WakePacer, time: Duration) {
    let end = machine.now() + time;
    while machine.now() < end {
        let asleep =
            machine.is_asleep().then(|| SleepingKsmd { cpu_ns: cpu_ns(machine), full_scans: full_scans(machine) });
        let after = match pacer.record_look(machine.now(), asleep) {
            PacerStep::Look(after) => after,
            PacerStep::Wake(after) => {
                machine.write(Knob::SleepMillisecs, next_value(sleep_ms(machine))).unwrap();
                after
            }
        };
        machine.advance(after);
    }
}

#[test]
fn each_new_value_has_ksmd_make_one_batch() {
    let mut machine = leased();
    for batches in 1..20 {
        machine.advance(Duration::from_secs(60));
        assert_eq!(scanned(&machine), batches * 1250);
        assert!(machine.is_asleep());
        let value = next_value(sleep_ms(&machine));
        machine.write(Knob::SleepMillisecs, value).unwrap();
    }
}

#[test]
fn a_value_that_comes_while_ksmd_scans_is_not_heard() {
    let mut machine = leased();
    machine.advance(Duration::from_micros(500));
    assert!(!machine.is_asleep());
    let value = next_value(sleep_ms(&machine));
    machine.write(Knob::SleepMillisecs, value).unwrap();
    machine.advance(Duration::from_secs(60));
    assert_eq!(scanned(&machine), 1250);
}

#[test]
fn under_a_lease_ksmd_scans_as_fast_as_without_a_sleep() {
    let time = Duration::from_secs(5);
    let mut machine = leased();
    wake(&mut machine, &mut pacer(0), time);
    let mut free = leased();
    free.write(Knob::SleepMillisecs, 0).unwrap();
    free.advance(time);
    let ratio = scanned(&machine) as f64 / scanned(&free) as f64;
    assert!(ratio > 0.97, "{ratio}");
}

#[test]
fn under_a_lease_ksmd_sleeps_as_long_as_without() {
    let time = Duration::from_secs(20);
    for sleep in [2, 20, 100] {
        let mut machine = leased();
        wake(&mut machine, &mut pacer(sleep), time);
        let mut free = leased();
        free.write(Knob::SleepMillisecs, sleep).unwrap();
        free.advance(time);
        let ratio = scanned(&machine) as f64 / scanned(&free) as f64;
        assert!((0.95..1.01).contains(&ratio), "{ratio} at {sleep} ms");
    }
}

#[test]
fn ksmd_stops_when_nothing_wakes_it_at_whatever_moment() {
    let mut machine = leased();
    let mut pacer = pacer(0);
    for moment in 0..200 {
        wake(&mut machine, &mut pacer, Duration::from_micros(50_000 + 37 * moment));
        let mut left_alone = machine.clone();
        left_alone.advance(Duration::from_secs(2));
        let before = cpu_ns(&left_alone);
        left_alone.advance(Duration::from_secs(3600));
        assert_eq!(cpu_ns(&left_alone), before);
        assert!(scanned(&left_alone) <= scanned(&machine) + 2 * 1250);
    }
}

#[test]
fn a_long_batch_is_made_in_parts_and_no_sleep_between_two_passes_is_left_out() {
    let (sleep, pages) = (Duration::from_millis(500), 60_000);
    let parts = BatchParts::from_batch(pages);
    let mut machine = today();
    machine.add_guest("a", repeat_n(UNIQUE, 100_000));
    machine.write(Knob::SmartScan, 0).unwrap();
    machine.write(Knob::PagesToScan, parts.pages).unwrap();
    machine.write(Knob::SleepMillisecs, next_value(20)).unwrap();
    machine.write(Knob::Run, 1).unwrap();
    let mut pacer = WakePacer::new(sleep, parts.count);
    let (mut passes, mut slept) = (full_scans(&machine), Duration::ZERO);
    for _ in 0..20_000 {
        let before = (machine.now(), cpu_ns(&machine));
        wake(&mut machine, &mut pacer, Duration::from_millis(1));
        slept += (machine.now() - before.0).saturating_sub(Duration::from_nanos(cpu_ns(&machine) - before.1));
        if full_scans(&machine) != passes {
            // The second batch of a pass is shorter, and so each pass has two sleeps.
            assert!(slept >= sleep, "{slept:?} in pass {passes}");
            (passes, slept) = (full_scans(&machine), Duration::ZERO);
        }
    }
    let least = 20.0 * 100_000.0 / scanned(&machine) as f64;
    assert!(passes > 10, "{passes} passes, {least:.1} s each");
}

/// A ksmd that rests at the end of a pass has visited each page of it, and none of the next.
fn assert_rests_at_its_end(machine: &mut SimMachine, passes: u64) {
    assert_eq!(full_scans(machine), passes);
    assert!(machine.is_between_passes());
    let visited = scanned(machine);
    assert_eq!(visited, passes * 30_000);
    machine.advance(Duration::from_secs(3600));
    assert_eq!((scanned(machine), full_scans(machine)), (visited, passes));
}

fn small() -> SimMachine {
    let mut machine = today();
    machine.add_guest("a", repeat_n(UNIQUE, 30_000));
    machine.write(Knob::SmartScan, 0).unwrap();
    machine
}

#[test]
fn under_a_lease_ksmd_rests_between_two_passes() {
    let mut machine = small();
    machine.write(Knob::PagesToScan, 1250).unwrap();
    machine.write(Knob::SleepMillisecs, next_value(20)).unwrap();
    let mut pacer = pacer(0).since(Some(0));
    pacer.rest_after(Some(1));
    machine.write(Knob::Run, 1).unwrap();
    for passes in [1, 3, 4] {
        pacer.rest_after(Some(passes));
        wake(&mut machine, &mut pacer, Duration::from_secs(2));
        assert!(pacer.is_resting());
        assert_rests_at_its_end(&mut machine, passes);
    }
}

#[test]
fn a_simulated_ksmd_rests_as_under_a_lease() {
    let mut machine = small();
    machine.write(Knob::PagesToScan, 1250).unwrap();
    machine.write(Knob::SleepMillisecs, 1).unwrap();
    assert_eq!(machine.rest(), BoundaryPause::Unavailable);
    machine.write(Knob::Run, 1).unwrap();
    for passes in [1, 3, 4] {
        machine.rest_after(Some(passes));
        assert_eq!(machine.rest(), BoundaryPause::Possible);
        let before = machine.now();
        machine.advance_to_rest(Duration::from_secs(60));
        assert_eq!(machine.rest(), BoundaryPause::Resting);
        assert!(machine.now() - before < Duration::from_secs(2), "time stops where the rest begins");
        assert_rests_at_its_end(&mut machine, passes);
    }
    // Parked, and started again: it goes on from there.
    machine.rest_after(None);
    machine.write(Knob::Run, 0).unwrap();
    machine.advance(Duration::from_secs(1));
    machine.write(Knob::Run, 1).unwrap();
    machine.advance(Duration::from_secs(2));
    assert!(full_scans(&machine) > 5, "{}", full_scans(&machine));
}
