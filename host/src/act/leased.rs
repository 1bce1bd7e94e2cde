//! The implementation of [`KsmdWaker`] for the writer: ksmd's own sleep is a day, and a thread wakes it at the chosen
//! rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::lease::{self, KsmdWaker, LeaseTerms, ScanRate};

use super::lease::{KsmdLease, LeasedKsmd};
use super::on_rest::RestCallback;
use super::{ActError, KnobChange, KnobWriter};

/// Polling interval while waiting for ksmd's batch to end.
const LOOK: Duration = Duration::from_micros(500);

impl KnobWriter {
    /// Sets how long [`KsmdWaker::apply_leased`] may wait for ksmd's batch to end before it writes `run`. The write
    /// itself has no timeout.
    pub fn set_patience(&mut self, patience: Duration) {
        self.waker.patience = Some(patience);
    }

    /// Sets the callback for a ksmd that has come to rest. The thread that wakes ksmd calls it.
    pub fn on_rest(&mut self, tell: impl Fn() + Send + Sync + 'static) {
        self.waker.on_rest = RestCallback(Arc::new(tell));
    }

    /// Ends the lease. ksmd stays asleep until `sleep_millisecs` is written.
    pub(super) fn end_lease(&mut self) {
        self.waker.lease = None;
    }

    fn ksmd(&mut self) -> Option<Arc<LeasedKsmd>> {
        if self.waker.ksmd.is_none() {
            let found = LeasedKsmd::find(self.root()).map(Arc::new);
            if found.is_none() {
                tracing::warn!(
                    "ksmd can't run under a lease: that needs Linux {} and a ksmd with schedstat in /proc; \
                    {AT_RISK}",
                    lease::SINCE
                );
            }
            self.waker.ksmd = Some(found);
        }
        self.waker.ksmd.clone().flatten()
    }
}

impl KsmdWaker for KnobWriter {
    type Error = ActError;

    fn may_lease(&self) -> bool {
        !self.is_dry_run() && self.journal().is_some()
    }

    fn get(&self, knob: Knob) -> Result<Option<u64>, ActError> {
        self.get(knob)
    }

    fn set(&mut self, knob: Knob, value: u64) -> Result<Option<KnobChange>, ActError> {
        self.set(knob, value)
    }

    fn apply(&mut self, knobs: &KnobSettings) -> (Vec<KnobChange>, Vec<ActError>) {
        self.apply(knobs)
    }

    /// Returns true if ksmd can be woken. Warns once if it can't.
    fn can_wake(&mut self) -> bool {
        self.ksmd().is_some()
    }

    fn begin_lease(&mut self, rate: ScanRate, value: u64) -> Result<(), ActError> {
        let Some(ksmd) = self.ksmd() else { return Ok(()) };
        let begun = KsmdLease::begin(self.root(), ksmd, value, rate, self.waker.on_rest.clone());
        self.waker.lease = Some(begun.map_err(ActError::NoWaker)?);
        Ok(())
    }

    fn with_lease<T>(&mut self, act: impl FnOnce(&mut LeaseTerms, Duration) -> T) -> Option<T> {
        self.waker.lease.as_ref()?.change(act)
    }

    fn await_sleep(&mut self, run: u64) -> Result<(), ActError> {
        let Some(patience) = self.waker.patience else { return Ok(()) };
        let Some(ksmd) = self.ksmd() else { return Ok(()) };
        let began = Instant::now();
        while !ksmd.is_asleep() {
            if began.elapsed() >= patience {
                return Err(ActError::Busy { wanted: run });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// The consequence of having no lease, for messages.
const AT_RISK: &str = "if this process is stopped or frozen, ksmd continues to scan";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use ksmith_core::kernel::Ksm;
    use ksmith_core::reading::Reading;

    use super::super::lease::tests::{add_ksmd, wait_until};
    use super::super::writer::tests::whole_tree;
    use super::super::{KsmControl, StateDir};
    use super::*;
    use crate::root::Root;

    fn control(tree: &Path) -> KsmControl {
        let root = Root::at(tree);
        KsmControl::acquire(&root, &StateDir::from_root(&root), false, false).unwrap()
    }

    fn leasable() -> tempfile::TempDir {
        let tree = whole_tree();
        add_ksmd(tree.path());
        tree
    }

    fn file(tree: &Path, name: &str) -> u64 {
        fs::read_to_string(tree.join("sys/kernel/mm/ksm").join(name)).unwrap().trim().parse().unwrap()
    }

    fn burst() -> KnobSettings {
        KnobSettings::none().with(Knob::PagesToScan, 1250).with(Knob::SleepMillisecs, 0).with(Knob::Run, 1)
    }

    fn shown(writer: &mut KnobWriter, tree: &Path) -> Option<u64> {
        let mut ksm = Ksm { sleep_millisecs: Reading::Value(file(tree, "sleep_millisecs")), ..Ksm::default() };
        writer.show_decided(&mut ksm);
        ksm.sleep_millisecs.get()
    }

    #[test]
    fn a_burst_is_leased_and_shows_the_sleep_that_was_decided_on() {
        let tree = leasable();
        let mut control = control(tree.path());
        let writer = control.writer();
        assert!(writer.apply_leased(&burst()).1.is_empty());
        assert!(lease::is_leased(file(tree.path(), "sleep_millisecs")));
        assert_eq!((file(tree.path(), "pages_to_scan"), file(tree.path(), "run")), (1280, 1));
        assert_eq!(shown(writer, tree.path()), Some(0));
        writer.apply_leased(&KnobSettings::none().with(Knob::SleepMillisecs, 7));
        assert!(lease::is_leased(file(tree.path(), "sleep_millisecs")));
        assert_eq!(shown(writer, tree.path()), Some(7));
    }

    #[test]
    fn the_end_of_a_burst_and_the_end_of_the_program_leave_plain_sleeps() {
        let tree = leasable();
        let mut control = control(tree.path());
        let writer = control.writer();
        writer.apply_leased(&burst());
        let (changes, errors) = writer.apply_leased(&KnobSettings::none().with(Knob::Run, 0));
        assert!(errors.is_empty());
        assert_eq!(changes.first().map(ToString::to_string).as_deref(), Some("run 1 -> 0"), "first of all");
        assert_eq!(file(tree.path(), "sleep_millisecs"), 0, "what was decided on");
        writer.apply_leased(&KnobSettings::none().with(Knob::Run, 1));
        assert!(lease::is_leased(file(tree.path(), "sleep_millisecs")), "it is leased again");
        writer.apply_leased(&KnobSettings::none().with(Knob::PagesToScan, 5).with(Knob::SleepMillisecs, 20));
        assert_eq!(file(tree.path(), "sleep_millisecs"), 20, "slow enough without");
        writer.apply_leased(&burst());
        control.restore().unwrap();
        assert_eq!((file(tree.path(), "sleep_millisecs"), file(tree.path(), "run")), (20, 0));
        assert_eq!(file(tree.path(), "pages_to_scan"), 100);
    }

    #[test]
    fn what_runs_already_is_leased_at_the_next_look() {
        let tree = leasable();
        fs::write(tree.path().join("sys/kernel/mm/ksm/run"), "1\n").unwrap();
        let mut control = control(tree.path());
        let writer = control.writer();
        writer.hold(Duration::from_secs(1), None).unwrap();
        assert!(lease::is_leased(file(tree.path(), "sleep_millisecs")));
        assert_eq!(shown(writer, tree.path()), Some(20));
        // Another program writes a sleep of its own, and then stops ksmd.
        fs::write(tree.path().join("sys/kernel/mm/ksm/sleep_millisecs"), "50\n").unwrap();
        assert_eq!(shown(writer, tree.path()), Some(50));
        writer.hold(Duration::from_secs(1), None).unwrap();
        assert!(lease::is_leased(file(tree.path(), "sleep_millisecs")));
        assert_eq!(shown(writer, tree.path()), Some(50));
        fs::write(tree.path().join("sys/kernel/mm/ksm/run"), "0\n").unwrap();
        writer.hold(Duration::from_secs(1), None).unwrap();
        assert_eq!(file(tree.path(), "sleep_millisecs"), 50);
    }

    #[test]
    fn a_dead_ksmith_leaves_the_lease_and_the_next_one_restores() {
        let tree = leasable();
        let mut killed = control(tree.path());
        killed.writer().apply_leased(&burst());
        let woken = file(tree.path(), "sleep_millisecs");
        wait_until("ksmd is woken", || file(tree.path(), "sleep_millisecs") != woken);
        // As SIGKILL does: the thread is gone, and nothing is restored.
        killed.writer().end_lease();
        std::mem::forget(killed);
        assert!(lease::is_leased(file(tree.path(), "sleep_millisecs")));
        let root = Root::at(tree.path());
        let journal = super::super::KsmJournal::open(&StateDir::from_root(&root)).unwrap();
        let mut writer = KnobWriter::new(&root, false).with_journal(journal);
        super::super::restore(&mut writer, true).unwrap();
        assert_eq!((file(tree.path(), "sleep_millisecs"), file(tree.path(), "run")), (20, 0));
    }

    #[test]
    fn what_an_administrator_sets_after_a_kill_stays() {
        let tree = leasable();
        let mut killed = control(tree.path());
        killed.writer().apply_leased(&burst());
        killed.writer().end_lease();
        std::mem::forget(killed);
        fs::write(tree.path().join("sys/kernel/mm/ksm/sleep_millisecs"), "77\n").unwrap();
        let root = Root::at(tree.path());
        let journal = super::super::KsmJournal::open(&StateDir::from_root(&root)).unwrap();
        let mut writer = KnobWriter::new(&root, false).with_journal(journal);
        let restored = super::super::restore(&mut writer, true).unwrap();
        assert_eq!((file(tree.path(), "sleep_millisecs"), file(tree.path(), "pages_to_scan")), (77, 100));
        assert!(restored.notes.iter().any(|note| note.contains("by another program")), "{restored:?}");
    }

    #[test]
    fn a_long_batch_is_written_in_parts_and_shown_whole() {
        let tree = leasable();
        let mut control = control(tree.path());
        let writer = control.writer();
        let long = KnobSettings::none().with(Knob::PagesToScan, 625_000).with(Knob::SleepMillisecs, 500);
        assert!(writer.apply_leased(&long.with(Knob::Run, 1)).1.is_empty());
        assert_eq!(file(tree.path(), "pages_to_scan"), 5000);
        let shown = |writer: &mut KnobWriter| {
            let pages = Reading::Value(file(tree.path(), "pages_to_scan"));
            let mut ksm = Ksm { pages_to_scan: pages, ..Ksm::default() };
            writer.show_decided(&mut ksm);
            ksm.pages_to_scan.get()
        };
        assert_eq!(shown(writer), Some(625_000));
        writer.hold(Duration::from_secs(1), None).unwrap();
        assert_eq!((file(tree.path(), "pages_to_scan"), shown(writer)), (5000, Some(625_000)));
        fs::write(tree.path().join("sys/kernel/mm/ksm/pages_to_scan"), "77\n").unwrap();
        assert_eq!(shown(writer), Some(77), "what another program writes is seen");
        writer.apply_leased(&KnobSettings::none().with(Knob::PagesToScan, 625_000));
        writer.apply_leased(&KnobSettings::none().with(Knob::Run, 0));
        assert_eq!(file(tree.path(), "pages_to_scan"), 625_000, "the decision, without a lease");
        assert_eq!(file(tree.path(), "sleep_millisecs"), 500);
    }

    #[test]
    fn a_ksmd_that_does_not_end_its_batch_holds_up_no_turn_and_is_stopped_later() {
        let tree = leasable();
        let stat = tree.path().join("proc/35/stat");
        let (asleep, mut control) = (fs::read_to_string(&stat).unwrap(), control(tree.path()));
        let writer = control.writer();
        writer.set_patience(Duration::from_millis(5));
        writer.apply_leased(&burst());
        fs::write(&stat, asleep.replace(" S ", " D ")).unwrap();
        let park = KnobSettings::none().with(Knob::Run, 0);
        for _ in 0..2 {
            let (changes, errors) = writer.apply_leased(&park);
            assert!(
                matches!((&changes[..], &errors[..]), ([], [ActError::Busy { wanted: 0 }])),
                "{changes:?} {errors:?}"
            );
            assert_eq!(file(tree.path(), "run"), 1);
        }
        // Once more asleep it is not woken, and is stopped at the next try.
        let value = file(tree.path(), "sleep_millisecs");
        fs::write(&stat, asleep).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(file(tree.path(), "sleep_millisecs"), value);
        assert!(writer.apply_leased(&park).1.is_empty());
        assert_eq!((file(tree.path(), "run"), file(tree.path(), "sleep_millisecs")), (0, 0));
    }

    #[test]
    fn without_a_ksmd_that_can_be_woken_settings_are_plain() {
        let tree = whole_tree();
        let mut control = control(tree.path());
        let writer = control.writer();
        assert!(writer.apply_leased(&burst()).1.is_empty());
        writer.hold(Duration::from_secs(1), None).unwrap();
        assert_eq!((file(tree.path(), "sleep_millisecs"), file(tree.path(), "run")), (0, 1));
    }

    #[test]
    fn changes_that_last_are_never_leased() {
        let tree = leasable();
        let mut writer = KnobWriter::new(&Root::at(tree.path()), false);
        writer.apply_leased(&burst());
        assert_eq!(file(tree.path(), "sleep_millisecs"), 0);
    }
}
