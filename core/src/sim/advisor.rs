//! The kernel's own controller of `pages_to_scan`, `scan-time`: after each pass it corrects the batch so that the next
//! pass takes the target time, within bounds of CPU.
//!
//! Source: `scan_time_advisor` in `mm/ksm.c` (6.8). As there, all arithmetic is on integers: its truncation shows in
//! small figures.

use super::settings::KnobValues;

/// The new measurement's weight in the moving average, in per cent.
const EWMA_WEIGHT: u64 = 30;

/// The part of a CPU below which the advisor does not let ksmd fall, in per cent.
const MIN_CPU: u64 = 10;

/// The advisor's state from pass to pass.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SimAdvisor {
    started_ns: u64,
    last_seconds: u64,
    change: u64,
    cpu_ns: u64,
}

impl SimAdvisor {
    /// Starts a pass.
    pub fn start(&mut self, now_ns: u64) {
        self.started_ns = now_ns;
    }

    /// Ends a pass, and returns `pages_to_scan` for the next one.
    pub fn stop(&mut self, now_ns: u64, cpu_ns: u64, settings: &KnobValues) -> u64 {
        let seconds = ((now_ns - self.started_ns) / 1_000_000_000).max(1);
        let cpu_ms = cpu_ns.saturating_sub(self.cpu_ns) / 1_000_000;
        let cpu_percent = (cpu_ms * 100 / (seconds * 1000)).max(1);
        let before = if self.last_seconds == 0 { seconds } else { self.last_seconds };

        // The distance of this pass from the target, and the change between passes, both in per cent.
        let speed = (settings.advisor_target_scan_time * 100 / seconds).max(1);
        let ratio = (seconds * 100 / before).max(1);
        let change = ((100 - EWMA_WEIGHT) * self.change + EWMA_WEIGHT * ratio) / 100;
        let wanted = (settings.pages_to_scan * 100 / speed).saturating_mul(change) / 100;

        let per_percent = (settings.pages_to_scan / cpu_percent).max(1);
        *self = Self { started_ns: self.started_ns, last_seconds: seconds, change, cpu_ns };
        wanted
            .min(per_percent * settings.advisor_max_cpu)
            .max(per_percent * MIN_CPU)
            .min(settings.advisor_max_pages_to_scan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::KernelVersion;

    const SECOND: u64 = 1_000_000_000;

    /// The advice after each pass of (pages_to_scan, seconds, CPU seconds).
    fn advice(passes: &[(u64, u64, u64)]) -> Vec<u64> {
        let mut advisor = SimAdvisor::default();
        let (mut now, mut cpu) = (0, 0);
        let follow = passes.iter().map(|&(pages_to_scan, seconds, cpu_seconds)| {
            let settings = KnobValues { pages_to_scan, ..KnobValues::new(KernelVersion::new(6, 18)) };
            advisor.start(now);
            now += seconds * SECOND;
            cpu += cpu_seconds * SECOND;
            advisor.stop(now, cpu, &settings)
        });
        follow.collect()
    }

    /// Computed by hand from the kernel's formulas, truncations included.
    #[test]
    fn a_slow_pass_makes_batches_larger_and_changes_are_smoothed() {
        assert_eq!(advice(&[(500, 1000, 100), (750, 700, 105), (1124, 100, 80)]), [750, 1124, 185]);
    }

    /// `advisor_ctx.cpu_time` is 0 at first, and is compared with ksmd's time since boot.
    #[test]
    fn a_ksmd_that_has_worked_before_gets_the_smallest_batches() {
        let settings = KnobValues { pages_to_scan: 500, ..KnobValues::new(KernelVersion::new(6, 18)) };
        let mut advisor = SimAdvisor::default();
        advisor.start(0);
        assert_eq!(advisor.stop(SECOND, 600 * SECOND, &settings), 10);
        let mut fresh = SimAdvisor::default();
        fresh.start(0);
        assert_eq!(fresh.stop(SECOND, SECOND / 100, &settings), 5000, "a tenth of a CPU at the least");
    }

    #[test]
    fn cpu_bounds_it_above_and_below_and_the_maximum_above_all() {
        assert_eq!(advice(&[(500, 42, 4)]), [550], "a tenth of a CPU at the least");
        assert_eq!(advice(&[(20_000, 1000, 900)]), [222 * 70]);
        assert_eq!(advice(&[(29_000, 1000, 10)]), [30_000]);
    }
}
