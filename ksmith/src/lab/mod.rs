//! The lab: guests whose memory content is known, so that what KSM does with it can be judged.
//!
//! A memory guest is a process of its own (`ksmith memory-guest`, hidden from help): [`Contents`] says what
//! is in it, [`MemoryGuest`] starts, drives and ends it from outside, and [`serve`] is what runs inside.

mod contents;
mod filled;
mod inside;
pub mod measure;
mod memory_guest;
mod region;
pub mod scenario;
mod worker;

pub use contents::{BadPart, Contents, Part};
pub use inside::serve;
pub use memory_guest::{GuestError, MemoryGuest};
