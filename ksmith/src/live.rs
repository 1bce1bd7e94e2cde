//! The live kernel as a [`Host`]: observe on one side, act on the other. The only place that names both.

use ksmith_core::knobs::Knobs;
use ksmith_core::sample::Sample;

use crate::act::Control;
use crate::controller::{Applied, Host};
use crate::observe::Observer;

/// The host that ksmith runs on, under its control.
#[derive(Debug)]
pub struct LiveHost {
    /// Looks.
    pub observer: Observer,
    /// Acts, and restores when dropped.
    pub control: Control,
}

impl Host for LiveHost {
    fn sample(&mut self) -> Sample {
        self.observer.sample()
    }

    fn apply(&mut self, knobs: &Knobs) -> Applied {
        let (changes, errors) = self.control.writer().apply(knobs);
        Applied {
            changes: changes.iter().map(ToString::to_string).collect(),
            errors: errors.iter().map(ToString::to_string).collect(),
        }
    }
}
