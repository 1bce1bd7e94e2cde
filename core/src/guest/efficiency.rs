//! The efficiency of merging on the host, in the ratios that the kernel's documentation suggests.

use serde::{Deserialize, Serialize};

use crate::kernel::Ksm;

/// The efficiency of merging in three ratios. `None` where the divisor is 0 or this kernel lacks a figure.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MergeEfficiency {
    /// `pages_sharing` / `pages_shared`.
    pub sharing_per_shared: Option<f64>,
    /// `pages_unshared` / `pages_sharing`.
    pub unshared_per_sharing: Option<f64>,
    /// `pages_volatile` as a part of all pages that ksmd tracks.
    pub volatile_part: Option<f64>,
}

impl MergeEfficiency {
    /// Computes the ratios from the kernel's counters.
    pub fn from_ksm(ksm: &Ksm) -> Self {
        let ratio = |a: Option<u64>, b: Option<u64>| match (a?, b?) {
            (_, 0) => None,
            (a, b) => Some(a as f64 / b as f64),
        };
        let (shared, sharing) = (ksm.pages_shared.get(), ksm.pages_sharing.get());
        let (unshared, volatile) = (ksm.pages_unshared.get(), ksm.pages_volatile.get());
        let sum =
            || [shared, sharing, unshared, volatile].into_iter().try_fold(0_u64, |sum, n| sum.checked_add(n?));
        Self {
            sharing_per_shared: ratio(sharing, shared),
            unshared_per_sharing: ratio(unshared, sharing),
            volatile_part: ratio(volatile, sum()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    #[test]
    fn ratios_are_those_of_the_counters() {
        let mut ksm = Ksm { pages_shared: Reading::Value(10), pages_sharing: Reading::Value(40), ..Ksm::default() };
        assert_eq!(
            MergeEfficiency::from_ksm(&ksm),
            MergeEfficiency { sharing_per_shared: Some(4.0), ..MergeEfficiency::default() }
        );
        (ksm.pages_unshared, ksm.pages_volatile) = (Reading::Value(20), Reading::Value(30));
        let MergeEfficiency { sharing_per_shared, unshared_per_sharing, volatile_part } =
            MergeEfficiency::from_ksm(&ksm);
        assert_eq!([sharing_per_shared, unshared_per_sharing, volatile_part], [Some(4.0), Some(0.5), Some(0.3)]);
    }

    #[test]
    fn nothing_merged_has_no_ratio() {
        let ksm = Ksm { pages_shared: Reading::Value(0), pages_sharing: Reading::Value(0), ..Ksm::default() };
        assert_eq!(MergeEfficiency::from_ksm(&ksm), MergeEfficiency::default());
    }
}
