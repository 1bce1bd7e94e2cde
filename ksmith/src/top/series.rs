//! The last figures of the host, for the small charts.

use std::collections::VecDeque;

use ksmith_core::account::HostTotals;
use ksmith_core::model::StatusReport;

/// Most samples that are kept: more than any terminal has columns.
const KEPT: usize = 512;

/// Savings and ksmd's CPU use of the last samples, the newest first.
#[derive(Debug, Clone, Default)]
pub struct ChartSeries {
    saved: VecDeque<Option<u64>>,
    ksmd: VecDeque<Option<u64>>,
}

impl ChartSeries {
    /// Records one sample.
    pub fn push(&mut self, status: &StatusReport) {
        let saved = status.sample.ksm.shows_savings().then(|| HostTotals::from_sample(&status.sample).saved_bytes);
        // In thousandths of a CPU: a chart counts in whole numbers.
        let ksmd = status.ksmd_cpu_percent.map(|percent| (percent * 10.0).round() as u64);
        for (series, value) in [(&mut self.saved, saved), (&mut self.ksmd, ksmd)] {
            series.push_front(value);
            series.truncate(KEPT);
        }
    }

    /// Returns the saved bytes, the newest first.
    pub fn saved(&self) -> impl Iterator<Item = Option<u64>> {
        self.saved.iter().copied()
    }

    /// Returns the thousandths of a CPU that ksmd used, the newest first.
    pub fn ksmd(&self) -> impl Iterator<Item = Option<u64>> {
        self.ksmd.iter().copied()
    }
}
