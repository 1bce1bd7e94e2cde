//! What the program itself said about ranges of its memory. That comes before anything that the library would do.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::lock::{Exclusive, Taken};

/// What a program wants of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Merge it: it said so, by `MADV_MERGEABLE` or `ksmith_mark`.
    Merge,
    /// Leave it: by `MADV_UNMERGEABLE`, `ksmith_unmark`, or since it is to be in huge pages.
    Leave,
}

/// How many ranges are kept in mind.
const MOST: usize = 128;

/// The ranges, without order or overlap.
#[derive(Debug)]
pub struct Wishes {
    ranges: [(usize, usize, Wish); MOST],
    used: usize,
    /// Some range found no place: so no range may be marked without being told to.
    is_full: bool,
}

/// Those of this process.
static WISHES: Exclusive<Wishes> = Exclusive::new(Wishes::new());

/// Whether any range was ever to be left: mostly none is, and nobody need look.
static LEAVES: AtomicBool = AtomicBool::new(false);

/// Whether anything was ever wished.
static ANY: AtomicBool = AtomicBool::new(false);

/// The wishes, as soon as nobody else has them; not at all where that takes long, as within a handler that interrupted
/// who has them.
fn take() -> Option<Taken<'static, Wishes>> {
    (0..1000).find_map(|_| {
        core::hint::spin_loop();
        WISHES.take()
    })
}

/// Notes what the program wants of a range.
pub fn note(start: usize, end: usize, wish: Wish) {
    ANY.store(true, Relaxed);
    if wish == Wish::Leave {
        LEAVES.store(true, Relaxed);
    }
    if let Some(mut wishes) = take() {
        wishes.note(start, end, wish);
    }
}

/// The range holds something new, of which the program said nothing yet.
pub fn forget(start: usize, end: usize) {
    if ANY.load(Relaxed)
        && let Some(mut wishes) = take()
    {
        wishes.forget(start, end);
    }
}

/// The program has moved a range: what it wanted of it goes along.
pub fn moved(from: (usize, usize), to: (usize, usize)) {
    if ANY.load(Relaxed)
        && let Some(mut wishes) = take()
    {
        let wish = [Wish::Leave, Wish::Merge].into_iter().find(|wish| wishes.has(from.0, from.1, *wish));
        wishes.forget(from.0, from.1);
        if let Some(wish) = wish {
            wishes.note(to.0, to.1, wish);
        }
    }
}

/// Whether the library may mark a range by itself. Who can't ask may not.
pub fn allow(start: usize, end: usize) -> bool {
    !LEAVES.load(Relaxed) || take().is_some_and(|wishes| wishes.allow(start, end))
}

/// Whether the program itself wants any byte of this merged.
pub fn wants_merged(start: usize, end: usize) -> bool {
    ANY.load(Relaxed) && take().is_none_or(|wishes| wishes.has(start, end, Wish::Merge))
}

/// Gives each range that the program itself wants merged.
pub fn each_to_merge(mut each: impl FnMut(usize, usize)) {
    if let Some(wishes) = take() {
        let used = wishes.ranges.get(..wishes.used).unwrap_or_default();
        used.iter().filter(|range| range.2 == Wish::Merge).for_each(|range| each(range.0, range.1));
    }
}

impl Wishes {
    /// None.
    pub const fn new() -> Self {
        Self { ranges: [(0, 0, Wish::Leave); MOST], used: 0, is_full: false }
    }

    /// Notes a wish; it replaces what was wished for the same bytes before.
    pub fn note(&mut self, start: usize, end: usize, wish: Wish) {
        self.forget(start, end);
        self.add(start, end, wish);
    }

    /// Forgets what was wished for these bytes.
    pub fn forget(&mut self, start: usize, end: usize) {
        let mut at = 0_usize;
        while let Some(&(from, to, wish)) = self.ranges.get(..self.used).and_then(|used| used.get(at)) {
            if from >= end || to <= start {
                at = at.saturating_add(1);
                continue;
            }
            self.used = self.used.saturating_sub(1);
            self.ranges.swap(at, self.used);
            // The pieces before and after have a place: they stand at the end, and are not looked at again but for
            // no overlap.
            if from < start {
                self.add(from, start, wish);
            }
            if to > end {
                self.add(end, to, wish);
            }
        }
    }

    /// Whether the program wished this for any byte of the range.
    pub fn has(&self, start: usize, end: usize, wish: Wish) -> bool {
        let used = self.ranges.get(..self.used).unwrap_or_default();
        used.iter().any(|&(from, to, what)| what == wish && from < end && to > start)
    }

    /// Whether the library may mark this range by itself.
    pub fn allow(&self, start: usize, end: usize) -> bool {
        !self.is_full && !self.has(start, end, Wish::Leave)
    }

    fn add(&mut self, start: usize, end: usize, wish: Wish) {
        match self.ranges.get_mut(self.used) {
            Some(place) => {
                *place = (start, end, wish);
                self.used = self.used.saturating_add(1);
            }
            // A wish to merge that is forgotten costs nothing but the saving.
            None => self.is_full |= wish == Wish::Leave,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_wish_for_a_byte_counts(
            said in proptest::collection::vec((0_usize..60, 1_usize..20, any::<bool>()), 0..30),
        ) {
            let mut wishes = Wishes::new();
            let mut bytes = [None; 80];
            for (start, length, merge) in said {
                let wish = if merge { Wish::Merge } else { Wish::Leave };
                wishes.note(start, start + length, wish);
                bytes[start..start + length].fill(Some(wish));
            }
            for (at, wish) in bytes.iter().enumerate() {
                prop_assert_eq!(wishes.has(at, at + 1, Wish::Merge), *wish == Some(Wish::Merge));
                prop_assert_eq!(wishes.allow(at, at + 1), *wish != Some(Wish::Leave));
            }
        }
    }

    #[test]
    fn when_a_wish_finds_no_place_nothing_is_marked_any_more() {
        let mut wishes = Wishes::new();
        for at in 0..MOST {
            wishes.note(at * 10, at * 10 + 5, Wish::Leave);
        }
        assert!(wishes.allow(1_000_000, 1_000_001));
        wishes.note(2_000_000, 2_000_001, Wish::Leave);
        assert!(!wishes.allow(1_000_000, 1_000_001));
    }
}
