//! The live kernel as a [`KsmHost`]: joins observe and act. No other module names both.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::huge_worth::SplitLosses;
use ksmith_core::knobs::KnobSettings;
use ksmith_core::sample::{FoldedFigure, ProcessId, Sample};

use crate::act::{ActError, KsmControl, are_settings_read_only};
use crate::chosen_path;
use crate::merge_forecast::MergeForecaster;
use crate::merge_reader::{DirectMergeReader, MergeReader};
use crate::observe::HostObserver;
use crate::page_sampler::BackgroundSampler;
use crate::undo::StateDir;
use ksmith_core::controller::{ApplyOutcome, KsmHost};
use ksmith_core::lease::KsmdWaker;

/// The host that ksmith runs on, under its control.
#[derive(Debug)]
pub struct LiveHost {
    /// Source of the samples.
    pub observer: HostObserver,
    /// Writer of the settings; restores them when dropped.
    pub control: KsmControl,
    /// Folded memory of the processes that a folder has examined.
    pub folded: BTreeMap<ProcessId, FoldedFigure>,
    /// The loss of programs by split huge pages, on this host.
    pub split_losses: SplitLosses,
    merge_readings: Option<MergeReader>,
    page_samples: Option<BackgroundSampler>,
    forecaster: Option<MergeForecaster>,
}

impl LiveHost {
    /// Creates a host from its observer and its control.
    pub fn new(observer: HostObserver, control: KsmControl) -> Self {
        let folded = BTreeMap::new();
        let split_losses = SplitLosses::default();
        Self { observer, control, folded, split_losses, merge_readings: None, page_samples: None, forecaster: None }
    }

    /// Has the page tables of merging processes read, at leisure: [`MergeReader`]. Without a thread for it, samples have
    /// KSM's counters only. What is to outlive this process is kept in `directory`.
    #[must_use]
    pub fn with_merge_readings(mut self, directory: &StateDir) -> Self {
        let started = MergeReader::start(directory);
        self.merge_readings = started.inspect_err(|why| tracing::warn!("no page tables are read: {why}")).ok();
        self
    }

    /// Takes a sample without page samples. It has the settings as decided: those that a lease changes for
    /// its own purposes are hidden.
    pub fn sample_without_pages(&mut self) -> Sample {
        // Between two paths nothing else does, and a killed child stays a zombie.
        chosen_path::reap_children();
        // A ksmd that rests does so until this thread says otherwise.
        let rest = self.control.writer().rest();
        let mut sample = Sample { rest, split_losses: self.split_losses, ..self.observer.sample() };
        sample.is_ksm_read_only = are_settings_read_only(self.control.root());
        self.control.writer().show_decided(&mut sample.ksm);
        if let Some(reader) = &mut self.merge_readings {
            reader.fill(&mut sample);
        }
        self.sum_folded(&mut sample);
        sample
    }

    /// Takes a sample for which all processes that merge are read, and waits for that: for commands without a daemon, before
    /// and after a scan.
    pub fn sample_by_page_tables(&mut self, reader: &mut DirectMergeReader) -> Sample {
        self.observer.look_at_all();
        let mut sample = self.sample_without_pages();
        reader.read(&mut sample);
        self.sum_folded(&mut sample);
        sample
    }

    /// Has the page tables of all processes read anew. Until that is done, [`Self::is_renewing_readings`] is true.
    pub fn renew_readings(&mut self) {
        if let Some(reader) = &mut self.merge_readings {
            reader.renew();
        }
    }

    /// Ends what [`Self::renew_readings`] has begun.
    pub fn cancel_readings(&mut self) {
        if let Some(reader) = &mut self.merge_readings {
            reader.cancel_renewal();
        }
    }

    /// Returns true while page tables are to be read anew.
    pub fn is_renewing_readings(&self) -> bool {
        self.merge_readings.as_ref().is_some_and(MergeReader::is_renewing)
    }

    /// Joins the folded memory of processes with what a folder has found, and sums it.
    fn sum_folded(&self, sample: &mut Sample) {
        for process in sample.processes.iter_mut().filter(|process| !process.is_twin) {
            let of_folder = self.folded.get(&process.id).copied();
            process.folded_bytes = FoldedFigure::join(process.folded_figure(), of_folder);
        }
        sample.sum_folded();
    }
}

impl KsmHost for LiveHost {
    fn sample(&mut self) -> Sample {
        let mut sample = self.sample_without_pages();
        if let Some(reader) = &mut self.merge_readings {
            reader.request(&sample);
        }
        if let Some(watch) = &mut self.page_samples {
            watch.read(&mut sample);
        }
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.fill(&mut sample);
        }
        sample
    }

    fn enable_page_sampling(&mut self, wanted: bool) {
        if !wanted {
            (self.page_samples, self.forecaster) = (None, None);
            return;
        }
        if self.page_samples.is_none() {
            let started = BackgroundSampler::start();
            self.page_samples = started.inspect_err(|why| tracing::warn!("no pages are sampled: {why}")).ok();
        }
        if self.forecaster.is_none() {
            let started = MergeForecaster::start();
            self.forecaster = started.inspect_err(|why| tracing::warn!("merging is not forecast: {why}")).ok();
        }
    }

    fn request_forecast(&mut self) {
        if let Some(forecaster) = &mut self.forecaster {
            forecaster.request();
        }
    }

    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        let (changes, errors) = self.control.writer().apply_leased(knobs);
        let (waiting, errors): (Vec<ActError>, Vec<ActError>) =
            errors.into_iter().partition(|error| matches!(error, ActError::Busy { .. }));
        let sentences = |errors: &[ActError]| errors.iter().map(ToString::to_string).collect();
        ApplyOutcome { changes, errors: sentences(&errors), waiting: sentences(&waiting) }
    }

    fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Vec<String> {
        let outcome = self.control.writer().hold(until_next, rest_after);
        outcome.err().iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;
    use crate::root::Root;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Runs in a process of its own: a path that another test opens has the children of all reaped.
    #[test]
    fn each_sample_reaps_the_children_that_have_opened_a_path() {
        const MARK: &str = "KSMITH_TEST_HAS_OWN_PROCESS";
        const USER: u32 = 71_905;
        if std::env::var_os(MARK).is_none() {
            let name = "live::tests::each_sample_reaps_the_children_that_have_opened_a_path";
            let mut command = Command::new(std::env::current_exe().unwrap());
            let output = command.args(["--exact", name, "--test-threads=1"]).env(MARK, "1").output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let control = KsmControl::acquire(&root, &StateDir::from_root(&root), true, false).unwrap();
        let mut host = LiveHost::new(HostObserver::new(root), control);
        for _ in 0..2 {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            // The middle of this path may wait.
            let path = Path::new("/proc/self/root").join("no-such-file");
            assert!(chosen_path::connect_path(&socket, &path, USER, MINUTE).is_err());
            waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            assert_eq!(chosen_path::count_left(USER), 1, "it has ended, and is not reaped");
            host.sample_without_pages();
            assert_eq!(chosen_path::count_left(USER), 0);
        }
    }
}
