//! The rotations of a host whose fleet changes its key.
//!
//! A new key makes the samples of the old one useless, and a round may take a day. So the guests are read with the next
//! key beforehand, and the host's file changes its key at once when that key is put in use.

use std::path::Path;

use crate::clock::ClockTime;
use crate::file::SketchWriteError;
use crate::host_facts::HostFacts;
use crate::key::FleetKey;
use crate::rotation::{RotationOptions, RotationTurn, SketchRotation};
use crate::subject::SketchSubject;

/// The rotation of the key in use, and that of the key that comes next. Both have half of the turns.
#[derive(Debug)]
pub struct KeyRotations {
    options: RotationOptions,
    current: SketchRotation,
    next: Option<SketchRotation>,
    /// True if the next turn is that of `next`.
    is_turn_of_next: bool,
}

impl KeyRotations {
    /// Creates a rotation without guests.
    pub fn new(key: FleetKey, options: RotationOptions) -> Self {
        let current = SketchRotation::new(key, options.clone());
        Self { options, current, next: None, is_turn_of_next: false }
    }

    /// Sets the keys. Returns true if another key is in use now. What was read with a key that stays, or that comes into
    /// use, is kept.
    pub fn set_keys(&mut self, key: FleetKey, next: Option<FleetKey>) -> bool {
        let is_other = self.current.key_id() != key.id();
        let next = next.filter(|next| next.id() != key.id());
        if is_other {
            let prepared = self.next.take().filter(|prepared| prepared.key_id() == key.id());
            self.current = prepared.unwrap_or_else(|| self.start(key));
        }
        let kept = self.next.take();
        self.next = next.map(|next| match kept {
            Some(kept) if kept.key_id() == next.id() => kept,
            _ => self.start(next),
        });
        is_other
    }

    fn start(&self, key: FleetKey) -> SketchRotation {
        let mut rotation = SketchRotation::new(key, self.options.clone());
        rotation.guests(self.current.subjects().to_vec());
        rotation
    }

    /// Updates the list of guests, as [`SketchRotation::guests`] does.
    pub fn guests(&mut self, subjects: Vec<SketchSubject>) {
        if let Some(next) = &mut self.next {
            next.guests(subjects.clone());
        }
        self.current.guests(subjects);
    }

    /// Performs a small part of the work that is due.
    pub fn turn(&mut self, now: ClockTime) -> RotationTurn {
        let Some(next) = &mut self.next else { return self.current.turn(now) };
        self.is_turn_of_next = !self.is_turn_of_next;
        let (first, second) =
            if self.is_turn_of_next { (next, &mut self.current) } else { (&mut self.current, next) };
        match first.turn(now) {
            RotationTurn::Idle(until) => match second.turn(now) {
                RotationTurn::Idle(other) => RotationTurn::Idle(until.min(other)),
                worked => worked,
            },
            worked => worked,
        }
    }

    /// Returns the rotation of the key in use.
    pub fn current(&self) -> &SketchRotation {
        &self.current
    }

    /// Returns the id of the key that comes next, once all guests have been read with it.
    pub fn ready_key_id(&self) -> Option<String> {
        self.next.as_ref().filter(|next| next.is_complete()).map(SketchRotation::key_id)
    }

    /// Returns the memory that all sketches use, in bytes.
    pub fn bytes(&self) -> usize {
        self.current.bytes() + self.next.as_ref().map_or(0, SketchRotation::bytes)
    }

    /// Writes the sketch file of this host with the key in use.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, path: &Path, facts: HostFacts) -> Result<u64, SketchWriteError> {
        self.current.write(path, facts, self.ready_key_id().as_deref())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ksmith_core::balance::BalanceConfig;
    use ksmith_host::memory::process::OpenProcess;

    use super::*;
    use crate::rate::RateRule;

    const NOW: ClockTime = ClockTime { at: Duration::ZERO, day_clock: 0 };

    fn key(number: u8) -> FleetKey {
        FleetKey::from_secret(&[number; 16])
    }

    fn rotations() -> KeyRotations {
        let options =
            RotationOptions { rate: RateRule::PerGuest(64), again: None, every: Duration::from_secs(3600) };
        let mut rotations = KeyRotations::new(key(1), options);
        let own = OpenProcess::open(std::process::id()).unwrap();
        rotations.guests(vec![SketchSubject::from_process(&own, &BalanceConfig::default())]);
        rotations
    }

    fn run_until_idle(rotations: &mut KeyRotations) {
        while !matches!(rotations.turn(NOW), RotationTurn::Idle(_)) {}
    }

    #[test]
    fn what_was_read_with_the_next_key_stays_when_it_comes_into_use() {
        let mut rotations = rotations();
        assert!(!rotations.set_keys(key(1), Some(key(2))));
        assert_eq!(rotations.ready_key_id(), None);
        run_until_idle(&mut rotations);
        assert_eq!(rotations.current().key_id(), key(1).id());
        assert_eq!((rotations.current().sketched(), rotations.ready_key_id()), (1, Some(key(2).id())));
        let both = rotations.bytes();
        assert!(rotations.set_keys(key(2), None));
        assert_eq!((rotations.current().key_id(), rotations.current().sketched()), (key(2).id(), 1));
        assert!(rotations.bytes() < both && rotations.ready_key_id().is_none());
        assert!(!rotations.set_keys(key(2), None));
    }

    #[test]
    fn a_key_that_was_not_prepared_begins_with_the_known_guests() {
        let mut rotations = rotations();
        run_until_idle(&mut rotations);
        assert!(rotations.set_keys(key(3), Some(key(3))), "the key in use does not come next too");
        assert_eq!((rotations.current().sketched(), rotations.current().is_complete()), (0, false));
        run_until_idle(&mut rotations);
        assert_eq!((rotations.current().sketched(), rotations.ready_key_id()), (1, None));
    }

    #[test]
    fn another_next_key_begins_anew_and_the_key_in_use_keeps_its_sketches() {
        let mut rotations = rotations();
        rotations.set_keys(key(1), Some(key(2)));
        run_until_idle(&mut rotations);
        assert!(!rotations.set_keys(key(1), Some(key(3))));
        assert_eq!((rotations.current().sketched(), rotations.ready_key_id()), (1, None));
        run_until_idle(&mut rotations);
        assert_eq!(rotations.ready_key_id(), Some(key(3).id()));
    }

    #[test]
    fn a_host_is_not_ready_while_a_new_guest_is_unread() {
        let mut rotations = rotations();
        rotations.set_keys(key(1), Some(key(2)));
        run_until_idle(&mut rotations);
        let mut subjects = rotations.current.subjects().to_vec();
        let gone = ksmith_core::sample::ProcessId { pid: 1, start_ticks: u64::MAX };
        subjects.push(SketchSubject { processes: vec![gone], pid: 1, ..subjects[0].clone() });
        rotations.guests(subjects);
        assert_eq!(rotations.ready_key_id(), None);
        run_until_idle(&mut rotations);
        assert_eq!(rotations.ready_key_id(), Some(key(2).id()), "one that can't be read holds nothing up");
    }
}
