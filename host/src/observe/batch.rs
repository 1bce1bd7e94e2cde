//! Events collected for a moment. Events that cancel out are dropped: a build starts and ends thousands of processes a
//! second.

use std::collections::BTreeMap;

use super::connector::ProcessEvent;

/// The most processes of one batch. Above it all events count as lost, because a scan is cheaper.
const MOST: usize = 4096;

/// The state of one PID since the previous batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ProcessFate {
    /// A process from before this batch has exited.
    old_exited: bool,
    /// A process was started and still runs.
    started: bool,
    /// The running process executed a program.
    exec: bool,
}

/// Events since the previous batch.
#[derive(Debug, Default)]
pub(super) struct EventBatch {
    fates: BTreeMap<u32, ProcessFate>,
    lost: bool,
}

impl EventBatch {
    /// Adds an event.
    pub(super) fn push(&mut self, event: ProcessEvent) {
        match event {
            ProcessEvent::Started(pid) => {
                let fate = self.fate(pid);
                (fate.started, fate.exec) = (true, false);
            }
            ProcessEvent::Exec(pid) => self.fate(pid).exec = true,
            ProcessEvent::Exited(pid) => {
                let fate = self.fate(pid);
                fate.old_exited |= !fate.started;
                (fate.started, fate.exec) = (false, false);
                if !fate.old_exited {
                    self.fates.remove(&pid);
                }
            }
            ProcessEvent::Lost | ProcessEvent::Ended => self.lost = true,
        }
        if self.fates.len() > MOST {
            self.fates.clear();
            self.lost = true;
        }
    }

    /// Returns true if the batch holds no event.
    pub(super) fn is_empty(&self) -> bool {
        self.fates.is_empty() && !self.lost
    }

    /// Takes the events out of the batch, those of each process in order.
    pub(super) fn drain_events(&mut self) -> Vec<ProcessEvent> {
        let lost = std::mem::take(&mut self.lost).then_some(ProcessEvent::Lost);
        let fates = std::mem::take(&mut self.fates);
        let of_each = fates.into_iter().flat_map(|(pid, fate)| {
            let told = [
                fate.old_exited.then_some(ProcessEvent::Exited(pid)),
                fate.started.then_some(ProcessEvent::Started(pid)),
                fate.exec.then_some(ProcessEvent::Exec(pid)),
            ];
            told.into_iter().flatten()
        });
        lost.into_iter().chain(of_each).collect()
    }

    fn fate(&mut self, pid: u32) -> &mut ProcessFate {
        self.fates.entry(pid).or_default()
    }
}

#[cfg(test)]
mod tests {
    use ProcessEvent::{Exec, Exited, Lost, Started};

    use super::*;

    fn batch(events: &[ProcessEvent]) -> Vec<ProcessEvent> {
        let mut batch = EventBatch::default();
        events.iter().for_each(|event| batch.push(*event));
        batch.drain_events()
    }

    #[test]
    fn a_process_that_starts_and_exits_within_a_batch_is_left_out() {
        assert_eq!(batch(&[Started(5), Exec(5), Exited(5)]), []);
        assert_eq!(batch(&[Started(5), Started(6), Exited(5)]), [Started(6)]);
        let mut short_lived = EventBatch::default();
        for _ in 0..3 {
            short_lived.push(Started(5));
            short_lived.push(Exited(5));
        }
        assert!(short_lived.is_empty());
    }

    #[test]
    fn a_pid_that_changes_hands_is_told_in_order() {
        assert_eq!(batch(&[Exec(5), Exited(5), Started(5), Exec(5)]), [Exited(5), Started(5), Exec(5)]);
        assert_eq!(batch(&[Exited(5), Started(5), Exited(5)]), [Exited(5)]);
    }

    #[test]
    fn too_many_are_lost() {
        let mut batch = EventBatch::default();
        (0..=MOST as u32).for_each(|pid| batch.push(Started(pid)));
        assert_eq!(batch.drain_events(), [Lost]);
        batch.push(Started(1));
        assert_eq!(batch.drain_events(), [Started(1)]);
        assert!(batch.is_empty());
    }
}
