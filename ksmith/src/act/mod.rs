//! The only room that writes to KSM: knobs, unmerging, and pausing whoever else writes there.
//!
//! [`Control::take`] is the door for whoever changes settings for a while: it takes the lock, puts right what
//! a killed ksmith left behind, deals with other controllers and gives out a [`Writer`] whose changes are
//! undone when the [`Control`] goes. [`Lasting`] is the door for changes that are meant to last. [`restore`] and
//! [`unmerge`] do by hand what their names say.

mod affinity;
mod control;
mod error;
mod headroom;
mod holders;
mod identity;
mod journal;
mod knob_file;
mod lasting;
mod lock;
mod pause;
mod plan;
mod restore;
mod safe_sequence;
mod state_dir;
mod throwaway;
mod tuned;
mod unmerge;
mod writer;

pub use affinity::AffinityError;
pub use control::{Control, HeldBy, TakeError};
pub use error::ActError;
pub use headroom::{Headroom, NoHeadroom};
pub use holders::{Holder, HolderKind, find};
pub(crate) use journal::replace;
pub use journal::{Journal, JournalError};
pub use lasting::Lasting;
pub use lock::{Lock, LockError};
pub use pause::{PauseError, Paused};
pub use restore::{RestoreError, Restored, restore};
pub use safe_sequence::safe_sequence;
pub use state_dir::StateDir;
pub use unmerge::{Unmerge, UnmergeError, Unmerged, unmerge};
pub use writer::{Change, Writer};
