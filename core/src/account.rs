//! Accounting: what KSM saves and costs, for the host and for each process, so that the parts add up.
//!
//! The kernel's own figures per process do not add up: `ksm_merging_pages` summed over processes is
//! `pages_shared + pages_sharing`, because the frame that is kept counts in every process that maps it. So
//! the host's saving is apportioned by each process's share in what is merged, to the page.

use serde::Serialize;

use crate::kernel::RMAP_ITEM_BYTES;
use crate::sample::Sample;

/// The memory that merging saves and costs on a host at one moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HostTotals {
    /// Memory not needed because pages are merged: (`pages_sharing` + `ksm_zero_pages`) x page size.
    pub saved_bytes: u64,
    /// KSM's reverse mappings: 64 bytes for each page that it tracks.
    pub overhead_bytes: u64,
    /// Saved less overhead: negative when KSM costs memory.
    pub profit_bytes: i64,
    /// Zeros that folding returned, not part of `saved_bytes`. 0 where no process was examined.
    pub folded_bytes: u64,
    /// Memory that the host would need if every merged page and every folded zero were written to: saved and folded
    /// bytes.
    pub exposure_bytes: u64,
    /// Memory that the host has to cover the exposure, free swap included; `None` where /proc/meminfo fails.
    pub headroom_bytes: Option<u64>,
    /// True if KSM's counters of merged pages can't be read; then all figures above but the headroom are meaningless.
    pub is_unknown: bool,
}

impl HostTotals {
    /// Computes the host's totals.
    pub fn from_sample(sample: &Sample) -> Self {
        let saved_bytes = sample.ksm.saved_pages().saturating_mul(sample.page_size);
        let overhead_bytes = sample.ksm.tracked_pages().saturating_mul(RMAP_ITEM_BYTES);
        let folded_bytes = sample.folded_bytes.unwrap_or(0);
        let headroom_bytes = sample
            .memory
            .value()
            .and_then(|memory| Some(memory.obtainable()?.saturating_add(memory.swap_free.unwrap_or(0))));
        Self {
            saved_bytes,
            overhead_bytes,
            profit_bytes: difference(saved_bytes, overhead_bytes),
            folded_bytes,
            exposure_bytes: saved_bytes.saturating_add(folded_bytes),
            headroom_bytes,
            is_unknown: !sample.ksm.shows_savings(),
        }
    }

    /// True if the host would run out of memory if all that is merged and folded were written to.
    pub fn is_overexposed(&self) -> bool {
        self.headroom_bytes.is_some_and(|headroom| self.exposure_bytes > headroom)
    }
}

/// One process's part of the host's totals, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ProcessShare {
    /// Its merged pages, zero pages included: what is mapped, not what is saved.
    pub merged_bytes: u64,
    /// Its part of the host's `saved_bytes`.
    pub saved_bytes: u64,
    /// `saved_bytes` less the metadata for the pages that ksmd tracks in it.
    pub profit_bytes: i64,
    /// True if KSM's counters can't be read; then the figures above are meaningless.
    pub is_unknown: bool,
}

/// Computes each process's share, in the order of `sample.processes`, and the bytes that can't be attributed because
/// some processes hide their figures. Together they are exactly the host's `saved_bytes`.
pub fn shares(sample: &Sample) -> (Vec<ProcessShare>, u64) {
    let page = sample.page_size;
    let merging: Vec<u64> = sample.processes.iter().map(|p| p.merging_pages()).collect();
    let zero: Vec<u64> = sample.processes.iter().map(|p| p.zero_pages()).collect();
    let sharing = sample.ksm.pages_sharing.get().unwrap_or(0);
    let mapped = sample.ksm.pages_shared.get().unwrap_or(0).saturating_add(sharing);
    let (merged_saved, merged_rest) = apportion(sharing, &merging, hidden(sample, mapped, &merging));
    let zero_total = sample.ksm.zero_pages();
    let (zero_saved, zero_rest) = apportion(zero_total, &zero, hidden(sample, zero_total, &zero));

    let shares = sample.processes.iter().enumerate().map(|(i, process)| {
        let saved_bytes = merged_saved[i].saturating_add(zero_saved[i]).saturating_mul(page);
        let overhead = process.ksm.rmap_items.unwrap_or(0).saturating_mul(RMAP_ITEM_BYTES);
        ProcessShare {
            merged_bytes: merging[i].saturating_add(zero[i]).saturating_mul(page),
            saved_bytes,
            profit_bytes: difference(saved_bytes, overhead),
            is_unknown: !sample.ksm.shows_savings(),
        }
    });
    (shares.collect(), merged_rest.saturating_add(zero_rest).saturating_mul(page))
}

/// Returns the pages of `mapped` that belong to hidden processes. While every process shows its figures there are
/// none, whatever the two sums say: they were read a moment apart.
fn hidden(sample: &Sample, mapped: u64, seen: &[u64]) -> u64 {
    if !sample.has_unknown_figures() {
        return 0;
    }
    mapped.saturating_sub(seen.iter().fold(0, |sum, &pages| sum.saturating_add(pages)))
}

/// Splits `total` in proportion to `weights` and `rest`, to the unit, by largest remainders. Returns each
/// weight's part and the remaining part; they add up to `total`. Without any weight all of it remains.
pub fn apportion(total: u64, weights: &[u64], rest: u64) -> (Vec<u64>, u64) {
    let sum: u128 = weights.iter().map(|&w| u128::from(w)).sum::<u128>() + u128::from(rest);
    if sum == 0 {
        return (vec![0; weights.len()], total);
    }
    let part = |weight: u64| {
        let product = u128::from(total) * u128::from(weight);
        (u64::try_from(product / sum).unwrap_or(u64::MAX), product % sum)
    };
    let (mut parts, remainders): (Vec<u64>, Vec<u128>) = weights.iter().map(|&w| part(w)).unzip();
    let (rest_part, _) = part(rest);
    let left = total - parts.iter().sum::<u64>() - rest_part;
    // At most one unit per weight is left; what a hidden rest would have rounded up to goes to the visible.
    let mut order: Vec<usize> = (0..parts.len()).filter(|&i| remainders[i] > 0).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(remainders[i]), i));
    let mut left = left;
    for i in order {
        if left == 0 {
            break;
        }
        parts[i] += 1;
        left -= 1;
    }
    (parts, rest_part + left)
}

fn difference(gain: u64, cost: u64) -> i64 {
    let difference = i128::from(gain) - i128::from(cost);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::{KsmStat, Meminfo};
    use crate::reading::Reading;
    use crate::sample::{ProcessId, ProcessSample};

    fn process(pid: u32, merging: u64, zero: u64) -> ProcessSample {
        ProcessSample {
            ksm: KsmStat {
                merging_pages: Some(merging),
                zero_pages: Some(zero),
                rmap_items: Some(merging),
                ..KsmStat::default()
            },
            ..ProcessSample::new(ProcessId { pid, start_ticks: 0 }, "guest".into(), true)
        }
    }

    fn sample(shared: u64, sharing: u64, zero: u64, processes: Vec<ProcessSample>) -> Sample {
        let mut sample = Sample { page_size: 4096, processes, ..Sample::default() };
        sample.ksm.pages_shared = Reading::Value(shared);
        sample.ksm.pages_sharing = Reading::Value(sharing);
        sample.ksm.ksm_zero_pages = Reading::Value(zero.cast_signed());
        sample
    }

    #[test]
    fn two_equal_guests_save_half_each() {
        let sample = sample(100, 100, 0, vec![process(1, 100, 0), process(2, 100, 0)]);
        let (shares, rest) = shares(&sample);
        assert_eq!(shares[0].saved_bytes, 50 * 4096);
        assert_eq!(shares[0].merged_bytes, 100 * 4096);
        assert_eq!(shares[1].profit_bytes, 50 * 4096 - 100 * 64);
        assert_eq!(rest, 0);
    }

    #[test]
    fn savings_of_hidden_processes_are_unattributed() {
        let mut sample = sample(100, 100, 0, vec![process(1, 100, 0)]);
        sample.hidden_processes = 1;
        let (shares, rest) = shares(&sample);
        assert_eq!((shares[0].saved_bytes, rest), (50 * 4096, 50 * 4096));
    }

    #[test]
    fn exposure_beyond_headroom_is_noticed() {
        let mut sample = sample(1, 10, 10, vec![]);
        assert_eq!(HostTotals::from_sample(&sample).headroom_bytes, None);
        assert!(!HostTotals::from_sample(&sample).is_overexposed());
        sample.memory =
            Reading::Value(Meminfo { available: Some(10 * 4096), swap_free: Some(9 * 4096), ..Meminfo::default() });
        assert!(HostTotals::from_sample(&sample).is_overexposed());
    }

    #[test]
    fn folded_memory_is_exposed_and_not_saved() {
        let mut sample = sample(1, 10, 10, vec![]);
        assert_eq!(HostTotals::from_sample(&sample).folded_bytes, 0);
        sample.folded_bytes = Some(4096);
        let totals = HostTotals::from_sample(&sample);
        assert_eq!((totals.saved_bytes, totals.exposure_bytes), (20 * 4096, 21 * 4096));
        sample.folded_bytes = Some(u64::MAX);
        assert_eq!(HostTotals::from_sample(&sample).exposure_bytes, u64::MAX);
    }

    #[test]
    fn profit_is_negative_when_metadata_outweighs_savings() {
        let mut sample = sample(0, 0, 0, vec![]);
        sample.ksm.pages_unshared = Reading::Value(1000);
        assert_eq!(HostTotals::from_sample(&sample).profit_bytes, -64_000);
    }

    proptest! {
        #[test]
        fn parts_always_add_up(total: u64, weights in prop::collection::vec(any::<u64>(), 0..50), rest: u64) {
            let (parts, remaining) = apportion(total, &weights, rest);
            let sum = parts.iter().map(|&p| u128::from(p)).sum::<u128>() + u128::from(remaining);
            prop_assert_eq!(sum, u128::from(total));
        }

        #[test]
        fn no_part_is_more_than_one_off_its_share(
            total in 0_u64..1 << 40,
            weights in prop::collection::vec(0_u64..1 << 40, 1..50),
        ) {
            let sum: u64 = weights.iter().sum();
            prop_assume!(sum > 0);
            let (parts, remaining) = apportion(total, &weights, 0);
            prop_assert_eq!(remaining, 0);
            for (part, weight) in parts.iter().zip(&weights) {
                let exact = total as f64 * *weight as f64 / sum as f64;
                prop_assert!((*part as f64 - exact).abs() <= 1.001);
            }
        }
    }
}
