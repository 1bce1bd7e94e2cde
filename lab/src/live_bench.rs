//! The live host as the lab's [`LabBench`]. All writes go through [`ksmith_host::perform_step`], so that they are undone
//! however the lab ends.

use std::ops::ControlFlow;

use ksmith_core::decide::FixedPreset;
use ksmith_core::knobs::{Knob, KnobSettings};

use crate::play::LabBench;
use ksmith_host::act::{KnobWriter, KsmControl, RestoreError, RestoreOutcome, UnmergeOptions, unmerge};

/// The host under the lab's control. Its settings are restored on drop.
#[derive(Debug)]
pub struct LiveBench {
    control: KsmControl,
}

impl LiveBench {
    /// Takes the host over. Every setting is noted first, because the controllers that the lab starts change
    /// them too.
    ///
    /// # Errors
    /// A setting can't be read, or the journal can't be written.
    pub fn new(mut control: KsmControl) -> Result<Self, ksmith_host::act::ActError> {
        control.note_all()?;
        Ok(Self { control })
    }

    /// The writer of settings.
    pub fn writer(&mut self) -> &mut KnobWriter {
        self.control.writer()
    }

    /// Restores every setting and returns what was done.
    ///
    /// # Errors
    /// A setting could not be restored.
    pub fn restore(self) -> Result<RestoreOutcome, RestoreError> {
        self.control.restore()
    }
}

/// The settings that `mm/ksm.c` and `mm/khugepaged.c` of Linux 6.18 boot with, and ksmd off.
fn boot() -> KnobSettings {
    FixedPreset::KernelDefault
        .knobs()
        .with(Knob::AdvisorMaxCpu, 70)
        .with(Knob::AdvisorMinPagesToScan, 500)
        .with(Knob::AdvisorMaxPagesToScan, 30_000)
        .with(Knob::AdvisorTargetScanTime, 200)
        .with(Knob::MergeAcrossNodes, 1)
        .with(Knob::MaxPageSharing, 256)
        .with(Knob::MaxPtesShared, 256)
        .with(Knob::MaxPtesNone, 511)
        .with(Knob::Run, 0)
}

impl LabBench for LiveBench {
    fn reset(&mut self) -> Result<(), String> {
        let writer = self.control.writer();
        // The guests have ended: pages still counted as merged belong to no process.
        let how = UnmergeOptions { force: true, ..UnmergeOptions::default() };
        unmerge(writer, how, |_| ControlFlow::Continue(())).map_err(|error| error.to_string())?;
        let (_, errors) = writer.apply(&boot());
        match errors.first() {
            Some(error) => Err(error.to_string()),
            None => Ok(()),
        }
    }
}
