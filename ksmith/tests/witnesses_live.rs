//! What the witnesses say of pages that leave those they shared with and come back, on the running kernel: only it can tell
//! how many pages map a merged frame.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use ksmith::lab::Part;
use ksmith::observe::Observer;
use ksmith::root::Root;
use ksmith::witness::Watch;
use ksmith_core::witness::Witnesses;
use support::{KernelLock, clean_passes, guest, wait_until};

const PAGES: usize = 4096;

/// Witnesses of a quarter of two guests' memory are about 128.
const MANY: u32 = 100;
const FEW: u32 = 20;

fn wait_to_hear(what: &str, observer: &mut Observer, watch: &mut Watch, is_so: impl Fn(Witnesses) -> bool) {
    let mut last = None;
    wait_until(&format!("the witnesses say that {what}"), || {
        let mut sample = observer.sample();
        watch.read(&mut sample);
        let seen = sample.witnesses.get();
        if seen != last {
            eprintln!("{what}: {seen:?}");
            last = seen;
        }
        seen.is_some_and(&is_so)
    });
}

#[test]
fn a_page_that_comes_back_is_foretold_to_merge_only_if_somebody_else_still_holds_the_same() {
    let Some(_lock) = KernelLock::take() else { return };
    let parts = [Part::Equal { seed: 1, pages: PAGES }, Part::Unique { pages: PAGES }];
    let (mut one, mut two) = (guest(&parts), guest(&parts));
    let (mut observer, mut watch) = (Observer::new(Root::host()), Watch::default());
    let mut hear = |what: &str, is_so: fn(Witnesses) -> bool| wait_to_hear(what, &mut observer, &mut watch, is_so);
    hear("they are there", |seen| seen.pages > 4 * MANY);
    // What is merged is learned at the ends of passes.
    for _ in 0..2 {
        clean_passes(2);
        hear("nothing has changed", |seen| seen.looks > 1 && seen.changed < FEW);
    }
    one.rewrite(0).unwrap();
    hear("one's are others", |seen| seen.rested > MANY && seen.familiar < FEW);
    one.refill(0).unwrap();
    hear("two has stayed", |seen| seen.familiar > MANY && seen.seated > MANY && seen.paired < FEW);
    one.rewrite(0).unwrap();
    two.rewrite(0).unwrap();
    hear("both have others", |seen| seen.rested > 2 * MANY && seen.familiar < FEW);
    one.refill(0).unwrap();
    hear("two has still others", |seen| seen.familiar > MANY && seen.seated + seen.paired < FEW);
    two.refill(0).unwrap();
    hear("they are back", |seen| seen.familiar > 2 * MANY && seen.seated < FEW && seen.mutual > 2 * MANY);
    clean_passes(2);
    hear("they have met", |seen| seen.changed < FEW && seen.relied > 2 * MANY && seen.found > 2 * MANY);
}
