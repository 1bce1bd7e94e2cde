//! The only module that writes to KSM: knobs, unmerging, and pausing other programs that write there.
//!
//! [`Control::take`] is for temporary changes. It takes the lock, restores what a killed ksmith left, handles other
//! controllers and gives out a [`Writer`]. Its changes are undone when the [`Control`] is dropped. [`Lasting`] is for
//! permanent changes. [`restore`] and [`unmerge`] are for one command each.

mod affinity;
mod change;
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
pub use change::Change;
pub use control::{Control, HeldBy, TakeError};
pub use error::{ActError, UnmergeError};
pub use headroom::{Headroom, NoHeadroom};
pub use journal::Journal;
pub use lasting::Lasting;
pub use lock::{Lock, LockError};
pub use pause::{PauseError, Paused};
pub use restore::{RestoreError, Restored, restore, restore_within};
pub use safe_sequence::safe_sequence;
pub use unmerge::{Unmerge, Unmerged, unmerge};
pub use writer::Writer;
