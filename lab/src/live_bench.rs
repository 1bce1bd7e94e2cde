//! The live host as the lab's [`Bench`]. All writes go through [`ksmith_host::act`], so that they are undone
//! however the lab ends.

use std::ops::ControlFlow;

use ksmith_core::decide::Preset;
use ksmith_core::knobs::{Knob, Knobs};

use crate::play::Bench;
use ksmith_host::act::{Control, RestoreError, Restored, Unmerge, Writer, unmerge};

/// The host under the lab's control. Its settings are restored on drop.
#[derive(Debug)]
pub struct LiveBench {
    control: Control,
}

impl LiveBench {
    /// Takes the host over. Every setting is noted first, because the controllers that the lab starts change
    /// them too.
    ///
    /// # Errors
    /// A setting can't be read, or the journal can't be written.
    pub fn new(mut control: Control) -> Result<Self, ksmith_host::act::ActError> {
        control.note_all()?;
        Ok(Self { control })
    }

    /// The writer of settings.
    pub fn writer(&mut self) -> &mut Writer {
        self.control.writer()
    }

    /// Restores every setting and returns what was done.
    ///
    /// # Errors
    /// A setting could not be restored.
    pub fn restore(self) -> Result<Restored, RestoreError> {
        self.control.restore()
    }
}

/// The settings that `mm/ksm.c` of Linux 6.18 boots with, and ksmd off.
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
        // The guests have ended: pages still counted as merged belong to no process.
        let how = Unmerge { force: true, ..Unmerge::default() };
        unmerge(writer, how, |_| ControlFlow::Continue(())).map_err(|error| error.to_string())?;
        let (_, errors) = writer.apply(&boot());
        match errors.first() {
            Some(error) => Err(error.to_string()),
            None => Ok(()),
        }
    }
}
