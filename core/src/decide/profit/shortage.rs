//! The shortage of memory for which `when = "short"` has ksmd wait, and in which guests on huge pages are merged
//! ([`GuestPruner`](crate::decide::GuestPruner)).

use super::config::{MergeTime, ProfitConfig};
use super::constants::RELIEVED;
use super::situation::{available_part, stalls};
use super::wait::WaitReason;
use crate::sample::Sample;

/// The shortage of memory on this host. It has hysteresis: what merging frees does not end it at once.
#[derive(Debug, Clone, Default)]
pub struct MemoryShortage {
    is_short: bool,
}

impl MemoryShortage {
    /// Records a sample. Returns the reason to wait while memory is plentiful.
    pub(super) fn follow(&mut self, sample: &Sample, config: &ProfitConfig) -> Option<WaitReason> {
        if config.when == MergeTime::Pays {
            *self = Self::default();
            return None;
        }
        let available_percent = self.record_sample(sample, config.short_percent)?;
        Some(WaitReason::Plenty { available_percent })
    }

    /// Records a sample. Returns the available per cent of memory while it is plentiful; `None` while it is short, and
    /// where it can't be read.
    ///
    /// Memory is short from less than `short_percent` available on, from half of the full [`stalls`] on, and while the pool
    /// of the balance is. That ends at [`RELIEVED`] times `short_percent` and half of those stalls.
    pub fn record_sample(&mut self, sample: &Sample, short_percent: f64) -> Option<f64> {
        let part = available_part(sample)?;
        let available = part * 100.0;
        let stalls = stalls(sample, Some(part));
        let (least, most) = if self.is_short { (short_percent * RELIEVED, 0.25) } else { (short_percent, 0.5) };
        self.is_short = available < least || stalls >= most || sample.pool_shortness > 0.0;
        (!self.is_short).then_some(available)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{HostReadings, Meminfo, Psi, StallTimes};
    use crate::reading::Reading;

    fn sample(available: u64, avg10: f32) -> Sample {
        let memory = Meminfo { total: Some(100), available: Some(available), ..Meminfo::default() };
        let some = StallTimes { avg10: Some(avg10), ..StallTimes::default() };
        let memory_pressure = Reading::Value(Psi { some });
        let host = HostReadings { memory: Reading::Value(memory), memory_pressure, ..HostReadings::default() };
        Sample { host, ..Sample::default() }
    }

    fn config() -> ProfitConfig {
        ProfitConfig { when: MergeTime::Short, short_percent: 20.0, ..ProfitConfig::default() }
    }

    #[test]
    fn a_shortage_ends_later_than_it_begins() {
        let mut shortage = MemoryShortage::default();
        let mut waits = |available| shortage.follow(&sample(available, 0.0), &config()).is_some();
        assert_eq!(
            [60, 21, 20, 19, 21, 24, 25, 21].map(&mut waits),
            [true, true, true, false, false, false, true, true]
        );
    }

    #[test]
    fn stalls_and_a_short_pool_are_a_shortage_too() {
        let mut shortage = MemoryShortage::default();
        let mut waits = |avg10| shortage.follow(&sample(40, avg10), &config()).is_some();
        assert_eq!([4.9, 5.0, 3.0, 2.4].map(&mut waits), [true, false, false, true]);
        assert!(shortage.follow(&sample(60, 50.0), &config()).is_some(), "they are not for want of memory");
        let short = Sample { pool_shortness: 0.1, ..sample(60, 0.0) };
        assert_eq!(shortage.follow(&short, &config()), None);
        assert_eq!(
            shortage.follow(&sample(60, 0.0), &config()),
            Some(WaitReason::Plenty { available_percent: 60.0 })
        );
    }

    #[test]
    fn ksmd_waits_neither_by_default_nor_where_memory_cannot_be_read() {
        assert_eq!(MemoryShortage::default().follow(&sample(99, 0.0), &ProfitConfig::default()), None);
        assert_eq!(MemoryShortage::default().follow(&Sample::default(), &config()), None);
    }
}
