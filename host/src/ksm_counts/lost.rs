//! Zero pages that the kernel counts although no process has them.
//!
//! The kernel fails to subtract some from its count, or subtracts them twice. This happens at `UFFDIO_MOVE` of a merged
//! zero page (`move_zeropage_pte` in mm/userfaultfd.c, `examples/kernel/moved_zero_pages.c`), and on some kernels at
//! the end of a forked child (`examples/kernel/zero_pages.c`). Such a counter error, above zero or below, stays until
//! the next boot.

use std::fs;

use ksmith_core::kernel::{Ksm, KsmStat, RunState};
use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;

use crate::root::Root;

/// The counter error, in pages; 0 before it is measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct LostZeroPages {
    rest: i64,
    /// The error at the last sample, if that showed it.
    seen: Option<i64>,
}

impl LostZeroPages {
    /// Measures the error as the host's count minus the sum of the processes' counts. `None` if a process may not be
    /// read, or this kernel (before 6.10) counts no zero pages per process.
    pub(super) fn of_processes(root: &Root, counted: i64) -> Option<Self> {
        if counted == 0 {
            return Some(Self::default());
        }
        let names = fs::read_dir(root.path("proc")).ok()?.flatten();
        let pids: Vec<u32> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let mut sum = 0_u64;
        for text in root.texts_of(&pids, "ksm_stat") {
            match text {
                // A process that has ended, and a kernel thread.
                Reading::Absent => {}
                Reading::Value(text) if text.is_empty() => {}
                Reading::Value(text) => sum = sum.saturating_add(KsmStat::parse(&text).ok()?.zero_pages?),
                Reading::Denied | Reading::Malformed(_) => return None,
            }
        }
        Some(Self { rest: counted.saturating_sub_unsigned(sum), seen: None })
    }

    /// Estimates the error without the processes' counts: a count below zero is an error, and a positive count is all
    /// merged pages.
    pub(super) fn at_least(counted: i64) -> Self {
        Self { rest: counted.min(0), seen: None }
    }

    /// Subtracts the error from the sample's count, and measures it anew if the sample shows the zero pages of every
    /// process. While ksmd runs, two samples must show the same error: processes are read a moment before the host's
    /// counts, and a page may merge in between. A count that was not compared with those of all processes is bounded by the
    /// host's memory.
    pub fn take_off(&mut self, sample: &mut Sample) {
        let Reading::Value(counted) = sample.ksm.ksm_zero_pages else { return };
        let error = zero_pages_of_living(sample).map(|pages| counted.saturating_sub_unsigned(pages));
        let seen = std::mem::replace(&mut self.seen, error);
        if let Some(error) = error.filter(|_| sample.ksm.run_state() != Some(RunState::Running) || seen == error) {
            self.rest = error;
        }
        sample.lost_zero_pages = self.rest;
        self.take_off_count(&mut sample.ksm);
        if error.is_none() || seen.is_none() && error != Some(self.rest) {
            bound_by_memory(sample);
        }
    }

    /// Subtracts the error from the count.
    pub(super) fn take_off_count(self, ksm: &mut Ksm) {
        if let Reading::Value(counted) = &mut ksm.ksm_zero_pages {
            *counted = counted.saturating_sub(self.rest);
        }
    }
}

/// Bounds the count of zero pages by all memory.
fn bound_by_memory(sample: &mut Sample) {
    let most = sample.host.memory.value().and_then(|memory| memory.total?.checked_div(sample.page_size));
    if let (Reading::Value(counted), Some(most)) = (&mut sample.ksm.ksm_zero_pages, most) {
        *counted = (*counted).min(most.cast_signed());
    }
}

/// Returns the zero pages of all processes. `None` where one hides its figures, or pages are merged on a kernel (before
/// 6.10) that counts no zero pages of a process.
fn zero_pages_of_living(sample: &Sample) -> Option<u64> {
    let merged = sample.merged_by_the_living()?;
    let is_nothing_merged =
        merged == 0 && sample.ksm.pages_shared.get() == Some(0) && sample.ksm.pages_sharing.get() == Some(0);
    if is_nothing_merged {
        return Some(0);
    }
    sample.processes.iter().try_fold(0_u64, |sum, process| Some(sum.saturating_add(process.ksm.zero_pages?)))
}

#[cfg(test)]
mod tests {
    use ksmith_core::kernel::Meminfo;
    use ksmith_core::sample::{ProcessId, ProcessSample};

    use super::*;

    fn sample(shared: u64, counted: i64, of_process: Option<u64>) -> Sample {
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.ksm.pages_shared = Reading::Value(shared);
        sample.ksm.pages_sharing = Reading::Value(shared);
        sample.ksm.ksm_zero_pages = Reading::Value(counted);
        let mut process = ProcessSample::new(ProcessId { pid: 5, start_ticks: 5 }, "a".into(), true);
        process.ksm.merging_pages = of_process.map(|_| 0);
        process.ksm.zero_pages = of_process;
        sample.processes = vec![process];
        sample
    }

    #[test]
    fn what_is_counted_while_nothing_is_merged_is_taken_off_from_then_on() {
        for rest in [691, -16] {
            let mut lost = LostZeroPages::default();
            let mut after = |mut sample: Sample| {
                lost.take_off(&mut sample);
                sample.ksm.ksm_zero_pages.get()
            };
            assert_eq!(after(sample(0, rest, Some(0))), Some(0));
            assert_eq!(after(sample(3, rest + 64, Some(64))), Some(64));
            assert_eq!(after(sample(0, rest + 5, Some(0))), Some(0), "it may grow");
            assert_eq!(after(sample(3, rest + 91, Some(64))), Some(64), "and while pages are merged");
        }
    }

    #[test]
    fn what_may_be_merged_is_left_as_it_is() {
        for what in [sample(1, 64, Some(64)), sample(0, 64, Some(64)), sample(0, 64, None)] {
            let mut same = what.clone();
            LostZeroPages::default().take_off(&mut same);
            assert_eq!(same.ksm.ksm_zero_pages, what.ksm.ksm_zero_pages);
        }
        let mut lost = LostZeroPages::default();
        let mut scanning = |counted, of_process| {
            let mut scanning = sample(0, counted, Some(of_process));
            scanning.ksm.run = Reading::Value(1);
            lost.take_off(&mut scanning);
            scanning.ksm.ksm_zero_pages.get()
        };
        assert_eq!(scanning(64, 0), Some(64), "it may have merged since the process was read");
        assert_eq!(scanning(64, 64), Some(64), "and it had");
        assert_eq!([scanning(96, 0), scanning(96, 0)], [Some(96), Some(0)], "no process has it");
        let mut hidden = Sample { hidden_processes: 1, ..sample(0, 64, Some(0)) };
        LostZeroPages::default().take_off(&mut hidden);
        assert_eq!(hidden.ksm.ksm_zero_pages, Reading::Value(64));
    }

    #[test]
    fn a_count_that_nobody_can_check_is_at_most_the_memory() {
        const GIB_PAGES: i64 = 1 << 18;
        let shown = |mut sample: Sample, is_running: bool| {
            sample.host.memory = Reading::Value(Meminfo { total: Some(24 << 30), ..Meminfo::default() });
            sample.ksm.run = Reading::Value(u64::from(is_running));
            LostZeroPages::default().take_off(&mut sample);
            sample.ksm.ksm_zero_pages.get()
        };
        let all = |of_process: i64| sample(9, 321 * GIB_PAGES, Some(of_process.cast_unsigned()));
        let hidden = Sample { hidden_processes: 1, ..all(0) };
        assert_eq!(shown(hidden, false), Some(24 * GIB_PAGES));
        assert_eq!(shown(all(0), true), Some(24 * GIB_PAGES), "one sample of running ksmd shows no error");
        assert_eq!(shown(all(0), false), Some(0));
        assert_eq!(shown(all(321 * GIB_PAGES), true), Some(321 * GIB_PAGES), "zeros may be more than the memory");
    }

    /// Creates a tree of processes with these `ksm_stat`s.
    fn tree(stats: &[(u32, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (pid, text) in stats {
            let directory = tree.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("ksm_stat"), text).unwrap();
        }
        tree
    }

    fn rest(stats: &[(u32, &str)], counted: i64) -> Option<i64> {
        LostZeroPages::of_processes(&Root::at(tree(stats).path()), counted).map(|lost| lost.rest)
    }

    #[test]
    fn what_no_process_counts_is_lost() {
        let stats = [(2, ""), (7, "ksm_rmap_items 9\nksm_zero_pages 60\n"), (9, "ksm_zero_pages -4\n")];
        assert_eq!([751, 60, 44].map(|counted| rest(&stats, counted)), [Some(691), Some(0), Some(-16)]);
    }

    #[test]
    fn without_the_counts_of_all_processes_nothing_is_learned() {
        let old_kernel = [(7, "ksm_rmap_items 9\nksm_merging_pages 3\n")];
        let no_sense = [(7, "ksm_zero_pages 60\n"), (9, "ksm_zero_pages x\n")];
        assert_eq!([rest(&old_kernel, 5), rest(&no_sense, 60)], [None, None]);
        assert_eq!(rest(&old_kernel, 0), Some(0), "there is nothing to ask for");
        assert_eq!([5, -5].map(|counted| LostZeroPages::at_least(counted).rest), [0, -5]);
    }
}
