//! The rule of the soak: which figures of the daemon must not grow, and what counts as growth.

#![allow(dead_code, reason = "its test draws no plots")]

use ksmith_lab::measure::Spread;

/// The resources of the daemon and its children at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct DaemonUsage {
    /// Seconds since the soak began.
    pub seconds: f64,
    /// Resident memory of the daemon itself.
    pub rss_kib: f64,
    /// Resident memory of the largest child: most of that is the program, which they share.
    pub child_rss_kib: f64,
    pub descriptors: f64,
    pub threads: f64,
    pub children: f64,
    /// CPU of the daemon and its children since the sample before, in percent of one CPU.
    pub cpu_percent: f64,
    /// CPU of ksmd since the sample before, in percent of one CPU.
    pub ksmd_cpu_percent: f64,
    pub saved_mib: f64,
    /// Processes that the soak has running.
    pub processes: f64,
}

/// A figure of the daemon over the soak.
pub struct UsageFigure {
    /// The name of the column and of the plot's file.
    pub name: &'static str,
    /// The words at the axis of the plot.
    pub axis: &'static str,
    pub of: fn(&DaemonUsage) -> f64,
    /// The growth that is tolerated from the second quarter to the last: a part of the figure, and an amount besides.
    /// Without it the figure may grow.
    pub tolerance: Option<(f64, f64)>,
}

/// All figures, in the order of the columns.
pub const FIGURES: [UsageFigure; 9] = [
    // An allocator keeps what a larger moment needed, and a page of code is resident from its first use on.
    UsageFigure { name: "rss_kib", axis: "RSS, KiB", of: |usage| usage.rss_kib, tolerance: Some((0.05, 512.0)) },
    UsageFigure {
        name: "child_rss_kib",
        axis: "RSS of the largest child, KiB",
        of: |usage| usage.child_rss_kib,
        tolerance: Some((0.05, 512.0)),
    },
    // A connection, or a look at a process, may be under way in more samples of one quarter than of the other.
    UsageFigure {
        name: "descriptors",
        axis: "descriptors",
        of: |usage| usage.descriptors,
        tolerance: Some((0.0, 4.0)),
    },
    UsageFigure { name: "threads", axis: "threads", of: |usage| usage.threads, tolerance: Some((0.0, 2.0)) },
    UsageFigure { name: "children", axis: "children", of: |usage| usage.children, tolerance: Some((0.0, 1.0)) },
    UsageFigure { name: "cpu_percent", axis: "CPU, % of a core", of: |usage| usage.cpu_percent, tolerance: None },
    UsageFigure {
        name: "ksmd_cpu_percent",
        axis: "ksmd, % of a core",
        of: |usage| usage.ksmd_cpu_percent,
        tolerance: None,
    },
    UsageFigure { name: "saved_mib", axis: "saved, MiB", of: |usage| usage.saved_mib, tolerance: None },
    UsageFigure { name: "processes", axis: "processes of the soak", of: |usage| usage.processes, tolerance: None },
];

/// The change of a figure over the soak.
#[derive(Debug, PartialEq)]
pub struct UsageTrend {
    /// The medians of the second quarter and of the last.
    pub medians: [f64; 2],
    /// The most that the second of them may be.
    pub bound: Option<f64>,
}

impl UsageTrend {
    /// Compares the quarters of a series. The first quarter is not judged: caches fill in it. `None` if a quarter is empty.
    pub fn from_series(figure: &UsageFigure, series: &[DaemonUsage]) -> Option<Self> {
        let quarter = |number: usize| {
            let part = series.get(series.len() * number / 4..series.len() * (number + 1) / 4)?;
            Spread::from_values(part.iter().map(|usage| Some((figure.of)(usage)))).median
        };
        let medians = [quarter(1)?, quarter(3)?];
        let bound = figure.tolerance.map(|(part, amount)| medians[0] * (1.0 + part) + amount);
        Some(Self { medians, bound })
    }

    pub fn is_flat(&self) -> bool {
        self.bound.is_none_or(|bound| self.medians[1] <= bound)
    }
}
