//! Page samples of pages that leave their merged frame and come back, on the running kernel: only it can tell how many
//! pages map a merged frame.

use crate::support::{KernelLock, clean_passes, guest, wait_until};
use ksmith_core::sample::PageSamples;
use ksmith_host::observe::HostObserver;
use ksmith_host::page_sampler::LiveSampler;
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;

const PAGES: usize = 4096;

/// Page samples of a quarter of two guests' memory are about 128.
const MANY: u32 = 100;
const FEW: u32 = 20;

fn wait_to_hear(
    what: &str,
    observer: &mut HostObserver,
    watch: &mut LiveSampler,
    is_so: impl Fn(PageSamples) -> bool,
) {
    let mut last = None;
    wait_until(&format!("the page samples say that {what}"), || {
        let mut sample = observer.sample();
        watch.read(&mut sample);
        let seen = sample.page_samples.get();
        if seen != last {
            eprintln!("{what}: {seen:?}");
            last = seen;
        }
        seen.is_some_and(&is_so)
    });
}

#[test]
fn a_reverted_page_is_expected_to_merge_only_with_an_equal_page() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let parts = [MemoryPart::Equal { seed: 1, pages: PAGES }, MemoryPart::Unique { pages: PAGES }];
    let (mut one, mut two) = (guest(&parts), guest(&parts));
    let (mut observer, mut watch) = (HostObserver::new(Root::host()), LiveSampler::default());
    let mut hear =
        |what: &str, is_so: fn(PageSamples) -> bool| wait_to_hear(what, &mut observer, &mut watch, is_so);
    hear("they are there", |seen| seen.pages > 4 * MANY);
    // What is merged is learned at the ends of passes.
    for _ in 0..2 {
        clean_passes(2);
        hear("nothing has changed", |seen| seen.reads > 1 && seen.changed < FEW);
    }
    one.rewrite(0).unwrap();
    hear("one's are others", |seen| seen.stable > MANY && seen.recurring < FEW);
    one.refill(0).unwrap();
    hear("two has stayed", |seen| {
        seen.recurring > MANY && seen.matches_merged > MANY && seen.matches_unmerged < FEW
    });
    one.rewrite(0).unwrap();
    two.rewrite(0).unwrap();
    hear("both have others", |seen| seen.stable > 2 * MANY && seen.recurring < FEW);
    one.refill(0).unwrap();
    hear("two has still others", |seen| seen.recurring > MANY && seen.matches_merged + seen.matches_unmerged < FEW);
    two.refill(0).unwrap();
    hear("they are back", |seen| seen.recurring > 2 * MANY && seen.matches_merged < FEW && seen.mutual > 2 * MANY);
    clean_passes(2);
    hear("they have met", |seen| {
        seen.changed < FEW && seen.recurring_tried > 2 * MANY && seen.recurring_merged > 2 * MANY
    });
}
