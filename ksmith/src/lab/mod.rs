//! The lab: scenarios played on the live kernel under competing policies, and measured; and guests whose memory content
//! is known, so that what KSM does with it can be judged.
//!
//! [`scenario`] says what happens, [`competitor`] under whose control, [`play`] does it, [`measure`] says what a run
//! amounts to, [`results`] puts the runs together and [`report`] shows them.
//!
//! A memory guest is a process of its own (`ksmith memory-guest`, hidden from help): [`Contents`] says what
//! is in it, [`MemoryGuest`] starts, drives and ends it from outside, and [`serve`] is what runs inside.

pub mod competitor;
mod contents;
mod filled;
mod inside;
pub mod measure;
mod memory_guest;
mod opt_out;
pub mod play;
mod region;
pub mod report;
pub mod results;
pub mod scenario;
mod worker;

pub use contents::{BadPart, Contents, Part};
pub use inside::serve;
pub use memory_guest::{GuestError, MemoryGuest};
