//! Readings of page tables that another sample of the same host has.

use std::collections::BTreeMap;

use super::Sample;

impl Sample {
    /// Adopts the readings of a sample that was taken a moment apart, as far as the same processes are in both.
    ///
    /// KSM's counters stay this sample's: a reading is brought up to date by them.
    pub fn adopt_readings(&mut self, other: &Self) {
        let known: BTreeMap<_, _> = other.processes.iter().map(|process| (process.id, process)).collect();
        for process in &mut self.processes {
            let Some(read) = known.get(&process.id) else { continue };
            process.merge_reading = read.merge_reading;
            process.folded_bytes = read.folded_bytes;
            process.earlier_zero_bytes = read.earlier_zero_bytes;
            process.split = read.split;
            process.is_twin = read.is_twin;
        }
        self.sum_folded();
    }

    /// Sums the folded memory of the processes. Twins have none of their own.
    pub fn sum_folded(&mut self) {
        let counting = self.processes.iter().filter(|process| !process.is_twin);
        self.folded_bytes = counting.filter_map(|process| process.folded_bytes).reduce(u64::saturating_add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KsmStat;
    use crate::sample::{MergeReading, ProcessId, ProcessSample};

    fn process(pid: u32, start_ticks: u64) -> ProcessSample {
        ProcessSample {
            ksm: KsmStat { merging_pages: Some(100), ..KsmStat::default() },
            ..ProcessSample::new(ProcessId { pid, start_ticks }, "guest".into(), true)
        }
    }

    #[test]
    fn a_sample_by_counters_has_the_readings_of_the_same_processes() {
        let reading =
            MergeReading { counted_pages: 100, merged_pages: 10, saved_pages: 10, ..MergeReading::default() };
        let of_processes = |processes| Sample { processes, ..Sample::default() };
        let mut read = of_processes(vec![process(1, 1), process(2, 1), process(3, 1)]);
        for (process, folded_bytes) in read.processes.iter_mut().zip([Some(8192), None, Some(1 << 30)]) {
            (process.merge_reading, process.folded_bytes) = (Some(reading), folded_bytes);
        }
        read.processes[1].is_twin = true;
        // Another process has the PID of one that ended.
        let mut counted = of_processes(vec![process(1, 1), process(2, 1), process(3, 9)]);
        counted.adopt_readings(&read);
        assert_eq!(counted.folded_bytes, Some(8192));
        let of = |sample: &Sample, at: usize| {
            let process = &sample.processes[at];
            (process.merge_reading, process.folded_bytes, process.is_twin)
        };
        assert_eq!((of(&counted, 0), of(&counted, 1)), (of(&read, 0), of(&read, 1)));
        assert_eq!(of(&counted, 2), (None, None, false));
    }
}
