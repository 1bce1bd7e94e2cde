//! Sketches of guests before ksmd moves, and after it, on the running kernel: only it can tell which pages are merged.

use std::sync::Arc;

use crate::support::{KernelLock, clean_passes, guest, wait_until};
use ksmith_core::sample::{HostSketches, SketchMatches};
use ksmith_host::guest_sketcher::GuestSketcher;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;

const PAGES: usize = 4096;

/// Waits until there are sketches of so many guests that were looked at since ksmd's last pass.
fn sketches(guests: usize, observer: &mut HostObserver, sketcher: &mut GuestSketcher) -> Arc<HostSketches> {
    let mut newest = None;
    wait_until("there are sketches of all guests", || {
        let mut sample = observer.sample();
        sketcher.read(&mut sample);
        let full_scans = sample.ksm.full_scans.get().unwrap_or(0);
        newest = sample.sketches.value().cloned().filter(|sketches| sketches.full_scans == full_scans);
        newest.as_ref().is_some_and(|sketches| sketches.guests.len() == guests)
    });
    newest.unwrap()
}

/// The classes in pages: merged, unmerged.
fn pages(found: &SketchMatches) -> [f64; 2] {
    [found.merged, found.unmerged].map(|class| class.bytes / 4096.0)
}

#[test]
fn what_an_arrival_can_merge_with_is_known_before_ksmd_moves() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let common = MemoryPart::Equal { seed: 1, pages: PAGES };
    let alone = MemoryPart::Equal { seed: 2, pages: PAGES };
    let _old = [guest(&[common, alone]), guest(&[common, MemoryPart::Unique { pages: PAGES }])];
    clean_passes(3);
    let (mut observer, mut sketcher) = (HostObserver::new(Root::host()), GuestSketcher::start().unwrap());
    let before = sketches(2, &mut observer, &mut sketcher);
    let old: Vec<_> = before.guests.iter().map(|sketch| sketch.id).collect();
    let _new = guest(&[common, alone, MemoryPart::Unique { pages: PAGES }]);
    let found = sketches(3, &mut observer, &mut sketcher).matches(|id| !old.contains(&id), |_| true);
    let expected = PAGES as f64;
    for found in pages(&found) {
        assert!((found - expected).abs() < expected / 4.0, "{found} pages, and not {expected}");
    }
    clean_passes(3);
    let found = sketches(3, &mut observer, &mut sketcher).matches(|id| !old.contains(&id), |_| true);
    for found in pages(&found) {
        assert!(found < expected / 16.0, "{found} pages are left, though ksmd has visited all");
    }
}
