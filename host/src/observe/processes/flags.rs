//! Readings of mapping flags, on kernels that show new mergeable memory in `smaps` alone.

use std::time::Duration;

use ksmith_core::kernel::Statm;

use super::{ProcessTable, WatchStart};
use crate::observe::asked::{LINES_EVERY, SampleReader};
use crate::observe::figures::MergeableFlags;
use crate::observe::proc_dir::ProcDir;
use crate::observe::schedule::FIRST_DELAY;
use crate::observe::scratch::ReadBuffer;
use crate::proc_file::UnansweredRead;

/// The most `smaps` files that one sample reads. Kernels before 6.14 show mergeable memory that ksmd has not
/// visited only in `smaps`, which is expensive.
const FLAG_LOOKS: usize = 4;
pub(super) const FLAG_DELAY: Duration = Duration::from_secs(5);
const FLAG_ROUND: Duration = Duration::from_secs(600);

/// The resident bytes after which a sample reads no further `smaps`. The kernel walks the page tables for
/// `smaps`, which takes some 3 ms per GiB.
const FLAG_BYTES: u64 = 1 << 30;
/// The largest process for which `smaps` is read. Memory of a larger one counts from ksmd's first visit.
const FLAG_LARGEST: u64 = 8 << 30;

impl ProcessTable {
    /// Reads the mapping flags of a few processes, but not of hypervisors: they are watched anyway, and their `smaps`
    /// takes long.
    pub(super) fn look_at_flags(&mut self, proc: &ProcDir, now: Duration, scratch: &mut ReadBuffer) {
        let (mut looks, mut walked) = (0, 0);
        while looks < FLAG_LOOKS && walked < FLAG_BYTES {
            let Some((due, pid)) = self.flag_schedule.pop_due(now) else { return };
            let Some(plain) = self.plain.get_mut(pid).filter(|plain| plain.flags_due == due) else { continue };
            looks += 1;
            plain.flags_due = now + FLAG_ROUND;
            self.flag_schedule.push(plain.flags_due, pid);
            let sizes = proc.read(pid, "statm", scratch).and_then(Statm::parse);
            let resident = sizes.value().and_then(|sizes| sizes.resident_pages);
            let resident = resident.map(|pages| pages.saturating_mul(self.page_size));
            let Some(resident) = resident.filter(|&bytes| bytes <= FLAG_LARGEST) else { continue };
            walked += resident;
            let mut flags = MergeableFlags::default();
            // A process that does not answer is named when its figures are read.
            let answer = self.asked.each_piece(proc, pid, "smaps", |piece| flags.search_piece(piece));
            let again = if flags.are_mergeable {
                match self.watch(proc, pid, true) {
                    WatchStart::Begun => {
                        self.drop_plain(pid);
                        continue;
                    }
                    WatchStart::NotWorth => None,
                    WatchStart::OverBudget(process) => {
                        self.counted.insert(pid, process);
                        None
                    }
                    WatchStart::Silent(_) => Some(SampleReader::rest(pid).max(FIRST_DELAY)),
                    WatchStart::Late => Some(FIRST_DELAY),
                    WatchStart::Unnamed => Some(LINES_EVERY),
                }
            } else {
                let is_unknown = answer.is_err_and(|error| UnansweredRead::find_in(&error).is_some());
                is_unknown.then(|| SampleReader::rest(pid).max(FIRST_DELAY))
            };
            // A round is minutes: far too long for what is not known yet.
            if let (Some(pause), Some(plain)) = (again, self.plain.get_mut(pid)) {
                plain.flags_due = now + pause;
                self.flag_schedule.push(plain.flags_due, pid);
            }
        }
    }
}
