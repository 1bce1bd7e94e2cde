//! Guests that the operator holds, in the undo store for daemons that start later.

use ksmith_host::undo::{self, KeptEntries, StateDir, UndoError};
use serde::{Deserialize, Serialize};

/// A guest that balance leaves alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HeldGuest {
    /// One of the guest's names.
    guest: String,
}

impl undo::UndoEntry for HeldGuest {
    const KIND: undo::EntryKind = undo::EntryKind::Held;
}

/// The list of held guests. A reboot empties it, and changes the guests' identities.
#[derive(Debug, Clone)]
pub struct HoldList(KeptEntries<HeldGuest>);

impl HoldList {
    /// Reads the list from the undo store.
    ///
    /// # Errors
    /// The store can't be read or is damaged.
    pub fn open(directory: &StateDir) -> Result<Self, UndoError> {
        KeptEntries::open(directory).map(Self)
    }

    /// Writes the entries anew, as into a directory that was removed.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn write_anew(&self) -> Result<(), UndoError> {
        self.0.write_anew()
    }

    /// Returns true if the list has a guest, by any of its names.
    pub fn has(&self, names: impl Iterator<Item = String>) -> bool {
        let held = self.0.entries();
        !held.is_empty() && names.into_iter().any(|name| held.iter().any(|held| held.guest == name))
    }

    /// Holds a guest by the first of its names, or releases it by all of them. Returns true if that is new.
    ///
    /// # Errors
    /// The store can't be written. Then nothing has changed.
    pub fn set(&mut self, names: &[String], is_held: bool) -> Result<bool, UndoError> {
        if self.has(names.iter().cloned()) == is_held {
            return Ok(false);
        }
        self.0.change(|all| {
            all.retain(|held| !names.contains(&held.guest));
            if is_held {
                all.extend(names.first().cloned().map(|guest| HeldGuest { guest }));
            }
        })?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(holds: &HoldList, name: &str) -> bool {
        holds.has([name.to_owned()].into_iter())
    }

    #[test]
    fn a_held_guest_stays_held_for_the_next_ksmith_until_released() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let mut holds = HoldList::open(&directory).unwrap();
        let names = ["uuid", "7:70"].map(str::to_owned);
        assert!(holds.set(&names, true).unwrap() && !holds.set(&names, true).unwrap());
        let mut next = HoldList::open(&directory).unwrap();
        assert!(has(&next, "uuid") && !has(&next, "7:70"));
        next.set(&names, false).unwrap();
        assert!(!has(&HoldList::open(&directory).unwrap(), "uuid") && !directory.undo().exists());
        // Any of the names counts, and is released.
        next.set(&names[1..], true).unwrap();
        assert!(next.has(names.iter().cloned()) && next.set(&names, false).unwrap());
        assert!(!next.has(names.iter().cloned()));
    }
}
