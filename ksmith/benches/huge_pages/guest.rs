//! A guest of the benchmark.

use std::time::Duration;

use ksmith_core::kernel::SmapsRollup;

/// A guest that uses all of its memory at random.
pub trait BenchGuest {
    fn pid(&self) -> u32;

    /// Begins to use its memory, for this time.
    fn begin(&mut self, time: Duration);

    /// Waits for the end of that time, and returns the number of accesses in it.
    fn accesses(&mut self) -> f64;

    /// Returns its memory by kind.
    fn sums(&self) -> SmapsRollup {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        SmapsRollup::parse(&text).unwrap()
    }
}
