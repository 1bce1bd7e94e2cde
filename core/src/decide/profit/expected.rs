//! What a further scan is expected to save, and how that expectation is corrected by what scans saved.

use super::situation::Situation;
use crate::sample::PageSamples;
use crate::scan::Outcome;

/// Of pages that changed between two visits, the part that may be stable by now, where no pages are sampled.
const STABLE_PART: f64 = 0.2;

/// Sampled pages from which on their outcome is learned from.
const FEWEST_TRIED: u32 = 8;

/// Of pages that are stable with recurring contents, the part that is expected to merge again.
const RECURRING_PART: f64 = 0.8;

/// The least probability that recurring contents merge.
const LEAST_RECURRING: f64 = 0.05;

/// The least probability that unknown contents merge.
const LEAST_UNKNOWN: f64 = 0.01;

/// The least probability for unknown contents after a burst: new memory has yet to show whether it becomes stable.
const AFTER_BURST: f64 = 0.05;

/// The probability for unknown contents before anything was learned.
const AT_FIRST: f64 = 0.05;

/// What a further scan may save.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected {
    /// Bytes of recurring contents.
    recurring_bytes: f64,
    /// Bytes of unknown contents if all of them merge that are equal to others.
    unknown_bytes: f64,
    /// Sampled pages that are to be merged by it.
    tried: u32,
    /// The part of the recurring bytes that counts, 0 to 1, since they may soon be written to again.
    lifetime_part: f64,
}

/// The probabilities that contents merge, exponential averages over past scans.
#[derive(Debug, Clone, Copy)]
pub struct MergeProbability {
    /// Contents that were merged before.
    recurring: f64,
    /// Contents of which it is not known whether they merge.
    unknown: f64,
}

impl Default for MergeProbability {
    fn default() -> Self {
        Self { recurring: 1.0, unknown: AT_FIRST }
    }
}

impl Expected {
    /// Bytes that one more pass would save without page samples: of the pages that were changing, those that are stable by
    /// now and equal another page.
    pub fn of_another_pass(now: &Situation) -> Self {
        let changing = now.ksmd.in_no_tree.unwrap_or(0).saturating_mul(now.ksmd.page_size) as f64;
        Self { unknown_bytes: changing * STABLE_PART * now.merged_part, ..Self::default() }
    }

    /// Bytes that visiting every page twice would save, by the page samples. 0 without page samples.
    ///
    /// `recurring_bytes = bytes * recurring_part * RECURRING_PART * p_recurring`,
    /// `unknown_bytes = bytes * unknown_part * merged_part`
    pub fn of_revisit(now: &Situation, probability: &MergeProbability) -> Self {
        let Some(samples) = now.page_samples else { return Self::default() };
        let pages = now.ksmd.tracked.saturating_add(now.ksmd.zero_pages);
        let bytes = pages.saturating_mul(now.ksmd.page_size) as f64;
        Self {
            recurring_bytes: bytes * samples.recurring_part() * RECURRING_PART * probability.recurring,
            tried: samples.matches_merged.saturating_add(samples.matches_unmerged),
            lifetime_part: samples.lifetime_part(),
            unknown_bytes: bytes * samples.unknown_part() * now.merged_part,
        }
    }

    /// Bytes that it is expected to save: `recurring_bytes + unknown_bytes * p_unknown`.
    pub fn bytes(&self, probability: &MergeProbability) -> f64 {
        self.recurring_bytes + self.unknown_bytes * probability.unknown
    }

    /// Bytes that it is worth: as `bytes`, with recurring bytes counted by their lifetime.
    pub fn worth(&self, probability: &MergeProbability) -> f64 {
        self.recurring_bytes * self.lifetime_part + self.unknown_bytes * probability.unknown
    }

    /// What each byte that it may save is worth, 0 to 1.
    pub fn worth_of_each(&self) -> f64 {
        let bytes = self.recurring_bytes + self.unknown_bytes;
        if bytes > 0.0 { (self.recurring_bytes * self.lifetime_part + self.unknown_bytes) / bytes } else { 1.0 }
    }

    /// Whether most of its worth are recurring contents.
    pub fn is_mostly_recurring(&self, probability: &MergeProbability) -> bool {
        self.recurring_bytes * self.lifetime_part >= self.unknown_bytes * probability.unknown
    }
}

impl MergeProbability {
    /// Raises the probability for unknown contents to its least value after a burst.
    pub fn note_burst(&mut self) {
        self.unknown = self.unknown.max(AFTER_BURST);
    }

    /// Compares the sampled pages that were to be merged with those that are: `p += (merged / tried - p) / 2`.
    pub fn learn_recurring(&mut self, expected: &Expected, samples: &PageSamples) {
        let tried = expected.tried.min(samples.recurring_tried);
        if tried >= FEWEST_TRIED {
            let merged = (f64::from(samples.recurring_merged) / f64::from(tried)).min(1.0);
            self.recurring = (self.recurring + 0.5 * (merged - self.recurring)).clamp(LEAST_RECURRING, 1.0);
        }
    }

    /// Compares what a scan saved with what was expected of it.
    ///
    /// With page samples `p += (kept - p) / 2`: one failure says little of stable pages. Without them `p += 0.8 * (kept - p)`:
    /// of pages that changed once most change again. `copied_before`: pages copied on write when ksmd last visited them all.
    pub fn learn_unknown(&mut self, expected: &Expected, outcome: &Outcome, copied_before: u64, now: &Situation) {
        let (kept, weight) = if let Some(samples) = now.page_samples {
            if samples.unknown_tried < FEWEST_TRIED {
                return;
            }
            let merged = f64::from(samples.unknown_merged) / f64::from(samples.unknown_tried);
            (merged / now.merged_part.max(0.01), 0.5)
        } else {
            if expected.unknown_bytes <= 0.0 {
                return;
            }
            // Copied pages count as saved until ksmd visits them. A frame that only one page is left in saves nothing.
            let copied = now.copied_pages.saturating_sub(copied_before).saturating_mul(now.ksmd.page_size) as f64;
            let saved = outcome.saved_bytes as f64 + copied * now.saving_part;
            ((saved - expected.recurring_bytes) / expected.unknown_bytes, 0.8)
        };
        self.unknown = (self.unknown + weight * (kept.clamp(0.0, 1.0) - self.unknown)).clamp(LEAST_UNKNOWN, 1.0);
    }
}

/// Whether nearly all recurring contents are where they were before, so that ksmd knows their checksums.
pub fn has_mostly_reverted(samples: &PageSamples) -> bool {
    u64::from(samples.reverted) * 10 >= u64::from(samples.recurring) * 9
}

/// Whether the page samples expect of a revisit that unmerged pages merge with each other.
pub fn expects_pairs(samples: &PageSamples) -> bool {
    samples.matches_unmerged * 10 > samples.recurring
}
