//! Some contents with all their copies: one pass, bounded memory, and an estimate with a known error.
//!
//! A content is kept if its fingerprint lies below a threshold, so that all its copies are kept or none are,
//! in whichever guest or host they lie: coordinated sampling (Gibbons and Tirthapura, SPAA 2001). The
//! threshold starts at "all" and halves whenever the table is full (Wegman's adaptive sampling, in Flajolet,
//! Computing 43, 1990), so a small host is counted exactly, and a large one with about 300,000 to 600,000
//! contents: an error of at most 0.4 % of its memory.
//!
//! Contents with so many copies that they keep several frames ([`MergeRules::max_page_sharing`]) would
//! dominate the error: when the threshold halves, those that are heavy by then stay, and count as drawn
//! with the chance they had until then. Pages of zeros are counted apart, exactly.

mod table;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

use self::table::{Entry, Table};
use super::group::{Counted, Sums};
use super::outcome::Outcome;
use super::rules::MergeRules;
use super::{SKIPPED, ZERO};

/// A content sketch of guests, numbered from 0.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "Portable", from = "Portable")]
pub struct Sketch {
    salt_tag: u64,
    /// Contents at or above 2^64 / 2^halvings are dropped.
    halvings: u32,
    table: Table,
    /// Contents that stay although they lie above the threshold or may do so: the halvings at the time they
    /// were found heavy.
    pinned: HashMap<u64, u32, BuildHasherDefault<Plain>>,
    guests: Vec<Counted>,
}

/// A sketch on its way to another host. It holds salted fingerprints: who has the salt can test guesses of pages.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Portable {
    salt_tag: u64,
    halvings: u32,
    entries: Vec<Entry>,
    pinned: Vec<(u64, u32)>,
    guests: Vec<Counted>,
}

impl From<Sketch> for Portable {
    fn from(sketch: Sketch) -> Self {
        Self {
            salt_tag: sketch.salt_tag,
            halvings: sketch.halvings,
            entries: sketch.table.sorted(),
            pinned: sketch.pinned.into_iter().collect(),
            guests: sketch.guests,
        }
    }
}

impl From<Portable> for Sketch {
    /// What does not fit the rest is left out: this came from outside.
    fn from(portable: Portable) -> Self {
        let mut sketch = Self::new(portable.guests.len(), Self::SLOTS, portable.salt_tag);
        sketch.halvings = portable.halvings.min(63);
        sketch.pinned = portable.pinned.into_iter().filter(|(_, halvings)| *halvings < sketch.halvings).collect();
        let zero_is_counted = |guest: &Counted| Counted { zero: guest.zero.min(guest.pages), ..*guest };
        sketch.guests = portable.guests.iter().map(zero_is_counted).collect();
        for entry in portable.entries {
            if entry.count > 0 && (entry.guest as usize) < sketch.guests.len() {
                sketch.count(entry);
            }
        }
        sketch
    }
}

/// Two sketches that can't be joined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sketches made with different salts have no content in common: make both with the same salt")]
pub struct JoinError;

/// A fingerprint is a hash already.
#[derive(Debug, Clone, Copy, Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 << 8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Sketch {
    /// Slots that keep the whole program's growth within 32 MiB: 12 MiB, and 9 MiB in passing while it halves.
    pub const SLOTS: usize = 800_000;

    /// Copies from which a content counts as heavy.
    const HEAVY: u64 = 256;

    /// One in so many entries may belong to heavy contents, when the threshold halves.
    const PINNED_PART: usize = 8;

    /// An empty sketch of so many guests with at most `slots` entries. `salt_tag` identifies the salt of the
    /// fingerprints without giving it away.
    pub fn new(guests: usize, slots: usize, salt_tag: u64) -> Self {
        Self {
            salt_tag,
            halvings: 0,
            table: Table::new(slots),
            pinned: HashMap::default(),
            guests: vec![Counted::default(); guests],
        }
    }

    /// The part of all contents that is kept: 1, 1/2, 1/4...
    pub fn rate(&self) -> f64 {
        Self::chance(self.halvings)
    }

    /// Bytes held, the working copy while it halves included.
    pub fn peak_bytes(&self) -> usize {
        let pinned = self.pinned.capacity() * (size_of::<(u64, u32)>() + 1) * 8 / 7;
        let working = self.table.len() * size_of::<Entry>();
        self.table.bytes() + working + pinned
    }

    /// Adds pages of one guest: fingerprints, [`ZERO`] and [`SKIPPED`].
    pub fn add(&mut self, guest: u32, pages: &[u64]) {
        let Some(counted) = self.guests.get_mut(guest as usize) else { return };
        counted.pages += pages.iter().filter(|&&page| page != SKIPPED).count() as u64;
        counted.zero += pages.iter().filter(|&&page| page == ZERO).count() as u64;
        for &fingerprint in pages.iter().filter(|&&page| page > SKIPPED) {
            self.count(Entry { fingerprint, guest, count: 1 });
        }
    }

    /// Takes a guest's pages out again, as if it had never been added.
    pub fn forget(&mut self, guest: u32) {
        if let Some(counted) = self.guests.get_mut(guest as usize).filter(|counted| counted.pages > 0) {
            *counted = Counted::default();
            let others = self.table.sorted();
            self.table.keep(others.into_iter().filter(|entry| entry.guest != guest));
        }
    }

    /// Whether copies of this content are counted.
    pub fn keeps(&self, fingerprint: u64) -> bool {
        self.is_below(fingerprint) || self.pinned.contains_key(&fingerprint)
    }

    /// Adds the guests of another sketch behind one's own, as if one sketch had seen both hosts.
    ///
    /// # Errors
    /// The two were made with different salts.
    pub fn join(&mut self, other: &Self) -> Result<(), JoinError> {
        if self.salt_tag != other.salt_tag {
            return Err(JoinError);
        }
        let first = u32::try_from(self.guests.len()).unwrap_or(u32::MAX);
        self.guests.extend(&other.guests);
        while self.halvings < other.halvings {
            self.halve();
        }
        // What only one side has kept above the common threshold is not known to be absent from the other.
        let level = |sketch: &Self, content: &u64| sketch.pinned.get(content).copied().unwrap_or(sketch.halvings);
        let mine: Vec<u64> = self.pinned.keys().copied().collect();
        let all = mine.iter().chain(other.pinned.keys());
        let levels: Vec<(u64, u32)> = all.map(|c| (*c, level(self, c).max(level(other, c)))).collect();
        for (content, halvings) in levels {
            if halvings < self.halvings {
                self.pinned.insert(content, halvings);
            } else {
                self.pinned.remove(&content);
            }
        }
        let entries = self.table.sorted();
        let kept = entries.into_iter().filter(|entry| self.keeps(entry.fingerprint)).collect::<Vec<_>>();
        self.table.keep(kept.into_iter());
        for entry in other.table.sorted() {
            self.count(Entry { guest: entry.guest.saturating_add(first), ..entry });
        }
        Ok(())
    }

    /// The savings over all that was added.
    pub fn outcome(&self, rules: &MergeRules, with_pairs: bool) -> Outcome {
        let mut sums = Sums::new(self.guests.len(), with_pairs);
        let mut holders = Vec::new();
        for content in self.table.sorted().chunk_by(|a, b| a.fingerprint == b.fingerprint) {
            holders.clear();
            holders.extend(content.iter().map(|entry| (entry.guest, entry.count)));
            let halvings = self.pinned.get(&content[0].fingerprint).unwrap_or(&self.halvings);
            sums.add(&holders, Self::chance(*halvings), rules);
        }
        sums.outcome(&self.guests, rules)
    }

    fn count(&mut self, entry: Entry) {
        while self.keeps(entry.fingerprint) {
            match self.table.add(entry) {
                Ok(()) => return,
                Err(_) if self.halvings >= 63 => return,
                Err(_) => self.halve(),
            }
        }
    }

    fn halve(&mut self) {
        let entries = self.table.sorted();
        let copies = |content: &[Entry]| content.iter().map(|entry| u64::from(entry.count)).sum::<u64>();
        let contents = || entries.chunk_by(|a, b| a.fingerprint == b.fingerprint);
        // Raising the bar, rather than taking the first to come, keeps the choice a matter of the count alone.
        let mut least = Self::HEAVY;
        let heavy = |least| contents().filter(move |content| copies(content) > least);
        while heavy(least).map(<[Entry]>::len).sum::<usize>() > entries.len() / Self::PINNED_PART {
            least = least.saturating_mul(2);
        }
        let before = std::mem::take(&mut self.pinned);
        for content in heavy(least) {
            let fingerprint = content[0].fingerprint;
            self.pinned.insert(fingerprint, before.get(&fingerprint).copied().unwrap_or(self.halvings));
        }
        self.halvings += 1;
        let mut table = std::mem::replace(&mut self.table, Table::new(1));
        table.keep(entries.into_iter().filter(|entry| self.keeps(entry.fingerprint)));
        self.table = table;
    }

    fn is_below(&self, fingerprint: u64) -> bool {
        fingerprint <= u64::MAX >> self.halvings
    }

    fn chance(halvings: u32) -> f64 {
        0.5_f64.powi(i32::try_from(halvings).unwrap_or(i32::MAX))
    }
}

#[cfg(test)]
mod tests;
