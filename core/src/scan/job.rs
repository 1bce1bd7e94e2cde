//! The job of a scan, and its outcome.

/// The pages that the passes of a scan visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanCoverage {
    /// The pages that `smart_scan` does not skip.
    Smart,
    /// The pages that `smart_scan` does not skip until ksmd reaches new memory, and from there on all pages.
    NewThenAll,
    /// All pages, without exception.
    All,
}

impl ScanCoverage {
    /// Returns true if at least the last pass visits every page.
    pub fn is_clean(self) -> bool {
        self != Self::Smart
    }
}

/// A scan to carry out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanJob {
    /// The pages that are visited.
    pub coverage: ScanCoverage,
    /// Visits to each page. An unmerged page merges on the second visit that finds it unchanged.
    pub passes: u64,
    /// Pages that appeared since the last scan.
    pub new_pages: u64,
    /// True if they are of new guests: what merged of others' memory says nothing about theirs.
    pub is_of_new_guests: bool,
    /// The share of a CPU, 0 to 1, that ksmd keeps while every CPU is busy. Idle CPUs may be used up to the limit.
    pub busy_share: f64,
    /// The most passes that are added for huge pages that the scan splits.
    pub extra_passes: u64,
    /// The price in bytes per CPU-second below which no further pass is made: the scan ends with the first whole pass
    /// after which the next is expected to save less. `None`: all passes are made.
    pub least_yield: Option<f64>,
}

impl ScanJob {
    /// A job that visits all pages so many times, with all the CPU that the limits allow.
    pub fn all_pages(passes: u64) -> Self {
        Self {
            coverage: ScanCoverage::All,
            passes,
            new_pages: 0,
            is_of_new_guests: false,
            busy_share: 1.0,
            extra_passes: 2,
            least_yield: None,
        }
    }

    /// A job that visits all pages again and again, with all the CPU that the limits allow.
    pub fn endless() -> Self {
        Self::all_pages(u64::MAX)
    }

    /// Returns true if the scan has no end.
    pub fn is_endless(&self) -> bool {
        self.passes == u64::MAX
    }
}

/// The savings and the cost of a scan so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScanOutcome {
    /// Bytes newly saved; negative when more were unshared.
    pub saved_bytes: i64,
    /// CPU time of ksmd, in seconds.
    pub cpu_seconds: f64,
}

impl ScanOutcome {
    /// Bytes newly saved per second of CPU time of ksmd.
    pub fn yield_per_cpu_second(&self) -> f64 {
        self.saved_bytes as f64 / self.cpu_seconds.max(1e-6)
    }
}

/// The progress of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanStatus {
    /// Pages are left to visit.
    Running,
    /// Every page has been visited as often as the job says.
    Done,
    /// The scan makes no progress: no process offers memory, or another program keeps ksmd from it.
    Stalled,
    /// `full_scans` was reset, so the end of the scan cannot be told. Writing 2 to `run` does that.
    Lost,
}

/// The report on a scan at one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanReport {
    /// The progress of the scan.
    pub status: ScanStatus,
    /// The savings and the cost so far.
    pub outcome: ScanOutcome,
    /// True if it ends in the middle of a pass: ksmd is back where the scan began.
    pub ends_midway: bool,
    /// Huge pages that were split since the scan began.
    pub split_huge_pages: u64,
    /// Pages that the pass which ended last has left in no tree.
    pub left_pages: u64,
    /// True if it ends before its passes are made, since the last pass merged too small a part of what was left to it.
    pub is_cut_short: bool,
}
