//! Zero pages that the kernel counts although no process has them.
//!
//! The kernel takes some off its count never, or twice: `UFFDIO_MOVE` of a merged zero page (`move_zeropage_pte` in mm/userfaultfd.c,
//! `examples/kernel/moved_zero_pages.c`), and on some kernels the end of a forked child (`examples/kernel/zero_pages.c`). What it counts
//! while nothing is merged is such a rest, above zero or below, which stays until the next boot.

use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;

/// The rest, in pages, when nothing was merged last. 0 before that was seen.
#[derive(Debug, Default)]
pub struct LostZeroPages(i64);

impl LostZeroPages {
    /// Takes the rest off the sample's count, and learns it where the sample shows that nothing is merged.
    pub fn take_off(&mut self, sample: &mut Sample) {
        let Reading::Value(counted) = sample.ksm.ksm_zero_pages else { return };
        let is_nothing_merged = sample.ksm.pages_shared.get() == Some(0)
            && sample.ksm.pages_sharing.get() == Some(0)
            && sample.merged_by_the_living() == Some(0);
        if is_nothing_merged {
            self.0 = counted;
        }
        sample.ksm.ksm_zero_pages = Reading::Value(counted.saturating_sub(self.0));
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::sample::{Process, ProcessId};

    use super::*;

    fn sample(shared: u64, counted: i64, of_process: Option<u64>) -> Sample {
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.ksm.pages_shared = Reading::Value(shared);
        sample.ksm.pages_sharing = Reading::Value(shared);
        sample.ksm.ksm_zero_pages = Reading::Value(counted);
        let mut process = Process::new(ProcessId { pid: 5, start_ticks: 5 }, "a".into(), true);
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
        }
    }

    #[test]
    fn what_may_be_merged_is_left_as_it_is() {
        for what in [sample(1, 64, Some(0)), sample(0, 64, Some(64)), sample(0, 64, None)] {
            let mut same = what.clone();
            LostZeroPages::default().take_off(&mut same);
            assert_eq!(same.ksm.ksm_zero_pages, what.ksm.ksm_zero_pages);
        }
        let mut hidden = Sample { hidden_processes: 1, ..sample(0, 64, Some(0)) };
        LostZeroPages::default().take_off(&mut hidden);
        assert_eq!(hidden.ksm.ksm_zero_pages, Reading::Value(64));
    }
}
