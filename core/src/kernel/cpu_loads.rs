//! The lines of single CPUs in `/proc/stat`.

use std::collections::{BTreeMap, BTreeSet};

/// CPU time of each CPU since boot, in clock ticks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuLoads {
    /// Ticks of each CPU: in programs of usual priority and in the kernel, and in all.
    ticks: BTreeMap<u32, (u64, u64)>,
}

impl CpuLoads {
    /// Parses the file. Lines that are not of a CPU are left out.
    pub fn parse(text: &str) -> Self {
        let of_line = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
            // The first line, of all CPUs, has no number.
            let cpu = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
            // user nice system idle iowait irq softirq steal guest guest_nice; guest time is part of user time.
            let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
            let sum = |columns: &[usize]| {
                columns.iter().filter_map(|column| ticks.get(*column)).fold(0_u64, |sum, n| sum.saturating_add(*n))
            };
            (ticks.len() >= 4).then(|| (cpu, (sum(&[0, 2, 5, 6]), sum(&[0, 1, 2, 3, 4, 5, 6, 7]))))
        };
        Self { ticks: text.lines().filter_map(of_line).collect() }
    }

    /// Returns the CPUs that programs of usual priority or the kernel used for more than half of the time since `earlier`.
    pub fn busy_since(&self, earlier: &Self) -> BTreeSet<u32> {
        let is_busy = |(cpu, (busy, all)): (&u32, &(u64, u64))| {
            let (busy_before, all_before) = earlier.ticks.get(cpu)?;
            let (busy, all) = (busy.saturating_sub(*busy_before), all.saturating_sub(*all_before));
            (busy > all / 2).then_some(*cpu)
        };
        self.ticks.iter().filter_map(is_busy).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_busy_that_has_worked_for_others_most_of_the_time() {
        let before =
            CpuLoads::parse("cpu  9 9 9 9\ncpu0 10 0 10 100 0 0 0 0 0 0\ncpu1 5 0 5 100\ncpu3 0 0 0 100\nintr 1\n");
        let after = "cpu  9 9 9 9\ncpu0 70 0 20 130 0 0 0 0 70 0\ncpu1 5 90 5 110\ncpu2 900 0 0 0\ncpu3 40 0 0 160\nintr 1\n";
        assert_eq!(
            CpuLoads::parse(after).busy_since(&before),
            [0].into(),
            "1 for low priority, 2 came late, 3 is idle"
        );
        assert!(before.busy_since(&before).is_empty(), "no time has passed");
        for bad in ["", "cpu0", "cpu0 1 2", "cpux 1 2 3 4", "cpu0 a b c d"] {
            assert_eq!(CpuLoads::parse(bad), CpuLoads::default(), "{bad}");
        }
    }
}
