//! The live host as the lab's [`LabBench`]. All writes go through [`ksmith_host::perform_step`], so that they are undone
//! however the lab ends.

use std::ops::ControlFlow;

use ksmith_core::decide::FixedPreset;
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::sim::KhugepagedPace;

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

    fn apply(&mut self, settings: &KnobSettings) -> Result<(), String> {
        let (_, errors) = self.control.writer().apply(settings);
        errors.first().map_or(Ok(()), |error| Err(error.to_string()))
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
    with_pace(FixedPreset::KernelDefault.knobs(), KhugepagedPace::default())
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

/// Adds khugepaged's pace to `settings`.
fn with_pace(settings: KnobSettings, pace: KhugepagedPace) -> KnobSettings {
    settings
        .with(Knob::KhugepagedPagesToScan, pace.pages_to_scan.into())
        .with(Knob::KhugepagedScanSleepMillisecs, pace.scan_sleep_millisecs.into())
}

impl LabBench for LiveBench {
    fn reset(&mut self) -> Result<(), String> {
        let writer = self.control.writer();
        // The guests have ended: pages still counted as merged belong to no process.
        let how = UnmergeOptions { force: true, ..UnmergeOptions::default() };
        unmerge(writer, how, |_| ControlFlow::Continue(())).map_err(|error| error.to_string())?;
        self.apply(&boot())
    }

    fn set_khugepaged(&mut self, pace: KhugepagedPace) -> Result<(), String> {
        self.apply(&with_pace(KnobSettings::none(), pace))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ksmith_host::root::Root;
    use ksmith_host::undo::StateDir;

    use super::*;

    #[test]
    fn khugepageds_pace_is_noted_before_it_is_set_and_restored() {
        let tree = tempfile::tempdir().unwrap();
        let knobs = [Knob::KhugepagedPagesToScan, Knob::KhugepagedScanSleepMillisecs];
        let path = |knob: Knob| tree.path().join(knob.path().trim_start_matches('/'));
        for knob in knobs.into_iter().chain([Knob::Run]) {
            fs::create_dir_all(path(knob).parent().unwrap()).unwrap();
            fs::write(path(knob), "0\n").unwrap();
        }
        let values = || knobs.map(|knob| fs::read_to_string(path(knob)).unwrap().trim().to_owned());
        let root = Root::at(tree.path());
        let directory = StateDir::from_root(&root);
        let control = KsmControl::acquire(&root, &directory, false, false).unwrap();
        let mut bench = LiveBench::new(control).unwrap();
        // What a kill would leave to `ksmith restore`.
        let noted = fs::read_to_string(directory.undo()).unwrap();
        assert!(knobs.iter().all(|knob| noted.contains(&format!("\"{knob}\""))), "{noted}");
        bench.set_khugepaged(KhugepagedPace { pages_to_scan: 512, scan_sleep_millisecs: 100 }).unwrap();
        assert_eq!(values(), ["512", "100"]);
        bench.restore().unwrap();
        assert_eq!(values(), ["0"; 2]);
    }
}
