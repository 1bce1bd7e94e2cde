//! The reasons for which ksmd waits, whatever a scan is worth.

use super::config::ProfitConfig;
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
    /// Merging would save little of memory in huge pages, or less than splits cost.
    HugePages {
        /// Bytes that merging would save.
        saved_bytes: u64,
        /// Bytes of huge pages that it would split.
        split_bytes: u64,
        /// CPU-seconds a second that the splits would cost at most.
        cost_cpus: f64,
    },
}

impl WaitReason {
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
            Self::HugePages { saved_bytes, split_bytes, cost_cpus } => {
                let cost = if cost_cpus < 0.005 {
                    String::new()
                } else {
                    format!("; the splits would cost programs up to {cost_cpus:.2} CPU")
                };
                format!(
                    "merging would save about {} and split {} of huge pages for it: ksmd waits while memory is plentiful{cost}",
                    Bytes::from(saved_bytes),
                    Bytes::from(split_bytes),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_a_cost_that_can_be_felt() {
        let words = |cost_cpus| {
            let reason = WaitReason::HugePages { saved_bytes: 5 << 20, split_bytes: 1 << 30, cost_cpus };
            reason.in_words(&ProfitConfig::default())
        };
        let idle = "merging would save about 5.00 MiB and split 1.00 GiB of huge pages for it: ksmd waits while memory is plentiful";
        assert_eq!(words(0.001), idle);
        assert_eq!(words(0.25), format!("{idle}; the splits would cost programs up to 0.25 CPU"));
    }
}
