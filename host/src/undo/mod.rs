//! What must be undone, on disk before it is done.
//!
//! One file, `undo.json` in the state directory, holds an entry for each changed setting, each paused process, each guest
//! with merging switched off and each guest from which memory was taken. It also holds the guests that the operator wants
//! left alone. [`UndoStore`] reads and writes the file. [`Kept`] is the list of one kind of entry. The modules that make
//! changes restore them. An entry that is not understood stays, and keeps no other one from being restored.

mod boot;
pub(crate) mod disk;
mod entries;
mod error;
pub(crate) mod identity;
mod kept;
mod older;
mod read;
mod replace;
mod state_dir;
mod store;

pub use entries::{Entries, Entry, Kind};
pub use error::UndoError;
pub use kept::Kept;
pub(crate) use replace::Durable;
pub use state_dir::StateDir;
pub use store::UndoStore;
