//! Beliefs about the memory that a scan may visit: for each class of pages its bytes, the probability that they merge,
//! and the time that they stay.

use super::constants::{NEARLY_ALL, RECURRING_PART, STABLE_PART, TRIALS_OF_SCAN, UNKNOWN_AT_FIRST};
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
}

impl ScanBeliefs {
    /// Derives the beliefs from page samples: `bytes * recurring_part * RECURRING_PART` are recurring, and
    /// `bytes * unknown_part * merged_part` unknown. Empty without page samples.
    pub fn from_samples(now: &HostSituation, experience: &MergeExperience) -> Self {
        let Some(samples) = now.page_samples else { return Self::none(experience) };
        let pages = now.ksmd.tracked.saturating_add(now.ksmd.zero_pages);
        let bytes = pages.saturating_mul(now.ksmd.page_size) as f64;
        Self {
            recurring: ClassBelief {
                bytes: bytes * samples.recurring_part() * RECURRING_PART,
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
    pub fn from_changing(now: &HostSituation, experience: &MergeExperience) -> Self {
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

    /// Returns true if nearly all that it is expected to save are pages with a checksum known to ksmd, so that one
    /// visit merges them.
    pub fn one_pass_does(&self, samples: &PageSamples) -> bool {
        let has_mostly_reverted = f64::from(samples.reverted) >= f64::from(samples.recurring) * NEARLY_ALL;
        has_mostly_reverted && self.recurring.gain() >= self.unknown.gain()
    }
}

impl MergeExperience {
    /// Nothing was tried yet.
    pub fn new() -> Self {
        let unknown = MergeProbability::expecting(UNKNOWN_AT_FIRST);
        Self { recurring: MergeProbability::expecting(1.0), unknown }
    }

    /// Compares the sampled pages that were to be merged with those that are.
    pub fn learn_recurring(&mut self, promised: &ScanBeliefs, samples: &PageSamples) {
        let tried = promised.tried.min(samples.recurring_tried);
        if tried > 0 {
            self.recurring.learn(f64::from(samples.recurring_merged) / f64::from(tried), 1.0);
        }
    }

    /// Compares what a scan saved with what was expected of it.
    ///
    /// Sampled pages count as one trial: one failure says little of stable pages. Without page samples the outcome is
    /// that of all pages that changed, most of which change again.
    pub fn learn_unknown(&mut self, promised: &ScanBeliefs, outcome: &ScanOutcome, now: &HostSituation) {
        if let Some(samples) = now.page_samples {
            // What has changed again was promised too, and has not merged.
            let tried = samples.unknown_tried.saturating_add(samples.unknown_gone);
            if tried > 0 {
                let merged = f64::from(samples.unknown_merged) / f64::from(tried);
                self.unknown.learn(merged / now.merged_part.max(f64::MIN_POSITIVE), 1.0);
            }
        } else if promised.unknown.bytes > 0.0 {
            let part = outcome.saved_bytes as f64 / promised.unknown.bytes;
            self.unknown.learn(part, TRIALS_OF_SCAN);
        }
    }
}
