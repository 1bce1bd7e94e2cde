//! Beliefs about the memory that a scan may visit: for each class of pages its bytes, the probability that they merge,
//! and the time that they stay.

use super::constants::{FEWEST_TRIED, NEARLY_ALL, STABLE_PART};
use super::probability::MergeProbability;
use super::situation::HostSituation;
use crate::sample::PageSamples;
use crate::scan::ScanOutcome;

/// The belief about one class of pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassBelief {
    /// Bytes that a scan saves if all of them merge that are equal to others.
    pub bytes: f64,
    /// The probability that they merge.
    pub probability: MergeProbability,
    /// The part of them that counts, 0 to 1, since they may soon be written to again.
    pub lifetime_part: f64,
}

impl ClassBelief {
    /// Bytes that a scan is expected to save.
    pub fn expected(&self) -> f64 {
        self.bytes * self.probability.mean()
    }

    /// Returns the expected gain in bytes: `bytes * p * lifetime_part`.
    pub fn gain(&self) -> f64 {
        self.expected() * self.lifetime_part
    }

    /// The same with the upper bound of the probability: what may be gained, as far as is known.
    pub fn most(&self) -> f64 {
        self.bytes * self.probability.upper() * self.lifetime_part
    }

    /// None of that class.
    fn none(probability: MergeProbability) -> Self {
        Self { bytes: 0.0, probability, lifetime_part: 1.0 }
    }
}

/// The beliefs about pages that ksmd has visited and that are not merged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanBeliefs {
    /// Pages that are stable with contents that were merged before.
    pub recurring: ClassBelief,
    /// Pages that are stable with contents of which it is not known.
    pub unknown: ClassBelief,
    /// Recurring sampled pages that are to be merged.
    tried: u32,
}

/// The merge probabilities learned from scans, one for each class of pages.
#[derive(Debug, Clone, Copy)]
pub struct MergeExperience {
    recurring: MergeProbability,
    unknown: MergeProbability,
    /// Recurring sampled pages that are not learned from yet.
    few_recurring: FewTrials,
    /// The same of unknown contents.
    few_unknown: FewTrials,
}

impl ScanBeliefs {
    /// Derives the beliefs from page samples: `bytes * recurring_part * constants.recurring_part` are recurring, and
    /// `bytes * unknown_part * merged_part` unknown. Empty without page samples.
    pub fn of_samples(now: &HostSituation, experience: &MergeExperience) -> Self {
        let Some(samples) = now.page_samples else { return Self::none(experience) };
        let pages = now.ksmd.tracked.saturating_add(now.ksmd.zero_pages);
        let bytes = pages.saturating_mul(now.ksmd.page_size) as f64;
        Self {
            recurring: ClassBelief {
                bytes: bytes * samples.recurring_part() * now.constants.recurring_part,
                probability: experience.recurring,
                lifetime_part: samples.lifetime_part(),
            },
            unknown: ClassBelief {
                bytes: bytes * samples.unknown_part() * now.merged_part,
                ..ClassBelief::none(experience.unknown)
            },
            tried: samples.matches_merged.saturating_add(samples.matches_unmerged),
        }
    }

    /// Derives the beliefs without page samples: the pages that were in no tree may be stable by now.
    pub fn of_changing(now: &HostSituation, experience: &MergeExperience) -> Self {
        let changing = now.ksmd.in_no_tree.unwrap_or(0).saturating_mul(now.ksmd.page_size) as f64;
        let mut beliefs = Self::none(experience);
        beliefs.unknown.bytes = changing * STABLE_PART * now.merged_part;
        beliefs
    }

    /// Nothing is known of any page.
    pub fn none(experience: &MergeExperience) -> Self {
        let MergeExperience { recurring, unknown, .. } = *experience;
        Self { recurring: ClassBelief::none(recurring), unknown: ClassBelief::none(unknown), tried: 0 }
    }

    /// Bytes that a scan of all memory is expected to save.
    pub fn expected(&self) -> f64 {
        self.recurring.expected() + self.unknown.expected()
    }

    /// Returns the mean worth of a byte that it may save, 0 to 1.
    pub fn worth_of_each(&self) -> f64 {
        let (recurring, unknown) = (self.recurring, self.unknown);
        let bytes = recurring.bytes + unknown.bytes;
        if bytes > 0.0 { (recurring.bytes * recurring.lifetime_part + unknown.bytes) / bytes } else { 1.0 }
    }

    /// Returns true if nearly all that it is expected to save are pages with a checksum known to ksmd, so that one
    /// visit merges them.
    pub fn one_pass_does(&self, samples: &PageSamples) -> bool {
        let has_mostly_reverted = f64::from(samples.reverted) >= f64::from(samples.recurring) * NEARLY_ALL;
        has_mostly_reverted && self.recurring.gain() >= self.unknown.gain()
    }
}

/// Returns true if the page samples predict that a revisit merges unmerged pages with each other.
pub fn expects_pairs(samples: &PageSamples) -> bool {
    f64::from(samples.matches_unmerged) > f64::from(samples.recurring) * (1.0 - NEARLY_ALL)
}

impl MergeExperience {
    /// Nothing was tried yet. Unknown contents are expected to merge with that probability.
    pub fn new(unknown: f64) -> Self {
        Self {
            recurring: MergeProbability::expecting(1.0),
            unknown: MergeProbability::expecting(unknown),
            few_recurring: FewTrials::default(),
            few_unknown: FewTrials::default(),
        }
    }

    /// Records a burst: new memory has yet to show whether it becomes stable.
    pub fn note_burst(&mut self, now: &HostSituation) {
        self.unknown.expect_at_least(now.constants.unknown_at_first);
    }

    /// Compares the sampled pages that were to be merged with those that are.
    pub fn learn_recurring(&mut self, promised: &ScanBeliefs, samples: &PageSamples) {
        let tried = promised.tried.min(samples.recurring_tried);
        if let Some(part) = self.few_recurring.add(samples.recurring_merged, tried) {
            self.recurring.learn(part, 1.0);
        }
    }

    /// Compares what a scan saved with what was expected of it.
    ///
    /// Sampled pages count as one trial: one failure says little of stable pages. Without page samples the outcome is
    /// that of all pages that changed, most of which change again. `copied_before`: pages copied on write when ksmd
    /// last visited them all.
    pub fn learn_unknown(
        &mut self,
        promised: &ScanBeliefs,
        outcome: &ScanOutcome,
        copied_before: u64,
        now: &HostSituation,
    ) {
        if let Some(samples) = now.page_samples {
            // What has changed again was promised too, and has not merged.
            let tried = samples.unknown_tried.saturating_add(samples.unknown_gone);
            if let Some(merged) = self.few_unknown.add(samples.unknown_merged, tried) {
                self.unknown.learn(merged / now.merged_part.max(f64::MIN_POSITIVE), 1.0);
            }
        } else if promised.unknown.bytes > 0.0 {
            // Copied pages count as saved until ksmd visits them. A frame that only one page is left in saves nothing.
            let copied = now.copied_pages.saturating_sub(copied_before).saturating_mul(now.ksmd.page_size) as f64;
            let saved = outcome.saved_bytes as f64 + copied * now.saving_part;
            self.unknown.learn(saved / promised.unknown.bytes, now.constants.trials_of_scan);
        }
    }
}

/// Sampled pages of past scans that were too few to learn from.
#[derive(Debug, Clone, Copy, Default)]
struct FewTrials {
    merged: u32,
    tried: u32,
}

impl FewTrials {
    /// Adds the pages of a scan. Returns the part that merged once they are [`FEWEST_TRIED`], and begins anew.
    fn add(&mut self, merged: u32, tried: u32) -> Option<f64> {
        let (merged, tried) = (self.merged.saturating_add(merged), self.tried.saturating_add(tried));
        *self = if tried < FEWEST_TRIED { Self { merged, tried } } else { Self::default() };
        (tried >= FEWEST_TRIED).then(|| f64::from(merged) / f64::from(tried))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_several_scans_are_learned_from_once_they_are_enough() {
        let mut few = FewTrials::default();
        assert_eq!((few.add(3, FEWEST_TRIED - 3), few.add(1, 2)), (None, None));
        assert_eq!(few.add(0, 1), Some(0.5));
        assert_eq!(few.add(1, 1), None);
        assert_eq!(few.add(FEWEST_TRIED, FEWEST_TRIED), Some(1.0));
    }
}
