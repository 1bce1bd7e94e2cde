//! Bounds on the difference between each captured run and its simulation.

use ksmith_lab::GuestPages;

use super::runs::RunDifference;

/// Bounds of one row.
#[derive(Debug)]
pub struct DifferenceBounds {
    /// The scenario.
    pub scenario: &'static str,
    pub policy: &'static str,
    pub pages: GuestPages,
    /// The greatest difference of saved memory at any sample.
    saved: f64,
    /// The mean difference of saved memory, whatever its sign.
    mean: f64,
    /// ksmd's CPU time, simulated over live.
    cpu: [f64; 2],
    /// The part of the live passes by which the simulated ones differ; one pass is within the bounds in any case.
    passes: f64,
}

impl DifferenceBounds {
    /// Returns true if the difference is within the bounds.
    pub fn hold(&self, difference: &RunDifference) -> bool {
        let [simulated, live] = difference.passes.map(|passes| passes as f64);
        difference.saved <= self.saved
            && difference.mean.abs() <= self.mean
            && (self.cpu[0]..=self.cpu[1]).contains(&difference.cpu_ratio())
            && (simulated - live).abs() <= (self.passes * live).max(1.0)
    }
}

const fn row(
    scenario: &'static str,
    policy: &'static str,
    saved: f64,
    mean: f64,
    cpu: [f64; 2],
    passes: f64,
) -> DifferenceBounds {
    DifferenceBounds { scenario, policy, pages: GuestPages::Small, saved, mean, cpu, passes }
}

/// A little more than each row comes to.
pub const BOUNDS: &[DifferenceBounds] = &[
    row("burst", "fixed:morfik", 0.18, 0.031, [0.99, 1.07], 0.0),
    row("burst", "profit", 0.27, 0.02, [0.89, 0.98], 0.0),
    row("burst", "reference", 0.45, 0.036, [1.1, 1.19], 0.0),
    row("burst", "score", 0.14, 0.01, [1.12, 1.21], 0.0),
    row("churn", "fixed:morfik", 0.48, 0.055, [1.1, 1.19], 0.0),
    row("churn", "profit", 0.29, 0.019, [0.84, 0.92], 0.14),
    row("churn", "reference", 0.31, 0.006, [1.05, 1.14], 0.11),
    row("churn", "score", 0.38, 0.026, [1.07, 1.16], 0.0),
    row("clones", "profit", 0.27, 0.013, [0.77, 0.86], 0.0),
    row("clones", "reference", 0.41, 0.017, [1.08, 1.17], 0.19),
    row("zeros", "fixed:morfik", 0.23, 0.017, [0.75, 0.83], 0.0),
    row("zeros", "profit", 0.54, 0.022, [0.43, 0.51], 0.69),
    row("zeros", "reference", 0.42, 0.011, [0.98, 1.07], 0.03),
    row("zeros", "score", 0.32, 0.015, [0.95, 1.03], 0.0),
];
