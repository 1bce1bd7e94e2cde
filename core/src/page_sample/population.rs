//! The mergeable memory that pages are drawn from.

use crate::sample::Sample;

/// The processes with mergeable memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MergeablePopulation {
    /// The sum over the processes' ids: it differs when one starts or ends.
    pub(crate) ids: u64,
    /// Their resident bytes and those merged with the zero page.
    pub(crate) bytes: u64,
}

impl MergeablePopulation {
    /// Sums the processes of a sample.
    pub(crate) fn from_sample(sample: &Sample) -> Self {
        let processes = sample.processes.iter().filter(|process| process.may_merge());
        processes.fold(Self::default(), |sum, process| Self {
            ids: sum.ids.wrapping_add(u64::from(process.id.pid) << 32 ^ process.id.start_ticks),
            // Pages that are merged with the zero page are not resident, but the guest's all the same.
            bytes: sum
                .bytes
                .saturating_add(process.known_rss_bytes())
                .saturating_add(process.zero_pages().saturating_mul(sample.page_size)),
        })
    }
}
