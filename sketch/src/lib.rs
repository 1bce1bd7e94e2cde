//! Sketch files: samples of guests' contents that hosts of a fleet can compare.
//!
//! A page's fingerprint is a keyed hash of its content. A fingerprint is kept if its upper bits are 0, so that all
//! hosts with one key keep the same contents: coordinated sampling. [`capture`] reads guests once, [`SketchRotation`] reads
//! them continuously within a budget, and [`write_file`] writes the result. `docs/internals/sketch-files.md` specifies
//! the format.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod capture;
mod change_of_key;
mod clock;
mod contents;
mod counted;
mod file;
mod heavy;
mod host_facts;
mod key;
mod rate;
mod reading;
mod rotation;
mod rows;
mod secret;
mod subject;

pub use capture::{CaptureError, CaptureOptions, CaptureResult, SketchSummary, capture};
pub use change_of_key::KeyRotations;
pub use clock::{ClockTime, SketchClock};
pub use contents::{FinishedSketch, HeavyContent, SketchBuilder};
pub use file::{FORMAT, FinishedReading, HostSketch, SketchWriteError, write_file};
pub use heavy::HEAVY_ABOVE;
pub use host_facts::{HostFacts, KsmFacts, NodeFacts, SkippedGuest, is_host_name};
pub use key::FleetKey;
pub use rate::{RateError, RateRule, SamplingRate};
pub use reading::LeftOut;
pub use rotation::{RotationOptions, RotationTurn, SketchRotation};
pub use rows::ContentRow;
pub use secret::{SecretError, new_secret, next_secret_path, read_next_secret, read_secret};
pub use subject::SketchSubject;
