//! Settings under a lease: ksmd's own sleep is a day, and a thread wakes it as often as was decided.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ksmith_core::kernel::Ksm;
use ksmith_core::knobs::{Knob, Knobs};
use ksmith_core::lease::{self, Rate};
use ksmith_core::reading::Reading;
use ksmith_core::sample::Rest;

use super::lease::{Ksmd, Lease};
use super::on_rest::OnRest;
use super::{ActError, Change, Writer};

/// Time between two looks at a ksmd that is to end its batch.
const LOOK: Duration = Duration::from_micros(500);

impl Writer {
    /// Limits how long [`Writer::apply_leased`] may wait for ksmd's batch to end before it writes `run`. The write itself would
    /// wait without end where ksmd does.
    pub fn set_patience(&mut self, patience: Duration) {
        self.waker.patience = Some(patience);
    }

    /// Brings `knobs` about as [`Writer::apply`] does, under a lease where ksmd could use more than 1 % of a CPU.
    ///
    /// At no moment in between is ksmd free to use more: a lease begins before a batch grows, and ends after it has shrunk.
    pub fn apply_leased(&mut self, knobs: &Knobs) -> (Vec<Change>, Vec<ActError>) {
        let Some(rate) = self.rate(knobs).filter(|_| self.is_under_control()) else { return self.apply(knobs) };
        let (mut changes, mut rest) = (Vec::new(), knobs.clone());
        if rate.needs_lease() {
            match self.lease_for(rate) {
                Ok(change) => changes.extend(change),
                Err(error) => return (changes, vec![error]),
            }
            if self.waker.lease.is_some() {
                rest.remove(Knob::SleepMillisecs);
                set_pages(&mut rest, &rate, rate.parts().pages);
            }
        } else {
            if self.waker.lease.is_some() {
                rest.set(Knob::SleepMillisecs, rate.sleep_ms);
                set_pages(&mut rest, &rate, rate.pages_to_scan);
            }
            // The sleep is short again only after ksmd was stopped.
            if let Some(stop) = knobs.get(Knob::Run).filter(|run| *run != 1) {
                match self.wait_for_sleep(stop).and_then(|()| self.set(Knob::Run, stop)) {
                    Ok(change) => changes.extend(change),
                    Err(error) => return (changes, vec![error]),
                }
            }
        }
        let (more, errors) = self.apply(&rest);
        changes.extend(more);
        if let Some(lease) = &mut self.waker.lease {
            lease.set(rate);
            lease.hold(Duration::ZERO);
        }
        (changes, errors)
    }

    /// Holds the lease until the next look is due and a little longer, and has ksmd rest once it has completed `rest_after` passes. The lease begins or ends here where another program has
    /// changed the settings.
    ///
    /// # Errors
    /// A setting can't be read or written.
    pub fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Result<(), ActError> {
        let Some(rate) = self.rate(&Knobs::none()).filter(|_| self.is_under_control()) else { return Ok(()) };
        let is_leased = self.waker.lease.is_some();
        if rate.needs_lease() {
            self.lease_for(rate)?;
            if self.waker.lease.is_some() && !rate.is_advised {
                self.set(Knob::PagesToScan, rate.parts().pages)?;
            }
        } else if is_leased {
            if !rate.is_advised {
                self.set(Knob::PagesToScan, rate.pages_to_scan)?;
            }
            self.set(Knob::SleepMillisecs, rate.sleep_ms)?;
        }
        if let Some(lease) = &mut self.waker.lease {
            lease.set(rate);
            lease.hold(until_next);
            lease.rest_after(rest_after);
        }
        Ok(())
    }

    /// Whether ksmd rests at the end of a pass.
    pub fn rest(&self) -> Rest {
        self.waker.lease.as_ref().map_or(Rest::Unavailable, Lease::rest)
    }

    /// Has `tell` called whenever ksmd has come to rest, by the thread that wakes it.
    pub fn on_rest(&mut self, tell: impl Fn() + Send + Sync + 'static) {
        self.waker.on_rest = OnRest(Arc::new(tell));
    }

    /// Puts the batch and the sleep that were decided on in the place of those that the lease has written.
    pub fn show_decided(&self, ksm: &mut Ksm) {
        let (sleep_ms, pages) = self.decided(ksm.sleep_millisecs.get(), ksm.pages_to_scan.get());
        if let Some(sleep_ms) = sleep_ms {
            ksm.sleep_millisecs = Reading::Value(sleep_ms);
        }
        if let Some(pages) = pages {
            ksm.pages_to_scan = Reading::Value(pages);
        }
    }

    /// What was decided on where `sleep_millisecs` and `pages_to_scan` have these values: the values themselves, unless the
    /// lease has written them.
    fn decided(&self, sleep_ms: Option<u64>, pages: Option<u64>) -> (Option<u64>, Option<u64>) {
        let Some(rate) = self.waker.lease.as_ref().map(Lease::rate) else { return (sleep_ms, pages) };
        let is_part = |pages: &u64| !rate.is_advised && *pages == rate.parts().pages;
        let decided_pages = pages.map(|pages| if is_part(&pages) { rate.pages_to_scan } else { pages });
        let decided_sleep = sleep_ms.map(|ms| if lease::is_leased(ms) { rate.sleep_ms } else { ms });
        (decided_sleep, decided_pages)
    }

    /// Ends the lease. ksmd stays asleep until `sleep_millisecs` is written.
    pub(super) fn end_lease(&mut self) {
        self.waker.lease = None;
    }

    /// Whether what is written is undone at the end, and so may be a lease.
    fn is_under_control(&self) -> bool {
        !self.is_dry_run() && self.journal().is_some()
    }

    /// The rate of ksmd once `knobs` are brought about. `None` where a file is missing.
    fn rate(&self, knobs: &Knobs) -> Option<Rate> {
        let now = |knob| self.get(knob).ok().flatten();
        let (sleep_ms, pages) = self.decided(now(Knob::SleepMillisecs), now(Knob::PagesToScan));
        Some(Rate {
            runs: knobs.get(Knob::Run).or_else(|| now(Knob::Run))? == 1,
            is_advised: knobs.get(Knob::AdvisorMode).or_else(|| now(Knob::AdvisorMode)) == Some(1),
            pages_to_scan: knobs.get(Knob::PagesToScan).or(pages)?,
            sleep_ms: knobs.get(Knob::SleepMillisecs).or(sleep_ms)?,
        })
    }

    /// Has a lease be in force. Where none is possible, that is said once, and nothing is changed.
    fn lease_for(&mut self, rate: Rate) -> Result<Option<Change>, ActError> {
        let now = self.get(Knob::SleepMillisecs)?.unwrap_or(0);
        if self.waker.lease.as_ref().is_some_and(|lease| !lease.is_broken()) && lease::is_leased(now) {
            return Ok(None);
        }
        let Some(ksmd) = self.ksmd() else { return Ok(None) };
        let value = lease::next(now);
        let change = self.set(Knob::SleepMillisecs, value)?;
        self.waker.lease = Some(
            Lease::begin(self.root(), ksmd, value, rate, self.waker.on_rest.clone()).map_err(ActError::NoWaker)?,
        );
        Ok(change)
    }

    /// Has ksmd woken no more, and waits until it sleeps.
    fn wait_for_sleep(&mut self, wanted: u64) -> Result<(), ActError> {
        if let Some(lease) = &self.waker.lease {
            lease.suspend();
        }
        let Some(patience) = self.waker.patience else { return Ok(()) };
        let Some(ksmd) = self.ksmd() else { return Ok(()) };
        let began = Instant::now();
        while !ksmd.is_asleep() {
            if began.elapsed() >= patience {
                return Err(ActError::Busy { wanted });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn ksmd(&mut self) -> Option<Arc<Ksmd>> {
        if self.waker.ksmd.is_none() {
            let found = Ksmd::find(self.root()).map(Arc::new);
            if found.is_none() {
                tracing::warn!(
                    "ksmd can't be had under a lease: that needs Linux {} and a ksmd with schedstat in /proc; {AT_RISK}",
                    lease::SINCE
                );
            }
            self.waker.ksmd = Some(found);
        }
        self.waker.ksmd.clone().flatten()
    }
}

/// Sets the batch, unless the kernel's advisor does.
fn set_pages(knobs: &mut Knobs, rate: &Rate, pages: u64) {
    if !rate.is_advised {
        knobs.set(Knob::PagesToScan, pages);
    }
}

/// What it means that there is no lease.
const AT_RISK: &str = "if this process is stopped or frozen, ksmd scans on";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::lease::tests::{add_ksmd, wait_until};
    use super::super::writer::tests::whole_tree;
    use super::super::{Control, StateDir};
    use super::*;
    use crate::root::Root;

    fn control(tree: &Path) -> Control {
        let root = Root::at(tree);
        Control::take(&root, &StateDir::of(&root), false, false).unwrap()
    }

    fn leasable() -> tempfile::TempDir {
        let tree = whole_tree();
        add_ksmd(tree.path());
        tree
    }

    fn file(tree: &Path, name: &str) -> u64 {
        fs::read_to_string(tree.join("sys/kernel/mm/ksm").join(name)).unwrap().trim().parse().unwrap()
    }

    fn burst() -> Knobs {
        Knobs::none().with(Knob::PagesToScan, 1250).with(Knob::SleepMillisecs, 0).with(Knob::Run, 1)
    }

    fn shown(writer: &Writer, tree: &Path) -> Option<u64> {
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
        writer.apply_leased(&Knobs::none().with(Knob::SleepMillisecs, 7));
        assert!(lease::is_leased(file(tree.path(), "sleep_millisecs")));
        assert_eq!(shown(writer, tree.path()), Some(7));
    }

    #[test]
    fn the_end_of_a_burst_and_the_end_of_the_program_leave_plain_sleeps() {
        let tree = leasable();
        let mut control = control(tree.path());
        let writer = control.writer();
        writer.apply_leased(&burst());
        let (changes, errors) = writer.apply_leased(&Knobs::none().with(Knob::Run, 0));
        assert!(errors.is_empty());
        assert_eq!(changes.first().map(ToString::to_string).as_deref(), Some("run 1 -> 0"), "first of all");
        assert_eq!(file(tree.path(), "sleep_millisecs"), 0, "what was decided on");
        writer.apply_leased(&Knobs::none().with(Knob::Run, 1));
        assert!(lease::is_leased(file(tree.path(), "sleep_millisecs")), "it is leased again");
        writer.apply_leased(&Knobs::none().with(Knob::PagesToScan, 5).with(Knob::SleepMillisecs, 20));
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
        let journal = super::super::Journal::open(&StateDir::of(&root)).unwrap();
        let mut writer = Writer::new(&root, false).with_journal(journal);
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
        let journal = super::super::Journal::open(&StateDir::of(&root)).unwrap();
        let mut writer = Writer::new(&root, false).with_journal(journal);
        let restored = super::super::restore(&mut writer, true).unwrap();
        assert_eq!((file(tree.path(), "sleep_millisecs"), file(tree.path(), "pages_to_scan")), (77, 100));
        assert!(restored.notes.iter().any(|note| note.contains("by another program")), "{restored:?}");
    }

    #[test]
    fn a_long_batch_is_written_in_parts_and_shown_whole() {
        let tree = leasable();
        let mut control = control(tree.path());
        let writer = control.writer();
        let long = Knobs::none().with(Knob::PagesToScan, 625_000).with(Knob::SleepMillisecs, 500);
        assert!(writer.apply_leased(&long.with(Knob::Run, 1)).1.is_empty());
        assert_eq!(file(tree.path(), "pages_to_scan"), 5000);
        let shown = |writer: &Writer| {
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
        writer.apply_leased(&Knobs::none().with(Knob::PagesToScan, 625_000));
        writer.apply_leased(&Knobs::none().with(Knob::Run, 0));
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
        let park = Knobs::none().with(Knob::Run, 0);
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
        let mut writer = Writer::new(&Root::at(tree.path()), false);
        writer.apply_leased(&burst());
        assert_eq!(file(tree.path(), "sleep_millisecs"), 0);
    }
}
