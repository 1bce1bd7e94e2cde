//! Guests that start, write and end.

use super::*;

fn pair() -> (SimMachine, [SimGuestId; 2]) {
    let mut machine = today();
    let guests = ["a", "b"].map(|name| machine.add_guest(name, 1..=10));
    passes(&mut machine, 2);
    assert_eq!(gauges(&machine), [10, 10, 0, 0]);
    (machine, guests)
}

fn available(machine: &SimMachine) -> u64 {
    machine.sample().host.memory.value().unwrap().available.unwrap()
}

#[test]
fn a_write_takes_memory_at_once_and_leaves_the_counters_to_the_next_visit() {
    let (mut machine, [a, _]) = pair();
    let before = available(&machine);
    assert!(machine.write_page(a, 0, 99));
    assert_eq!(cow(&machine.sample()), 1);
    assert_eq!(available(&machine), before - PAGE_SIZE);
    assert_eq!(gauges(&machine), [10, 10, 0, 0]);
    passes(&mut machine, 1);
    assert_eq!(gauges(&machine), [10, 9, 0, 1]);
    audit(&machine).unwrap();
}

#[test]
fn a_page_that_diverged_and_came_back_merges_again() {
    let (mut machine, [a, b]) = pair();
    for guest in [a, b] {
        machine.write_page(guest, 0, 99);
    }
    passes(&mut machine, 2);
    assert_eq!(gauges(&machine), [10, 10, 0, 0]);
    machine.write_page(a, 0, 1);
    machine.write_page(b, 0, 1);
    passes(&mut machine, 2);
    assert_eq!(gauges(&machine), [10, 10, 0, 0]);
    assert_eq!(cow(&machine.sample()), 4);
    audit(&machine).unwrap();
}

#[test]
fn an_ended_guest_frees_memory_at_once_and_counters_at_ksmds_next_visit() {
    let (mut machine, [a, b]) = pair();
    machine.write(Knob::Run, 0).unwrap();
    let before = available(&machine);
    assert!(machine.remove_guest(a) && machine.remove_guest(b));
    assert!(!machine.remove_guest(a));
    assert_eq!(available(&machine), before + 10 * PAGE_SIZE);
    machine.advance(Duration::from_secs(10));
    assert_eq!(gauges(&machine), [10, 10, 0, 0]);
    assert!(machine.sample().processes.is_empty());
    machine.write(Knob::Run, 1).unwrap();
    machine.advance(Duration::from_millis(10));
    assert_eq!(gauges(&machine), [0, 0, 0, 0]);
    assert_eq!(available(&machine), before + 10 * PAGE_SIZE + 20 * 64);
    audit(&machine).unwrap();
}

#[test]
fn an_end_in_the_middle_of_its_own_scan_does_no_harm() {
    let mut machine = today();
    machine.write(Knob::PagesToScan, 3).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| machine.add_guest(name, 1..=10));
    for (guest, ms) in [(b, 14), (a, 3), (c, 2)] {
        machine.advance(Duration::from_millis(ms));
        machine.remove_guest(guest);
        audit(&machine).unwrap();
    }
    machine.advance(Duration::from_secs(1));
    assert_eq!(gauges(&machine), [0, 0, 0, 0]);
}

#[test]
fn ksmd_visits_an_ended_guest_before_the_next() {
    let mut machine = today();
    machine.write(Knob::PagesToScan, 3).unwrap();
    let [_, _, c] = ["a", "b", "c"].map(|name| machine.add_guest(name, [UNIQUE; 10]));
    passes(&mut machine, 1);
    let start = machine.ksmd.scanned;
    while machine.ksmd.scanned == start {
        machine.advance(Duration::from_micros(100));
    }
    machine.remove_guest(c);
    while machine.memory.rmap_items > 20 {
        machine.advance(Duration::from_micros(100));
    }
    assert!(machine.ksmd.scanned - start <= 12, "freed after the first guest's ten pages");
}

#[test]
fn a_guest_that_starts_in_the_middle_of_a_pass_waits_for_the_next() {
    let mut machine = today();
    machine.write(Knob::PagesToScan, 3).unwrap();
    machine.add_guest("a", 1..=10);
    machine.advance(Duration::from_millis(1));
    machine.add_guest("b", 1..=10);
    passes(&mut machine, 1);
    let tracked = |machine: &SimMachine| -> Vec<_> {
        machine.sample().processes.iter().map(|process| process.ksm.rmap_items.unwrap()).collect()
    };
    assert_eq!(tracked(&machine), [10, 0]);
    passes(&mut machine, 1);
    assert_eq!(tracked(&machine), [10, 10]);
}

#[test]
fn processes_show_what_the_kernel_shows_and_their_pages_add_up() {
    let mut machine = today();
    machine.write(Knob::UseZeroPages, 1).unwrap();
    machine.add_guest("a", (1..=10).chain([ZERO; 5]));
    machine.add_guest("b", (1..=10).chain([UNIQUE; 2]));
    passes(&mut machine, 3);
    let sample = machine.sample();
    let a = &sample.processes[0];
    assert_eq!((&*a.name, a.merging_pages(), a.zero_pages(), a.ksm.rmap_items), ("a", 10, 5, Some(10)));
    assert_eq!(a.ksm.process_profit, Some(15 * 4096 - 10 * 64));
    assert_eq!(sample.processes.iter().map(|process| process.merging_pages()).sum::<u64>(), 20);
    assert_eq!(sample.ksm.general_profit.get(), Some(15 * 4096 - 22 * 64));
    assert_ne!(a.id, sample.processes[1].id);
}

#[test]
fn plans_start_rewrite_and_stop_on_time() {
    let mut machine = today();
    let second = Duration::from_secs(1);
    machine.start(GuestPlan::new("a").unique(100).rewritten(50, second).busy(250));
    machine.start(GuestPlan::new("b").equal(0, 10).starting_at(5 * second).stopping_at(8 * second));
    machine.advance(4 * second);
    assert_eq!(machine.sample().processes.len(), 1);
    // ksmd visits a page far more often than it is rewritten: it becomes unshared in between.
    let [shared, sharing, unshared, volatile] = gauges(&machine);
    assert_eq!((shared, sharing, unshared + volatile), (0, 0, 150));
    let process = &machine.sample().processes[0];
    // A quarter of a CPU for 4 s, and the time of 150 + 4 x 50 writes of 1 us each.
    assert_eq!(process.cpu_ticks, 100);
    assert_eq!(machine.memory.guests[0].write_ns, 350_000);
    machine.advance(2 * second);
    assert_eq!(machine.sample().processes.len(), 2);
    machine.advance(2 * second);
    assert_eq!(machine.sample().processes.len(), 1);
    audit(&machine).unwrap();
}

#[test]
fn rewriting_merged_pages_shows_as_faults_and_cow() {
    let mut machine = today();
    machine.write(Knob::Run, 0).unwrap();
    machine.start(GuestPlan::new("a").rewritten(10, Duration::from_millis(200)).zero(10));
    machine.write(Knob::UseZeroPages, 1).unwrap();
    machine.write(Knob::Run, 1).unwrap();
    machine.advance(Duration::from_millis(100));
    assert_eq!(machine.sample().ksm.ksm_zero_pages.get(), Some(10));
    let faults = machine.sample().processes[0].minor_faults;
    for page in 10..20 {
        machine.write_page(SimGuestId(0), page, 5);
    }
    assert_eq!(machine.sample().processes[0].minor_faults, faults + 10);
    passes(&mut machine, 2);
    for page in 10..20 {
        machine.write_page(SimGuestId(0), page, 6);
    }
    let sample = machine.sample();
    assert_eq!((cow(&sample), sample.processes[0].minor_faults), (10, faults + 20));
}
