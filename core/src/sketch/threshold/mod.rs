//! The sketch mode: some contents with all their copies, in one pass and bounded memory, with a known error.
//!
//! A content is kept if its fingerprint is below a threshold. So all its copies are kept or none, in all guests and
//! hosts: coordinated sampling (Gibbons and Tirthapura, SPAA 2001). The threshold starts at "all" and halves whenever
//! the table is full (Wegman's adaptive sampling, in Flajolet, Computing 43, 1990). A small host is counted exactly,
//! and a large one with about 300,000 to 600,000 contents: an error of at most 0.4 % of its memory.
//!
//! Contents with so many copies that they keep several frames ([`MergeRules::max_page_sharing`]) would dominate the
//! error. Those that are heavy when the threshold halves stay, and count with the chance that they had until then.
//! Pages of zeros are counted apart, exactly.

mod table;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

use self::table::{CopyEntry, CopyTable};
use super::group::{ContentSums, GuestPageCount};
use super::outcome::SavingsOutcome;
use super::rules::MergeRules;
use super::{SKIPPED, ZERO};

/// A content sketch of guests, numbered from 0.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "Portable", from = "Portable")]
pub struct ContentSketch {
    salt_tag: u64,
    /// Contents at or above 2^64 / 2^halvings are dropped.
    halvings: u32,
    table: CopyTable,
    /// The heavy contents, which stay even above the threshold, with the number of halvings when they became heavy.
    pinned: HashMap<u64, u32, BuildHasherDefault<FingerprintHasher>>,
    guests: Vec<GuestPageCount>,
}

/// A sketch in the form in which it is sent to another host. With the salt of its fingerprints guesses of pages can be
/// tested.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Portable {
    salt_tag: u64,
    halvings: u32,
    entries: Vec<CopyEntry>,
    pinned: Vec<(u64, u32)>,
    guests: Vec<GuestPageCount>,
}

impl From<ContentSketch> for Portable {
    fn from(sketch: ContentSketch) -> Self {
        Self {
            salt_tag: sketch.salt_tag,
            halvings: sketch.halvings,
            entries: sketch.table.sorted(),
            pinned: sketch.pinned.into_iter().collect(),
            guests: sketch.guests,
        }
    }
}

impl From<Portable> for ContentSketch {
    /// Parts that do not fit the rest are left out, since this is input from outside.
    fn from(portable: Portable) -> Self {
        let mut sketch = Self::new(portable.guests.len(), Self::SLOTS, portable.salt_tag);
        sketch.halvings = portable.halvings.min(63);
        sketch.pinned = portable.pinned.into_iter().filter(|(_, halvings)| *halvings < sketch.halvings).collect();
        let zero_is_counted =
            |guest: &GuestPageCount| GuestPageCount { zero: guest.zero.min(guest.pages), ..*guest };
        sketch.guests = portable.guests.iter().map(zero_is_counted).collect();
        for entry in portable.entries {
            if entry.count > 0 && (entry.guest as usize) < sketch.guests.len() {
                sketch.count(entry);
            }
        }
        sketch
    }
}

/// The error of two sketches that can't be joined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sketches made with different salts have no content in common: make both with the same salt")]
pub struct JoinError;

/// The identity hash: a fingerprint is a hash already.
#[derive(Debug, Clone, Copy, Default)]
struct FingerprintHasher(u64);

impl Hasher for FingerprintHasher {
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

impl ContentSketch {
    /// The number of slots that keeps the program's growth within 32 MiB: 12 MiB, and 9 MiB more while the table
    /// halves.
    pub const SLOTS: usize = 800_000;

    /// The number of copies from which a content is heavy.
    const HEAVY: u64 = 256;

    /// The inverse of the part of entries that heavy contents may have when the threshold halves.
    const PINNED_PART: usize = 8;

    /// Creates an empty sketch of a number of guests with at most `slots` entries. `salt_tag` identifies the salt of
    /// the fingerprints without revealing it.
    pub fn new(guests: usize, slots: usize, salt_tag: u64) -> Self {
        Self {
            salt_tag,
            halvings: 0,
            table: CopyTable::new(slots),
            pinned: HashMap::default(),
            guests: vec![GuestPageCount::default(); guests],
        }
    }

    /// Returns the part of all contents that is kept: 1, 1/2, 1/4...
    pub fn rate(&self) -> f64 {
        Self::chance(self.halvings)
    }

    /// Returns the bytes held, with the working copy while the table halves.
    pub fn peak_bytes(&self) -> usize {
        let pinned = self.pinned.capacity() * (size_of::<(u64, u32)>() + 1) * 8 / 7;
        let working = self.table.len() * size_of::<CopyEntry>();
        self.table.bytes() + working + pinned
    }

    /// Adds pages of one guest: fingerprints, [`ZERO`] and [`SKIPPED`].
    pub fn add(&mut self, guest: u32, pages: &[u64]) {
        let Some(counted) = self.guests.get_mut(guest as usize) else { return };
        counted.pages += pages.iter().filter(|&&page| page != SKIPPED).count() as u64;
        counted.zero += pages.iter().filter(|&&page| page == ZERO).count() as u64;
        for &fingerprint in pages.iter().filter(|&&page| page > SKIPPED) {
            self.count(CopyEntry { fingerprint, guest, count: 1 });
        }
    }

    /// Removes a guest's pages, as if they had never been added.
    pub fn forget(&mut self, guest: u32) {
        if let Some(counted) = self.guests.get_mut(guest as usize).filter(|counted| counted.pages > 0) {
            *counted = GuestPageCount::default();
            let others = self.table.sorted();
            self.table.keep(others.into_iter().filter(|entry| entry.guest != guest));
        }
    }

    /// Returns true if copies of this content are counted.
    pub fn keeps(&self, fingerprint: u64) -> bool {
        self.is_below(fingerprint) || self.pinned.contains_key(&fingerprint)
    }

    /// Appends the guests of another sketch, as if one sketch had seen both hosts.
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
        // A content above the common threshold that one side has kept need not be absent from the other.
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
            self.count(CopyEntry { guest: entry.guest.saturating_add(first), ..entry });
        }
        Ok(())
    }

    /// Computes the savings of all pages that were added.
    pub fn outcome(&self, rules: &MergeRules, with_pairs: bool) -> SavingsOutcome {
        let mut sums = ContentSums::new(self.guests.len(), with_pairs);
        let mut holders = Vec::new();
        for content in self.table.sorted().chunk_by(|a, b| a.fingerprint == b.fingerprint) {
            holders.clear();
            holders.extend(content.iter().map(|entry| (entry.guest, entry.count)));
            let halvings = self.pinned.get(&content[0].fingerprint).unwrap_or(&self.halvings);
            sums.add(&holders, Self::chance(*halvings), rules);
        }
        sums.outcome(&self.guests, rules)
    }

    fn count(&mut self, entry: CopyEntry) {
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
        let copies = |content: &[CopyEntry]| content.iter().map(|entry| u64::from(entry.count)).sum::<u64>();
        let contents = || entries.chunk_by(|a, b| a.fingerprint == b.fingerprint);
        // A higher limit, instead of the first contents found, makes the choice depend on counts alone.
        let mut least = Self::HEAVY;
        let heavy = |least| contents().filter(move |content| copies(content) > least);
        while heavy(least).map(<[CopyEntry]>::len).sum::<usize>() > entries.len() / Self::PINNED_PART {
            least = least.saturating_mul(2);
        }
        let before = std::mem::take(&mut self.pinned);
        for content in heavy(least) {
            let fingerprint = content[0].fingerprint;
            self.pinned.insert(fingerprint, before.get(&fingerprint).copied().unwrap_or(self.halvings));
        }
        self.halvings += 1;
        let mut table = std::mem::replace(&mut self.table, CopyTable::new(1));
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
