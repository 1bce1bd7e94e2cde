//! The contents of pages: each distinct content once, with its place in ksmd's two trees.
//!
//! Contents are interned when a page is written, so that a visit compares numbers and indexes an array instead of
//! hashing. Neighbouring pages get neighbouring slots, so that a pass reads memory in order.
//!
//! A content that no other page has needs no entry: its slot is a number of its own, marked by [`UNIQUE_SLOT`].

use rustc_hash::FxHashMap;

/// The content of an empty page.
pub const ZERO: u64 = 0;

/// Stands for a content that no other page has: a new one each time.
pub const UNIQUE: u64 = u64::MAX;

/// Stands for no slot or no node.
pub(super) const NONE: u32 = u32::MAX;

/// The bit of a slot that marks a content of one page alone.
const UNIQUE_SLOT: u32 = 1 << 31;

/// The slot of [`ZERO`], which is never freed.
pub(super) const ZERO_SLOT: u32 = 0;

/// One content of pages.
#[derive(Debug, Clone)]
pub(super) struct ContentSlot {
    id: u64,
    /// Pages that hold it.
    pub refs: u32,
    sum: u32,
    /// First stable node with it.
    pub stable: u32,
    /// The pass in which a page with it was put in the unstable tree.
    pub unstable_pass: u32,
    /// The guest of that page.
    pub unstable_guest: u32,
    /// The number of that page.
    pub unstable_page: u32,
}

/// All contents of pages.
#[derive(Debug, Clone)]
pub(super) struct ContentTable {
    slots: Vec<ContentSlot>,
    free: Vec<u32>,
    by_id: FxHashMap<u64, u32>,
    /// The number of contents so far that one page alone has.
    unique: u32,
    /// The most pages that one frame may back, as `savable` counts.
    limit: u32,
    /// Pages that need no frame of their own, of all contents but the empty page.
    savable: u64,
}

impl ContentTable {
    pub fn new() -> Self {
        let mut contents = Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: FxHashMap::default(),
            unique: 0,
            limit: 256,
            savable: 0,
        };
        contents.acquire(ZERO);
        contents
    }

    /// Returns the slot of content `id` with one more reference. The slot is new if no page holds that content.
    pub fn acquire(&mut self, id: u64) -> u32 {
        if id == UNIQUE {
            // The number with all bits set is `NONE`.
            self.unique = (self.unique + 1) % (UNIQUE_SLOT - 1);
            return UNIQUE_SLOT | self.unique;
        }
        if let Some(&slot) = self.by_id.get(&id) {
            let content = &mut self.slots[slot as usize];
            self.savable += u64::from(slot != ZERO_SLOT && !content.refs.is_multiple_of(self.limit));
            content.refs += 1;
            return slot;
        }
        let new = ContentSlot {
            id,
            refs: 1,
            sum: checksum(id),
            stable: NONE,
            unstable_pass: 0,
            unstable_guest: NONE,
            unstable_page: 0,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = new;
            slot
        } else {
            self.slots.push(new);
            (self.slots.len() - 1) as u32
        };
        self.by_id.insert(id, slot);
        slot
    }

    /// Drops one reference.
    pub fn release(&mut self, slot: u32) {
        if is_unique(slot) {
            return;
        }
        let content = &mut self.slots[slot as usize];
        content.refs -= 1;
        self.savable -= u64::from(slot != ZERO_SLOT && !content.refs.is_multiple_of(self.limit));
        if content.refs == 0 {
            self.by_id.remove(&content.id);
            self.free.push(slot);
        }
    }

    /// The checksum of a content, never 0, which stands for "not seen yet".
    pub fn sum(&self, slot: u32) -> u32 {
        if is_unique(slot) { slot } else { self.slots[slot as usize].sum }
    }

    pub fn get(&self, slot: u32) -> &ContentSlot {
        &self.slots[slot as usize]
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut ContentSlot {
        &mut self.slots[slot as usize]
    }

    /// Sets the most pages that one frame may back.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = u32::try_from(limit).unwrap_or(u32::MAX).max(1);
        let copies = self.slots.iter().skip(1).map(|content| content.refs);
        self.savable = copies.map(|copies| u64::from(copies - copies.div_ceil(self.limit))).sum();
    }

    /// The number of pages that need no frame of their own. With `frees_empty` no empty page needs one.
    pub fn savable(&self, frees_empty: bool) -> u64 {
        // The machine itself holds a reference to the empty page.
        let empty = self.slots[ZERO_SLOT as usize].refs - 1;
        self.savable + u64::from(if frees_empty { empty } else { empty - empty.div_ceil(self.limit) })
    }
}

/// Returns true if a content is that of one page alone.
pub(super) fn is_unique(slot: u32) -> bool {
    slot & UNIQUE_SLOT != 0
}

/// The finalizer of SplitMix64: spreads consecutive ids.
fn checksum(id: u64) -> u32 {
    let mut mixed = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((mixed ^ (mixed >> 31)) >> 32) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_share_a_slot_and_unique_ones_never_do() {
        let mut contents = ContentTable::new();
        let a = contents.acquire(7);
        assert_eq!(contents.acquire(7), a);
        assert_ne!(contents.acquire(8), a);
        assert_ne!(contents.acquire(UNIQUE), contents.acquire(UNIQUE));
        assert_eq!(contents.acquire(ZERO), ZERO_SLOT);
    }

    #[test]
    fn the_slot_of_a_content_that_no_page_holds_is_used_again() {
        let mut contents = ContentTable::new();
        let a = contents.acquire(7);
        contents.release(a);
        assert_eq!(contents.acquire(8), a);
        assert_ne!(contents.acquire(7), a);
    }
}
