//! Measures the costs of ksmd's work on this host: the figures for [`ksmith_core::sim::SimCosts`].
//!
//! ksmd is led through single passes over guests of known memory, in which all pages meet the same fate. Its CPU time for a pass
//! over their number is the cost of that kind of work. Several rounds give the median and the extremes.

mod huge_pages;
mod ksmd;
mod rounds;
mod summary;

use std::io;

use crossbeam_channel::Receiver;
use ksmith_host::act::ActError;
use ksmith_host::signals::Signal;

use crate::GuestError;

pub use rounds::{CalibrationRounds, calibrate, needed_bytes};
pub use summary::{AccessCost, Calibration, WorkCost};

/// An error of a calibration. Guests are ended in any case.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A figure of the kernel is missing or makes no sense.
    #[error("can't measure ksmd here: {0}")]
    Unseen(String),
    /// A setting could not be written.
    #[error(transparent)]
    Setting(#[from] ActError),
    /// A guest did not start or did not obey.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The host could not be brought to the state that every measurement starts from.
    #[error("can't bring the host to the state that every measurement starts from: {0}")]
    Bench(String),
    /// A directory for the guests' program can't be made.
    #[error("can't start guests: {0}")]
    System(#[source] io::Error),
    /// A pass that ksmd does not end.
    #[error(
        "ksmd did not end a pass within {seconds} s: the host is too busy, or another program changes KSM's settings"
    )]
    Stuck {
        /// The time that was waited, in seconds.
        seconds: u64,
    },
    /// Pages did not meet the fate that was to be measured.
    #[error(
        "{found} of {wanted} pages were {what}: other programs offer memory to KSM or change its settings meanwhile"
    )]
    Otherwise {
        /// The expected state of the pages.
        what: &'static str,
        /// Pages found in that state.
        found: u64,
        /// Pages expected in that state.
        wanted: u64,
    },
    /// A cost is not the same from round to round.
    #[error(
        "{key} cost {min} to {max} ns from round to round, too different to be of use: stop other programs on \
        this host, and try again"
    )]
    Noisy {
        /// The kind of work.
        key: &'static str,
        /// The least cost in nanoseconds.
        min: u64,
        /// The greatest cost in nanoseconds.
        max: u64,
    },
    /// A cost can't be that of a ksmd.
    #[error("{key} cost {ns} ns, which no page can cost: the kernel's count of ksmd's CPU time is of no use here")]
    Nonsense {
        /// The kind of work.
        key: &'static str,
        /// The cost in nanoseconds.
        ns: u64,
    },
    /// Ctrl-C or SIGTERM ended the measurement.
    #[error("interrupted; guests are ended and the settings are being restored")]
    Interrupted,
}

/// Returns true if a signal has come that ends the measurement.
fn is_interrupted(interrupts: &Receiver<Signal>) -> bool {
    interrupts.try_iter().any(|signal| signal == Signal::End)
}
