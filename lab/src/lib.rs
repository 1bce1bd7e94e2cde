//! The lab plays scenarios on the live kernel under competing policies and measures them. Its guests hold known
//! memory contents, so that the effect of KSM can be judged.
//!
//! A [`scenario`] describes guests and events. A [`competitor`] controls KSM. [`play`] runs the scenario,
//! [`measure`] derives figures from one run, [`results`] summarises all runs and [`report`] draws them. [`simulate`] plays them on a
//! simulated host instead, at costs that [`calibrate`] measures.
//!
//! A memory guest is a process of its own (`ksmith memory-guest`, hidden from help). [`GuestContents`] describes its
//! memory, [`MemoryGuest`] starts, commands and ends it from outside, and [`serve`] runs inside it.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod calibrate;
pub mod competitor;
mod contents;
pub mod demo;
mod filled;
mod inside;
pub mod live_bench;
pub mod measure;
mod memory_guest;
mod opt_out;
mod pages;
pub mod play;
mod region;
pub mod report;
pub mod results;
pub mod scenario;
pub mod simulate;
mod truth;
mod worker;

pub use contents::{BadPart, GuestContents, MemoryPart};
pub use inside::serve;
pub use memory_guest::{GuestError, MemoryGuest};
pub use pages::GuestPages;
