//! The machine against the kernel's rules, one file per kind of rule.

mod huge;
mod knobs;
mod lease;
mod life;
mod properties;
mod runs;
mod smart_scan;
mod time;
mod visits;

use std::collections::HashMap;
use std::iter::repeat_n;
use std::time::Duration;

use super::content::{NONE, ZERO_SLOT, is_unique};
use super::guest::SimPageState;
use super::*;
use crate::field::KernelVersion;
use crate::kernel::Ksm;
use crate::knobs::Knob;
use crate::sample::Sample;

/// A machine of this kernel with a batch larger than any pass and smart_scan off: a clean pass per millisecond of
/// sleep.
fn running(kernel: KernelVersion) -> SimMachine {
    let mut machine = SimMachine::new(SimConfig { kernel, ..SimConfig::default() });
    let _ = machine.write(Knob::SmartScan, 0);
    machine.write(Knob::PagesToScan, 1_000_000).unwrap();
    machine.write(Knob::SleepMillisecs, 1).unwrap();
    machine.write(Knob::Run, 1).unwrap();
    machine
}

/// The same with today's kernel.
fn today() -> SimMachine {
    running(KernelVersion::new(6, 18))
}

/// Runs until `count` more passes have ended.
fn passes(machine: &mut SimMachine, count: u64) {
    let end = machine.ksmd.full_scans + count;
    for _ in 0..10_000_000 {
        if machine.ksmd.full_scans >= end {
            return;
        }
        machine.advance(Duration::from_micros(100));
    }
    panic!("{count} passes do not end");
}

/// The counters shared, sharing, unshared and volatile.
fn gauges(machine: &SimMachine) -> [u64; 4] {
    let Ksm { pages_shared, pages_sharing, pages_unshared, pages_volatile, .. } = machine.sample().ksm;
    [pages_shared, pages_sharing, pages_unshared, pages_volatile].map(|reading| reading.get().unwrap())
}

fn cow(sample: &Sample) -> u64 {
    sample.host.vmstat.value().unwrap().cow_ksm.unwrap()
}

/// Recounts all pages, and compares the result with the counters.
fn audit(machine: &SimMachine) -> Result<(), String> {
    let memory = &machine.memory;
    let mut states: HashMap<&str, u64> = HashMap::new();
    let mut items: HashMap<u32, u32> = HashMap::new();
    let mut mapped: HashMap<u32, u32> = HashMap::new();
    let mut refs: HashMap<u32, u32> = HashMap::new();
    for guest in &memory.guests {
        let mut own = [0; 4];
        for page in &guest.pages {
            own[0] += u64::from(page.state.is_tracked());
            let mut count = |name| *states.entry(name).or_default() += 1;
            match page.state {
                SimPageState::Tracked => count("volatile"),
                SimPageState::Unstable | SimPageState::FreedUnstable => count("unshared"),
                SimPageState::ZeroTracked => count("volatile"),
                SimPageState::Taken | SimPageState::FreedTracked => count("volatile"),
                SimPageState::Merged | SimPageState::Diverged | SimPageState::TakenMerged => {
                    *items.entry(page.node).or_default() += 1
                }
                SimPageState::New | SimPageState::Zero | SimPageState::Absent | SimPageState::Freed => {}
            }
            own[1] += u64::from(matches!(
                page.state,
                SimPageState::Merged | SimPageState::Diverged | SimPageState::TakenMerged
            ));
            own[2] += u64::from(matches!(page.state, SimPageState::Zero | SimPageState::ZeroTracked));
            own[3] += u64::from(page.state.is_freed());
            if page.state.is_freed() && page.slot != ZERO_SLOT {
                return Err("a freed page has a content".into());
            }
            if guest.ended {
                if page.state == SimPageState::Merged || own[2] + own[3] > 0 {
                    return Err("a guest that ended maps something".into());
                }
                continue;
            }
            if page.state.is_private() {
                *states.entry("private").or_default() += 1;
            }
            *states.entry("zero").or_default() +=
                u64::from(matches!(page.state, SimPageState::Zero | SimPageState::ZeroTracked));
            if !is_unique(page.slot) {
                *refs.entry(page.slot).or_default() += 1;
            }
            if page.state == SimPageState::Merged {
                *mapped.entry(page.node).or_default() += 1;
                if memory.stable.node(page.node).slot != page.slot {
                    return Err("a page is merged with another content".into());
                }
            }
        }
        if guest.huge.whole_ranges().flatten().any(|run| !guest.pages[run].state.is_private()) {
            return Err(format!("{}: a huge page has a page that is not its own", guest.name));
        }
        if own != [guest.rmap_items, guest.merging, guest.zero, guest.freed] {
            return Err(format!("{}: {own:?} counted, {guest:?}", guest.name));
        }
    }
    for (&node, &count) in &items {
        let found = memory.stable.node(node);
        let mapped = mapped.get(&node).copied().unwrap_or(0);
        if (found.items, found.mapped) != (count, mapped) || (found.slot == NONE) != (mapped == 0) {
            return Err(format!("node {node}: {count} items and {mapped} mappings, but {found:?}"));
        }
    }
    for (&slot, &count) in &refs {
        if memory.contents.get(slot).refs != count + u32::from(slot == 0) {
            return Err(format!("content {slot} has {count} pages, but {:?}", memory.contents.get(slot)));
        }
        let nodes = memory.stable.nodes_of(&memory.contents, slot);
        if nodes.iter().any(|node| !mapped.contains_key(node)) {
            return Err(format!("content {slot} has a node that no page maps"));
        }
    }
    let state = |name| states.get(name).copied().unwrap_or(0);
    let shared = items.len() as u64;
    let sharing = items.values().map(|&count| u64::from(count) - 1).sum::<u64>();
    let expected = [
        ("shared", shared, memory.stable.shared),
        ("sharing", sharing, memory.stable.sharing),
        ("unshared", state("unshared"), memory.unshared),
        ("volatile", state("volatile"), gauges(machine)[3]),
        ("items", shared + sharing + state("unshared") + state("volatile"), memory.rmap_items),
        ("zero", state("zero"), memory.zero_pages),
        ("private", state("private"), memory.private),
        ("frames", mapped.len() as u64, memory.stable.frames),
        ("dups", items.keys().filter(|&&node| memory.stable.node(node).dup).count() as u64, memory.stable.dups),
    ];
    match expected.iter().find(|(_, counted, kept)| counted != kept) {
        Some((name, counted, kept)) => Err(format!("{name}: {counted} counted, {kept} kept")),
        None => Ok(()),
    }
}
