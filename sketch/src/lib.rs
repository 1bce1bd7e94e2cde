//! Sketch files: samples of guests' contents that hosts of a fleet can compare.
//!
//! A page's fingerprint is a keyed hash of its content. A fingerprint is kept if its upper bits are 0, so that all
//! hosts with one key keep the same contents: coordinated sampling. [`capture`] reads guests once, [`Rotation`] reads
//! them continuously within a budget, and [`write_file`] writes the result. `docs/internals/sketch-files.md` specifies
//! the format.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod capture;
mod clock;
mod contents;
mod file;
mod host_facts;
mod key;
mod rate;
mod reading;
mod rotation;
mod rows;
mod secret;
mod subject;

pub use capture::{Capture, CaptureError, CaptureOptions, Summary, capture};
pub use clock::{Clock, Now};
pub use contents::{GuestSketch, Sketched};
pub use file::{FORMAT, Finished, HostSketch, WriteError, write_file};
pub use host_facts::{HostFacts, KsmFacts, NodeFacts, Skipped, is_host_name};
pub use key::FleetKey;
pub use rate::{Rate, RateError, RateRule};
pub use reading::LeftOut;
pub use rotation::{Rotation, RotationOptions, Turn};
pub use rows::Row;
pub use secret::{SecretError, new_secret, read_secret};
pub use subject::Subject;
