//! Memory guests on the live kernel: what is known of their contents is what ksmd merges.

use crate::support;
use crate::support::{KernelLock, clean_passes, guest, number, passes_until, zero_pages};
use ksmith_lab::MemoryPart;

#[test]
fn ksmd_merges_exactly_what_the_contents_say() {
    let Some(lock) = KernelLock::acquire() else { return };
    let parts = |seed| {
        [MemoryPart::Equal { seed, pages: 512 }, MemoryPart::Zero { pages: 64 }, MemoryPart::Unique { pages: 256 }]
    };
    let mut guests = [guest(&parts(1)), guest(&parts(1)), guest(&parts(2))];
    support::write("use_zero_pages", "1");
    // And not a page more: the third shares with no other guest.
    passes_until("the two guests of seed 1 share, and zeros are zeros", || {
        number("pages_sharing") >= 512 && zero_pages() >= 3 * 64
    });
    clean_passes(2);
    assert_eq!((number("pages_sharing"), zero_pages()), (512, 3 * 64));
    for guest in &mut guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
    let breaks = support::vmstat("cow_ksm");
    guests[1].rewrite(0).unwrap();
    assert_eq!(support::vmstat("cow_ksm") - breaks, 512, "each write to a merged page copies it");
    // The kernel's gauges lag behind: a broken page is struck off when ksmd visits it again.
    assert_eq!(number("pages_sharing"), 512);
    passes_until("a rewritten part shares no more", || number("pages_sharing") == 0);
    drop(lock);
}
