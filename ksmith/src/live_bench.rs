//! The live host as the lab's [`Bench`]: through the act room, so that everything is undone however the lab ends.

use std::ops::ControlFlow;

use ksmith_core::decide::Preset;
use ksmith_core::knobs::{Knob, Knobs};

use crate::act::{Control, RestoreError, Restored, Unmerge, unmerge};
use crate::lab::play::Bench;

/// The host under the lab's control. Restored when dropped.
#[derive(Debug)]
pub struct LiveBench {
    control: Control,
}

impl LiveBench {
    /// Every setting is noted first: controllers that the lab starts change them too.
    ///
    /// # Errors
    /// A setting can't be read, or the journal can't be written.
    pub fn new(mut control: Control) -> Result<Self, crate::act::ActError> {
        control.note_all()?;
        Ok(Self { control })
    }

    /// Puts everything back and says what was done.
    ///
    /// # Errors
    /// Not everything could be put back.
    pub fn restore(self) -> Result<Restored, RestoreError> {
        self.control.restore()
    }
}

/// `mm/ksm.c` of Linux 6.18, with ksmd off.
fn boot() -> Knobs {
    Preset::KernelDefault
        .knobs()
        .with(Knob::AdvisorMaxCpu, 70)
        .with(Knob::AdvisorMinPagesToScan, 500)
        .with(Knob::AdvisorMaxPagesToScan, 30_000)
        .with(Knob::AdvisorTargetScanTime, 200)
        .with(Knob::MergeAcrossNodes, 1)
        .with(Knob::MaxPageSharing, 256)
        .with(Knob::Run, 0)
}

impl Bench for LiveBench {
    fn reset(&mut self) -> Result<(), String> {
        let writer = self.control.writer();
        // The guests are gone: what is counted as merged still, is nobody's.
        let how = Unmerge { force: true, ..Unmerge::default() };
        unmerge(writer, how, |_| ControlFlow::Continue(())).map_err(|error| error.to_string())?;
        let (_, errors) = writer.apply(&boot());
        match errors.first() {
            Some(error) => Err(error.to_string()),
            None => Ok(()),
        }
    }
}
