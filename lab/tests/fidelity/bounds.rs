//! How near each captured run comes out.

use ksmith_lab::fidelity::Difference;

/// Bounds of one row.
#[derive(Debug)]
pub struct Bounds {
    pub scenario: &'static str,
    pub policy: &'static str,
    /// The greatest difference of saved memory at any sample.
    saved: f64,
    /// The mean difference of saved memory, whatever its sign.
    mean: f64,
    /// ksmd's CPU time, simulated over live.
    cpu: [f64; 2],
    /// The part of the live passes by which the simulated ones differ; one pass is within the bounds in any case.
    passes: f64,
}

impl Bounds {
    /// Whether a difference is within the bounds.
    pub fn hold(&self, difference: &Difference) -> bool {
        let [simulated, live] = difference.passes.map(|passes| passes as f64);
        difference.saved <= self.saved
            && difference.mean.abs() <= self.mean
            && (self.cpu[0]..=self.cpu[1]).contains(&difference.cpu_ratio())
            && (simulated - live).abs() <= (self.passes * live).max(1.0)
    }
}

const fn row(scenario: &'static str, policy: &'static str, saved: f64, mean: f64, cpu: [f64; 2], passes: f64) -> Bounds {
    Bounds { scenario, policy, saved, mean, cpu, passes }
}

pub const BOUNDS: &[Bounds] = &[
    row("burst", "fixed:morfik", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("burst", "profit", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("burst", "reference", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("burst", "score", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("churn", "fixed:morfik", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("churn", "profit", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("churn", "reference", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("churn", "score", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("clones", "profit", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("clones", "reference", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("zeros", "fixed:morfik", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("zeros", "profit", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("zeros", "reference", 9.0, 9.0, [0.0, 9.0], 9.0),
    row("zeros", "score", 9.0, 9.0, [0.0, 9.0], 9.0),
];
