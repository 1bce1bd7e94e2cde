//! The undo store: changes to undo, on disk before they are made.
//!
//! One file, `undo.json` in the state directory, holds the entries: changed settings, paused processes, guests with
//! merging switched off, and guests from which memory was taken. It also holds the guests that the operator wants left
//! alone. [`UndoStore`] reads and writes the file. [`KeptEntries`] is the list of one kind of entry. The modules that make
//! changes restore them. An entry that can't be parsed stays, and keeps no other one from being restored.

mod boot;
pub(crate) mod disk;
mod entries;
mod error;
pub(crate) mod identity;
mod kept;
mod read;
mod replace;
mod state_dir;
mod store;
mod store_lock;

pub use entries::{EntryKind, UndoEntries, UndoEntry};
pub use error::UndoError;
pub(crate) use identity::boot_id;
pub use kept::KeptEntries;
pub(crate) use replace::{WriteDurability, replace};
pub use state_dir::StateDir;
pub use store::UndoStore;
pub(crate) use store_lock::{is_in_place, lock_in_place};
