//! The speed of the simulated ksmd, in page visits per second of real time.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ksmith_core::knobs::Knob;
use ksmith_core::sim::{GuestPlan, SimConfig, SimMachine, clones};

/// Four guests of 1 GiB in all: half their pages equal, a tenth empty, the rest their own.
const PAGES: u32 = 65_536;

fn machine(smart_scan: u64) -> SimMachine {
    let mut machine = SimMachine::new(SimConfig::default());
    let plan = |plan: GuestPlan| plan.equal(0, PAGES / 2).zero(PAGES / 10).unique(PAGES * 4 / 10);
    clones(4, "guest", plan).into_iter().for_each(|plan| machine.start(plan));
    for (knob, value) in [(Knob::SmartScan, smart_scan), (Knob::PagesToScan, 1000), (Knob::Run, 1)] {
        let _ = machine.write(knob, value);
    }
    machine
}

fn counted(machine: &SimMachine) -> u64 {
    machine.sample().ksm.passed_pages().unwrap_or(0)
}

/// Advances by a simulated minute, and reports the visits in it.
fn minute(c: &mut Criterion, name: &str, machine: &SimMachine) {
    let minute = Duration::from_secs(60);
    let mut after = machine.clone();
    after.advance(minute);
    let mut group = c.benchmark_group("sim");
    group.sample_size(20).throughput(Throughput::Elements((counted(&after) - counted(machine)).max(1)));
    group.bench_function(name, |b| {
        b.iter_batched_ref(|| machine.clone(), |machine| black_box(machine).advance(minute), BatchSize::LargeInput);
    });
    group.finish();
}

fn visits(c: &mut Criterion) {
    let fresh = machine(0);
    minute(c, "first minute, clean passes", &fresh);
    let mut settled = fresh.clone();
    settled.advance(Duration::from_secs(300));
    minute(c, "settled, clean passes", &settled);
    let mut smart = machine(1);
    smart.advance(Duration::from_secs(300));
    minute(c, "settled, smart_scan", &smart);
}

fn parked(c: &mut Criterion) {
    let mut machine = machine(0);
    machine.advance(Duration::from_secs(300));
    let _ = machine.write(Knob::Run, 0);
    c.bench_function("sim/parked hour", |b| b.iter(|| black_box(&mut machine).advance(Duration::from_secs(3600))));
    c.bench_function("sim/sample", |b| b.iter(|| black_box(&machine).sample()));
}

criterion_group!(benches, visits, parked);
criterion_main!(benches);
