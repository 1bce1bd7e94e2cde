//! The memory that a scan would merge: that of the job, and that of others.

use std::collections::BTreeSet;

use ksmith_core::kernel::KsmStat;
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessSample, Sample};

use super::tree;
use crate::observe::HostObserver;
use crate::root::Root;

/// The processes that have offered memory to KSM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryOffers {
    /// True if a process of the job has, or may have.
    pub is_any_of_job: bool,
    /// The others that have, each with its PID: `web (pid 812)`.
    pub others: Vec<String>,
}

impl MemoryOffers {
    /// Reads who has offered memory. The job is all descendants of this process.
    pub fn read(root: &Root) -> Self {
        let job: BTreeSet<u32> =
            tree::descendants(root, std::process::id(), 1).into_iter().map(|member| member.id.pid).collect();
        let may_offer = |pid: &u32| {
            let text = root.text(format!("proc/{pid}/ksm_stat"));
            match text.and_then(|text| KsmStat::parse(&text)) {
                Reading::Value(stat) => stat.is_involved() || stat.mergeable.is_none(),
                // Kernels before 6.1 have no such file.
                Reading::Absent | Reading::Denied | Reading::Malformed(_) => true,
            }
        };
        let is_any_of_job = job.iter().any(may_offer);
        Self { is_any_of_job, others: others(&HostObserver::new(root.clone()).sample(), &job) }
    }
}

fn others(sample: &Sample, job: &BTreeSet<u32>) -> Vec<String> {
    let is_other = |process: &&ProcessSample| !job.contains(&process.id.pid) && process.may_merge();
    sample
        .processes
        .iter()
        .filter(is_other)
        .map(|process| format!("{} (pid {})", process.name, process.id))
        .collect()
}

#[cfg(test)]
mod tests {
    use ksmith_core::sample::ProcessId;

    use super::*;

    #[test]
    fn others_are_those_that_offer_memory_and_are_not_of_the_job() {
        let process = |pid, mergeable| ProcessSample {
            ksm: KsmStat { mergeable, ..KsmStat::default() },
            ..ProcessSample::new(ProcessId { pid, start_ticks: 1 }, "web".into(), true)
        };
        let processes =
            vec![process(7, Some(true)), process(8, Some(true)), process(9, Some(false)), process(10, None)];
        let sample = Sample { processes, ..Sample::default() };
        assert_eq!(others(&sample, &[7].into()), ["web (pid 8)", "web (pid 10)"]);
    }
}
