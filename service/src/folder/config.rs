//! The table `[fold]` of the configuration.

use ksmith_core::contradiction::Contradiction;
use ksmith_core::fold::FoldTerms;
use serde::Deserialize;

/// The choice of processes to fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FoldMode {
    /// No process is folded.
    #[default]
    Off,
    /// Verified virtual machines and user-mode Linux.
    Guests,
    /// Every process with mergeable memory, and every hypervisor.
    All,
}

/// The table `[fold]`: the processes to fold, and the cost limits.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FoldConfig {
    /// The processes to fold.
    pub mode: FoldMode,
    /// Per cent of one CPU that folding may take on average.
    pub max_cpu_percent: f64,
    /// Least memory that a second of CPU time must be expected to free, in MiB.
    pub price_mib_per_cpu_second: f64,
    /// Least part of a huge page that must be zeros for it to be split, in per cent.
    pub least_zero_percent: f64,
}

impl Default for FoldConfig {
    fn default() -> Self {
        Self {
            mode: FoldMode::Off,
            max_cpu_percent: 2.0,
            price_mib_per_cpu_second: 100.0,
            least_zero_percent: 12.5,
        }
    }
}

impl FoldConfig {
    /// Finds settings that make no sense.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let within = |value: f64, most: f64| value > 0.0 && value <= most;
        let faults = [
            (within(self.max_cpu_percent, 100.0), "max_cpu_percent", "it must be over 0 and at most 100"),
            (
                self.price_mib_per_cpu_second >= 0.0 && self.price_mib_per_cpu_second.is_finite(),
                "price_mib_per_cpu_second",
                "it must be 0 or more",
            ),
            (
                within(self.least_zero_percent, 100.0) && self.least_zero_permille() > 0,
                "least_zero_percent",
                "it must be 0.1 at least and at most 100",
            ),
        ];
        let found = faults.into_iter().filter(|(is_right, ..)| !is_right);
        found.map(|(_, key, why)| Contradiction::new(&[&["fold", key]], format!("[fold] {key}: {why}"))).collect()
    }

    /// Returns the least part of zeros in thousandths.
    pub fn least_zero_permille(&self) -> u32 {
        (self.least_zero_percent * 10.0).round() as u32
    }

    /// Returns the terms of the fold policy.
    pub(super) fn terms(&self) -> FoldTerms {
        FoldTerms {
            may_fold: self.mode != FoldMode::Off,
            max_cpu_share: self.max_cpu_percent / 100.0,
            price_bytes: self.price_mib_per_cpu_second * f64::from(1 << 20),
        }
    }
}
