//! Copies of a content in a guest, counted in an open-addressing table: 16 bytes a slot.

use serde::{Deserialize, Serialize};

use crate::sketch::mix;

/// The number of copies of one content in one guest. A count of 0 is a free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CopyEntry {
    pub fingerprint: u64,
    pub guest: u32,
    pub count: u32,
}

/// Entries by (fingerprint, guest), with linear probing at a load of at most three quarters.
#[derive(Debug, Clone)]
pub struct CopyTable {
    slots: Vec<CopyEntry>,
    used: usize,
    most_slots: usize,
}

impl CopyTable {
    const FEWEST_SLOTS: usize = 1 << 10;

    /// Creates an empty table that doubles up to `most_slots`.
    pub fn new(most_slots: usize) -> Self {
        Self {
            slots: vec![CopyEntry::default(); Self::FEWEST_SLOTS],
            used: 0,
            most_slots: most_slots.max(Self::FEWEST_SLOTS),
        }
    }

    /// Counts `entry.count` more copies. Returns the entry if it is new and the table is full.
    pub fn add(&mut self, entry: CopyEntry) -> Result<(), CopyEntry> {
        loop {
            let slots = self.slots.len();
            let mut at = Self::home(&entry, slots);
            loop {
                let slot = &mut self.slots[at];
                if slot.count == 0 {
                    break;
                }
                if slot.fingerprint == entry.fingerprint && slot.guest == entry.guest {
                    slot.count = slot.count.saturating_add(entry.count);
                    return Ok(());
                }
                at = if at + 1 == slots { 0 } else { at + 1 };
            }
            if (self.used + 1) * 4 <= self.slots.len() * 3 {
                self.slots[at] = entry;
                self.used += 1;
                return Ok(());
            }
            if self.slots.len() >= self.most_slots {
                return Err(entry);
            }
            self.grow();
        }
    }

    /// Returns all entries: those of a content side by side, and its guests in order.
    pub fn sorted(&self) -> Vec<CopyEntry> {
        let mut entries: Vec<CopyEntry> = Vec::with_capacity(self.used);
        entries.extend(self.slots.iter().filter(|slot| slot.count > 0));
        entries.sort_unstable_by_key(|entry| (entry.fingerprint, entry.guest));
        entries
    }

    /// Drops all but these entries.
    pub fn keep(&mut self, entries: impl Iterator<Item = CopyEntry>) {
        self.slots.fill(CopyEntry::default());
        self.used = 0;
        for entry in entries {
            // The entries fitted before.
            let _ = self.add(entry);
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Returns the bytes held.
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<CopyEntry>()
    }

    fn grow(&mut self) {
        let slots = vec![CopyEntry::default(); (self.slots.len() * 2).min(self.most_slots)];
        let old = std::mem::replace(&mut self.slots, slots);
        self.used = 0;
        for entry in old.into_iter().filter(|entry| entry.count > 0) {
            let _ = self.add(entry);
        }
    }

    /// Returns the home slot of an entry, by the lower bits: the upper ones are all small once the threshold is.
    fn home(entry: &CopyEntry, slots: usize) -> usize {
        let bits = (entry.fingerprint ^ mix(u64::from(entry.guest))) as u32;
        ((u64::from(bits) * slots as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_grows_and_says_when_it_is_full() {
        let mut table = CopyTable::new(4096);
        let entry = |i: u64| CopyEntry { fingerprint: mix(i), guest: (i % 3) as u32, count: 1 };
        for i in (0..3072).chain(0..3072) {
            table.add(entry(i)).unwrap();
        }
        assert_eq!((table.len(), table.bytes()), (3072, 4096 * 16));
        assert_eq!(table.add(entry(9999)), Err(entry(9999)), "no room for a new one");
        assert_eq!(table.add(entry(5)), Ok(()), "room for one that is there");
        let sorted = table.sorted();
        assert!(sorted.is_sorted_by_key(|e| (e.fingerprint, e.guest)));
        assert_eq!(sorted.iter().map(|e| u64::from(e.count)).sum::<u64>(), 2 * 3072 + 1);
        table.keep(sorted.into_iter().take(10));
        assert_eq!(table.len(), 10);
    }
}
