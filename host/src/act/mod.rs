//! The only module that writes to KSM: knobs, unmerging, and pausing other programs that write there.
//!
//! [`KsmControl::take`] is for temporary changes. It takes the lock, restores what a killed ksmith left, handles other
//! controllers and gives out a [`KnobWriter`]. Its changes are undone when the [`KsmControl`] is dropped. [`LastingControl`] is for
//! permanent changes. [`restore`] and [`unmerge`] are for one command each.

mod affinity;
mod control;
mod error;
#[cfg(test)]
mod fail_points;
mod headroom;
mod journal;
mod knob_file;
mod lasting;
mod lease;
mod leased;
mod lock;
mod on_rest;
mod pause;
mod plan;
mod restore;
mod safe_sequence;
mod throwaway;
mod unmerge;
mod waker;
mod writer;

use crate::undo::identity;
pub use crate::undo::{StateDir, UndoError};
pub use affinity::AffinityError;
pub use control::{ControlError, ControlledByOthers, KsmControl, LostState};
pub use error::{ActError, UnmergeError};
pub use headroom::{NoHeadroom, UnmergeHeadroom};
pub use journal::KsmJournal;
pub use knob_file::are_settings_read_only;
pub use ksmith_core::knobs::KnobChange;
pub use lasting::LastingControl;
pub use lock::{KsmLock, LockError};
pub use pause::{PauseError, PausedProcess};
pub use restore::{RestoreError, RestoreOutcome, restore, restore_within};
pub use safe_sequence::safe_sequence;
pub use unmerge::{UnmergeOptions, UnmergeOutcome, unmerge};
pub use writer::KnobWriter;
