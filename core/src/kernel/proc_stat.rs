//! The first line of `/proc/stat`: the time of all CPUs together.

use serde::{Deserialize, Serialize};

use crate::reading::Malformed;

/// CPU time of the whole host since boot, in clock ticks (`sysconf(_SC_CLK_TCK)`), and the number of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTimes {
    /// Ticks in which CPUs did anything.
    pub busy_ticks: u64,
    /// Of these, ticks in programs that run with less than usual priority (`nice` over 0).
    pub nice_ticks: u64,
    /// Ticks in which CPUs were idle or waited for I/O.
    pub idle_ticks: u64,
    /// CPUs that are online.
    pub cpus: u32,
}

impl CpuTimes {
    /// Parses the file. Guest time is already part of user time and is not counted twice.
    ///
    /// # Errors
    /// A first line that is not `cpu` and at least four numbers.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let malformed = || Malformed::new(1, "cpu and at least four numbers", first);
        let mut words = first.split_ascii_whitespace();
        if words.next() != Some("cpu") {
            return Err(malformed());
        }
        // user nice system idle iowait irq softirq steal guest guest_nice
        let mut ticks = [0_u64; 8];
        let mut seen = 0;
        for (slot, word) in ticks.iter_mut().zip(words) {
            *slot = super::unsigned(word).filter(|ticks| *ticks <= super::MOST_EVENTS).ok_or_else(malformed)?;
            seen += 1;
        }
        if seen < 4 {
            return Err(malformed());
        }
        let idle_ticks = ticks[3].saturating_add(ticks[4]);
        let busy_ticks = [0, 1, 2, 5, 6, 7].iter().fold(0_u64, |sum, &i| sum.saturating_add(ticks[i]));
        let cpus = lines.take_while(|line| line.starts_with("cpu")).count();
        Ok(Self { busy_ticks, nice_ticks: ticks[1], idle_ticks, cpus: u32::try_from(cpus).unwrap_or(u32::MAX) })
    }

    /// Returns the number of idle CPUs between `earlier` and this: 1.5 means one and a half CPUs had nothing to do.
    /// `None` if no time passed.
    pub fn idle_cpus_since(&self, earlier: &Self) -> Option<f64> {
        let idle = self.idle_ticks.saturating_sub(earlier.idle_ticks);
        self.cpus_worth(idle, earlier)
    }

    /// Returns the number of CPUs that ran programs with less than usual priority between `earlier` and this. `None` if
    /// no time passed.
    pub fn nice_cpus_since(&self, earlier: &Self) -> Option<f64> {
        let nice = self.nice_ticks.saturating_sub(earlier.nice_ticks);
        self.cpus_worth(nice, earlier)
    }

    fn cpus_worth(&self, ticks: u64, earlier: &Self) -> Option<f64> {
        let idle = self.idle_ticks.saturating_sub(earlier.idle_ticks) as f64;
        let busy = self.busy_ticks.saturating_sub(earlier.busy_ticks) as f64;
        (idle + busy > 0.0).then(|| ticks as f64 / (idle + busy) * f64::from(self.cpus.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_cpus_are_counted_between_two_readings() {
        let before = CpuTimes::parse("cpu  100 0 0 100 0 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 5\n").unwrap();
        let after = CpuTimes::parse("cpu  150 0 0 200 50 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 5\n").unwrap();
        assert_eq!(after.cpus, 2);
        assert_eq!(after.idle_cpus_since(&before), Some(1.5));
        assert_eq!(after.idle_cpus_since(&after), None);
        let nice = CpuTimes::parse("cpu  120 30 0 200 50 0 0 0 0 0\ncpu0 1\ncpu1 1\n").unwrap();
        assert_eq!((nice.busy_ticks, nice.nice_cpus_since(&before)), (150, Some(0.3)));
    }

    #[test]
    fn other_first_lines_are_malformed() {
        for bad in ["", "cpu", "cpu 1 2 3", "cpux 1 2 3 4", "cpu 1 2 x 4"] {
            assert!(CpuTimes::parse(bad).is_err(), "{bad}");
        }
    }
}
