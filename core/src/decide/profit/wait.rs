//! The reasons for which ksmd waits, whatever a scan is worth.

use super::config::ProfitConfig;
use crate::decide::ReasonSentences;
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
    /// Describes the reason.
    pub fn in_words(self, config: &ProfitConfig) -> ReasonSentences {
        match self {
            Self::Plenty { available_percent } => ReasonSentences::detailed(
                "memory is plentiful, so ksmd waits",
                format!(
                    "{available_percent:.0} % of memory is available, and when = \"short\": ksmd waits until less than {} % is",
                    config.short_percent
                ),
            ),
            Self::Spent => ReasonSentences::detailed(
                "ksmd has used its share of the time, and waits",
                format!("max_delay_percent = {}", config.max_delay_percent),
            ),
            Self::Folding => {
                ReasonSentences::plain("huge pages are being folded: ksmd waits until their zeros are free")
            }
            Self::Pending => {
                ReasonSentences::plain("pages are being read, to tell what merging would save and split")
            }
            Self::HugePages { saved_bytes, split_bytes, cost_cpus } => {
                let cost = if cost_cpus < 0.005 {
                    String::new()
                } else {
                    format!("; the splits would cost programs up to {cost_cpus:.2} CPU")
                };
                ReasonSentences::detailed(
                    "merging would split huge pages for little: ksmd waits while memory is plentiful",
                    format!(
                        "it would save about {} and split {} of huge pages{cost}",
                        Bytes::from(saved_bytes),
                        Bytes::from(split_bytes),
                    ),
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
        let line = "merging would split huge pages for little: ksmd waits while memory is plentiful";
        let idle = "it would save about 5.00 MiB and split 1.00 GiB of huge pages";
        assert_eq!(words(0.001), ReasonSentences::detailed(line, idle));
        let dear = format!("{idle}; the splits would cost programs up to 0.25 CPU");
        assert_eq!(words(0.25), ReasonSentences::detailed(line, dear));
    }

    #[test]
    fn settings_stand_in_the_arithmetic() {
        let config = ProfitConfig { short_percent: 20.0, max_delay_percent: 2.0, ..ProfitConfig::default() };
        let words = |reason: WaitReason| reason.in_words(&config);
        let plenty = "60 % of memory is available, and when = \"short\": ksmd waits until less than 20 % is";
        assert_eq!(
            words(WaitReason::Plenty { available_percent: 60.0 }),
            ReasonSentences::detailed("memory is plentiful, so ksmd waits", plenty)
        );
        assert_eq!(
            words(WaitReason::Spent),
            ReasonSentences::detailed("ksmd has used its share of the time, and waits", "max_delay_percent = 2")
        );
    }
}
