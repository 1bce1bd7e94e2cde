//! Putting together the huge pages of guests whose merging was switched off because it split them for little.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::fold::FoldNote;
use ksmith_core::guest::{Guest, SwitchOffReason};
use ksmith_core::sample::ProcessId;
use ksmith_core::units::{Bytes, TimeSpan};
use ksmith_host::fold::CollapseTally;

use super::protocol::FoldOutcome;

/// The guests with split huge pages to put together, each once for as long as it is switched off.
#[derive(Debug, Default)]
pub(super) struct CollapseQueue(BTreeMap<ProcessId, CollapseRecord>);

#[derive(Debug)]
struct CollapseRecord {
    name: String,
    tally: CollapseTally,
    is_finished: bool,
}

impl CollapseQueue {
    /// Takes over the guests of a sample. Those whose monitor does not yet say that merging is off wait: ksmd would split again.
    pub(super) fn follow(&mut self, guests: &[Guest]) {
        let is_off =
            |guest: &&Guest| guest.switched_off == Some(SwitchOffReason::Splits) && guest.offered == Some(false);
        let mut before = std::mem::take(&mut self.0);
        for guest in guests.iter().filter(is_off) {
            let id = guest.id().process();
            let new =
                || CollapseRecord { name: guest.title(), tally: CollapseTally::default(), is_finished: false };
            self.0.insert(id, before.remove(&id).unwrap_or_else(new));
        }
    }

    /// Returns the process whose huge pages are put together next.
    pub(super) fn next(&self) -> Option<ProcessId> {
        self.0.iter().find(|(_, guest)| !guest.is_finished).map(|(id, _)| *id)
    }

    /// Ends the work on a process: it does not answer.
    pub(super) fn finish(&mut self, id: ProcessId) {
        if let Some(guest) = self.0.get_mut(&id) {
            guest.is_finished = true;
        }
    }

    /// Records the outcome of a pass. Returns a note once the guest is finished.
    pub(super) fn record(&mut self, id: ProcessId, outcome: FoldOutcome) -> Option<FoldNote> {
        let guest = self.0.get_mut(&id)?;
        let pass = match outcome {
            FoldOutcome::Collapsed(pass) => pass,
            FoldOutcome::Failed(why) | FoldOutcome::Hindered(why) => {
                guest.is_finished = true;
                let text = format!("{} stays in small pages until khugepaged collapses them: {why}", guest.name);
                return Some(FoldNote { state: "refused", text });
            }
            _ => {
                guest.is_finished = true;
                return None;
            }
        };
        let sum = &mut guest.tally;
        sum.collapsed_bytes = sum.collapsed_bytes.saturating_add(pass.collapsed_bytes);
        sum.refused_bytes = pass.refused_bytes;
        sum.cpu_seconds += pass.cpu_seconds;
        // A pass that achieves nothing before its time is up would be repeated without end.
        guest.is_finished = pass.is_done || pass.collapsed_bytes == 0;
        guest.is_finished.then(|| {
            let cpu = TimeSpan(Duration::try_from_secs_f64(sum.cpu_seconds).unwrap_or_default());
            let (together, left) = (Bytes::from(sum.collapsed_bytes), Bytes::from(sum.refused_bytes));
            let left = if sum.refused_bytes == 0 { String::new() } else { format!(", {left} the kernel left") };
            let text = format!("{together} of {} are in huge pages again, for {cpu} of CPU{left}", guest.name);
            FoldNote { state: "collapsed", text }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ProcessId = ProcessId { pid: 7, start_ticks: 5 };

    fn guest(why: Option<SwitchOffReason>, offered: bool) -> Guest {
        Guest { switched_off: why, offered: Some(offered), is_verified: true, ..Guest::plain("web", ONE) }
    }

    fn pass(collapsed_bytes: u64, is_done: bool) -> FoldOutcome {
        FoldOutcome::Collapsed(CollapseTally {
            collapsed_bytes,
            refused_bytes: 2 << 20,
            cpu_seconds: 0.25,
            is_done,
        })
    }

    #[test]
    fn only_a_guest_that_is_off_for_its_splits_is_put_together_and_once() {
        let mut queue = CollapseQueue::default();
        for other in [guest(None, false), guest(Some(SwitchOffReason::Prune), false)] {
            queue.follow(&[other]);
            assert_eq!(queue.next(), None);
        }
        let off = guest(Some(SwitchOffReason::Splits), false);
        queue.follow(&[guest(off.switched_off, true)]);
        assert_eq!(queue.next(), None, "it is being switched");
        queue.follow(std::slice::from_ref(&off));
        assert_eq!(queue.next(), Some(ONE));
        assert_eq!(queue.record(ONE, pass(64 << 20, false)), None);
        assert_eq!(queue.next(), Some(ONE), "its time was up");
        let note = queue.record(ONE, pass(64 << 20, true)).unwrap();
        assert_eq!(
            note.text,
            "128 MiB of web (pid 7) are in huge pages again, for 500 ms of CPU, 2.00 MiB the kernel left"
        );
        queue.follow(std::slice::from_ref(&off));
        assert_eq!(queue.next(), None, "nothing is left to do");
        // Switched on and off again.
        queue.follow(&[guest(None, true)]);
        queue.follow(&[off]);
        assert_eq!(queue.next(), Some(ONE));
    }

    #[test]
    fn a_guest_that_fails_or_gains_nothing_is_left_to_khugepaged() {
        for (outcome, state) in [
            (FoldOutcome::Failed("no right".to_owned()), Some("refused")),
            (FoldOutcome::Hindered("no call".to_owned()), Some("refused")),
            (pass(0, false), Some("collapsed")),
            (FoldOutcome::Gone, None),
        ] {
            let mut queue = CollapseQueue::default();
            queue.follow(&[guest(Some(SwitchOffReason::Splits), false)]);
            assert_eq!(queue.record(ONE, outcome).map(|note| note.state), state);
            assert_eq!(queue.next(), None);
        }
    }
}
