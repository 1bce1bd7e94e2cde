//! The reasons for which ksmd waits, whatever a scan is worth.

use super::config::ProfitConfig;
use super::constants::{NEXT_TO_NOTHING, SPLIT_PART};
use crate::sample::ForecastState;
use crate::units::Bytes;

/// A reason for which ksmd waits. Ended guests are tidied up and splits finished all the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WaitReason {
    /// Memory is plentiful, and `when = "short"`.
    Plenty {
        /// The available per cent of the host's memory.
        available_percent: f64,
    },
    /// ksmd has used its allowance (`max_delay_percent`).
    Spent,
    /// Memory that has just been filled is being folded (`after_init`).
    Folding,
    /// Pages are being read for a forecast.
    Pending,
    /// Merging would save little of memory in huge pages.
    HugePages {
        /// Bytes that merging would save.
        saved_bytes: u64,
        /// Bytes of huge pages that it would split.
        split_bytes: u64,
    },
}

impl WaitReason {
    /// Derives from the forecast that ksmd waits: merging would save less than `split_saves_percent` of all memory, and
    /// either be the first, with most memory in huge pages, or split over [`SPLIT_PART`] of it and save less than that
    /// per cent of what it splits. Under pressure less is enough, down to anything. `merged_part` of what the processes
    /// hold is merged, and `pressure` is that of the host, both 0 to 1.
    pub fn from_forecast(
        forecast: ForecastState,
        merged_part: f64,
        pressure: f64,
        config: &ProfitConfig,
    ) -> Option<Self> {
        let calm = 1.0 - pressure;
        let forecast = match forecast {
            ForecastState::Unavailable => return None,
            ForecastState::Pending => return (calm > 0.0).then_some(Self::Pending),
            ForecastState::Known(forecast) => forecast,
        };
        let bytes = forecast.bytes as f64;
        let least = config.split_saves_percent / 100.0 * calm;
        let saves_little = (forecast.saved_bytes as f64) < bytes * least;
        let is_first = merged_part < NEXT_TO_NOTHING && forecast.huge_bytes as f64 > bytes / 2.0;
        let is_dear = forecast.split_bytes as f64 > bytes * SPLIT_PART && forecast.saved_part() < least;
        (saves_little && (is_first || is_dear))
            .then_some(Self::HugePages { saved_bytes: forecast.saved_bytes, split_bytes: forecast.split_bytes })
    }

    /// Returns the reason in a sentence.
    pub fn in_words(self, config: &ProfitConfig) -> String {
        match self {
            Self::Plenty { available_percent } => format!(
                "{available_percent:.0} % of memory is available, and when = \"short\": ksmd waits until less than {} % is",
                config.short_percent
            ),
            Self::Spent => {
                format!("ksmd has used its {} % of the time (max_delay_percent)", config.max_delay_percent)
            }
            Self::Folding => {
                "huge pages are being split, as folding does: ksmd waits until their zeros are free".to_owned()
            }
            Self::Pending => "pages are being read, to tell what merging would save and split".to_owned(),
            Self::HugePages { saved_bytes, split_bytes } => format!(
                "merging would save about {} and split {} of huge pages for it: ksmd waits while memory is plentiful",
                Bytes::from(saved_bytes),
                Bytes::from(split_bytes),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::MergeForecast;

    fn waits(merged_part: f64, saved_mib: u64, split_mib: u64, pressure: f64) -> bool {
        let forecast = MergeForecast {
            bytes: 1 << 30,
            huge_bytes: 1 << 30,
            saved_bytes: saved_mib << 20,
            saved_in_huge_bytes: saved_mib << 20,
            split_bytes: split_mib << 20,
        };
        let forecast = ForecastState::Known(forecast);
        WaitReason::from_forecast(forecast, merged_part, pressure, &ProfitConfig::default()).is_some()
    }

    #[test]
    fn ksmd_waits_where_little_is_saved_of_much_that_is_split() {
        let waits = |saved_mib, split_mib, pressure| waits(0.5, saved_mib, split_mib, pressure);
        assert!(waits(5, 1024, 0.0), "half a per cent");
        assert!(!waits(100, 1024, 0.0), "a tenth");
        assert!(!waits(1, 30, 0.0), "little is split");
        assert!(waits(20, 1024, 0.0) && !waits(20, 1024, 0.7), "memory is short");
        assert!(!waits(0, 1024, 1.0), "anything is welcome");
    }

    #[test]
    fn the_first_scan_must_save_its_part_of_all_memory() {
        assert!(waits(0.0, 25, 60, 0.0), "an equal twentieth, in runs");
        assert!(!waits(0.5, 25, 60, 0.0), "others are merged already");
        assert!(!waits(0.0, 55, 110, 0.0), "an equal tenth");
        assert!(!waits(0.0, 25, 60, 0.9), "memory is short");
    }
}
