//! The verdict: whether merging pays, from its gain and ksmd's work, in one sentence.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::interval::ConfidenceInterval;
use crate::kernel::RMAP_ITEM_BYTES;
use crate::units::{Bytes, TimeSpan};

/// The costs of a visit on one core of an AMD EPYC virtual machine with Linux 6.18: the first to a page, which computes its
/// checksum; one that merges it; and one to a page without an equal, which searches both trees.
const FIRST_VISIT_NS: f64 = 1300.0;
const MERGE_NS: f64 = 7000.0;
const UNSHARED_NS: f64 = 3800.0;

/// The number of clean passes a day once all is merged.
const PASSES_PER_DAY: f64 = 96.0;

/// The facts about the memory in question, in pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VerdictInput {
    /// Pages that ksmd would visit.
    pub pages: u64,
    /// Of these, pages that change between visits.
    pub changing: u64,
    /// Pages that merging saves.
    pub saved: ConfidenceInterval,
    /// Pages that are merged by now.
    pub merged: u64,
    /// Zero pages that leave ksmd's lists, with `use_zero_pages`.
    pub leaving: u64,
    /// Bytes in a page.
    pub page_size: u64,
    /// True if any of it is mergeable now.
    pub is_mergeable: bool,
}

/// The advice of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeAdvice {
    /// There is no memory that KSM could scan.
    NothingThere,
    /// Merging pays even at the lower end of the interval.
    Yes,
    /// Merging gains little.
    Marginal,
    /// Merging gains next to nothing, or costs memory.
    No,
    /// The interval is too wide for an advice.
    Unknown,
}

/// The gain, the cost and the advice.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeVerdict {
    /// The advice to the operator.
    pub advice: MergeAdvice,
    /// Memory that merging saves, in bytes.
    pub saved_bytes: [u64; 3],
    /// Memory looked at, in bytes.
    pub present_bytes: u64,
    /// KSM's own memory for it, in bytes.
    pub metadata_bytes: u64,
    /// Saved less metadata, in bytes.
    pub net_profit_bytes: i64,
    /// CPU time of ksmd until all that is equal is merged.
    pub ksmd_cpu_seconds: f64,
    /// CPU time of ksmd per day from then on.
    pub keep_cpu_seconds_per_day: f64,
    /// True if any of it is mergeable now.
    pub is_mergeable: bool,
}

/// Net profit from which the advice is yes, as a part of the memory looked at.
const WORTH: f64 = 0.05;

/// Net profit below which the advice is no.
const WORTHLESS: f64 = 0.01;

impl MergeVerdict {
    /// Weighs gain against cost. A merge needs two visits with the same checksum: the first computes the checksum of
    /// each page, the second merges pages with an equal and searches the trees for the others.
    pub fn weigh(costs: &VerdictInput) -> Self {
        let page = costs.page_size as f64;
        let bytes = |pages: f64| (pages * page).round().max(0.0) as u64;
        let saved_bytes = [costs.saved.low, costs.saved.expected, costs.saved.high].map(bytes);
        let tracked = costs.pages.saturating_sub(costs.leaving);
        let metadata_bytes = tracked.saturating_mul(RMAP_ITEM_BYTES);
        let pages = costs.pages as f64;
        let fresh = (costs.saved.expected - costs.merged as f64).max(0.0);
        let unshared = (pages - costs.changing as f64 - costs.saved.expected).max(0.0);
        let changing = costs.changing as f64 * FIRST_VISIT_NS;
        let first = (pages - costs.merged as f64).max(0.0) * FIRST_VISIT_NS;
        let reach_ns = first + fresh * MERGE_NS + unshared * UNSHARED_NS + changing;
        let pass_ns = unshared * UNSHARED_NS + changing;
        let mut verdict = Self {
            advice: MergeAdvice::NothingThere,
            saved_bytes,
            present_bytes: bytes(pages),
            metadata_bytes,
            net_profit_bytes: net(saved_bytes[1], metadata_bytes),
            ksmd_cpu_seconds: reach_ns / 1e9,
            keep_cpu_seconds_per_day: pass_ns * PASSES_PER_DAY / 1e9,
            is_mergeable: costs.is_mergeable,
        };
        let part = |saved: u64| net(saved, metadata_bytes) as f64 / (pages * page);
        let (low, high) = (part(saved_bytes[0]), part(saved_bytes[2]));
        verdict.advice = match () {
            () if costs.pages == 0 => MergeAdvice::NothingThere,
            () if low >= WORTH => MergeAdvice::Yes,
            () if high < WORTHLESS => MergeAdvice::No,
            () if low >= WORTHLESS && high < 2.0 * WORTH => MergeAdvice::Marginal,
            () if high - low > WORTH => MergeAdvice::Unknown,
            () if part(saved_bytes[1]) < WORTHLESS => MergeAdvice::No,
            () => MergeAdvice::Marginal,
        };
        verdict
    }
}

fn net(saved: u64, metadata: u64) -> i64 {
    i64::try_from(i128::from(saved) - i128::from(metadata)).unwrap_or(i64::MAX)
}

/// The verdict in one sentence.
impl fmt::Display for MergeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, expected, high] = self.saved_bytes.map(Bytes::from);
        let opted_in = if self.is_mergeable { "" } else { ", if it opted in" };
        let share = |bytes: u64| bytes as f64 * 100.0 / self.present_bytes.max(1) as f64;
        let (net, metadata) = (Bytes::from(self.net_profit_bytes), Bytes::from(self.metadata_bytes));
        let reach = seconds(self.ksmd_cpu_seconds);
        let keep = seconds(self.keep_cpu_seconds_per_day);
        match self.advice {
            MergeAdvice::NothingThere => f.write_str("There is no memory here that KSM could merge."),
            MergeAdvice::Unknown => write!(
                f,
                "Can't tell: merging would save between {low} and {high} ({:.0} to {:.0} %){opted_in}; ask again with \
                 --sketch, which reads everything once.",
                share(self.saved_bytes[0]),
                share(self.saved_bytes[2]),
            ),
            MergeAdvice::No => write!(
                f,
                "Not worth it: merging would save {expected} ({:.1} %) and cost {metadata} of KSM's own memory{opted_in}.",
                share(self.saved_bytes[1]),
            ),
            MergeAdvice::Yes | MergeAdvice::Marginal => {
                let start = if self.advice == MergeAdvice::Yes { "Worth it" } else { "Hardly worth it" };
                let [least, part, most] = self.saved_bytes.map(share);
                if most - least > 100.0 * WORTH {
                    write!(
                        f,
                        "{start}: merging would save at least {low} ({least:.0} %) and at most {high} ({most:.0} %)"
                    )?;
                } else {
                    write!(f, "{start}: merging would save {expected} ({part:.1} %")?;
                    // Ends with the same text are as good as exact.
                    if low.to_string() != high.to_string() {
                        write!(f, ", between {low} and {high}")?;
                    }
                    write!(f, "), {net} net of KSM's own memory")?;
                }
                write!(f, "{opted_in}, for {reach} of ksmd's CPU time once and {keep} per day.")
            }
        }
    }
}

fn seconds(seconds: f64) -> TimeSpan {
    TimeSpan(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(saved: [f64; 3]) -> VerdictInput {
        VerdictInput {
            pages: 1 << 20,
            changing: 0,
            saved: ConfidenceInterval { low: saved[0], expected: saved[1], high: saved[2] },
            merged: 0,
            leaving: 0,
            page_size: 4096,
            is_mergeable: true,
        }
    }

    fn verdict(saved: [f64; 3]) -> MergeVerdict {
        MergeVerdict::weigh(&costs(saved))
    }

    /// The measurement behind the model: 4 GiB, half of it equal, took 1.4 s in pass 1 and about 6 s in pass 2.
    #[test]
    fn four_gib_half_equal_take_seven_seconds() {
        let verdict = verdict([524_288.0; 3]);
        assert!((verdict.ksmd_cpu_seconds - 7.0).abs() < 0.5, "{verdict:?}");
        assert_eq!(verdict.metadata_bytes, 64 << 20);
        assert_eq!(verdict.net_profit_bytes, (2048 - 64) << 20);
    }

    #[test]
    fn the_advice_follows_the_interval_and_not_the_middle() {
        let pages = f64::from(1 << 20);
        let advice = |low, mid, high| verdict([low * pages, mid * pages, high * pages]).advice;
        assert_eq!(advice(0.3, 0.5, 0.9), MergeAdvice::Yes);
        assert_eq!(advice(0.0, 0.4, 0.8), MergeAdvice::Unknown);
        assert_eq!(advice(0.0, 0.0, 0.001), MergeAdvice::No);
        assert_eq!(advice(0.03, 0.035, 0.04), MergeAdvice::Marginal);
        assert_eq!(advice(0.0, 0.01, 0.04), MergeAdvice::No);
        assert_eq!(
            MergeVerdict::weigh(&VerdictInput { pages: 0, ..costs([0.0; 3]) }).advice,
            MergeAdvice::NothingThere
        );
    }

    #[test]
    fn each_advice_has_its_sentence() {
        let pages = f64::from(1 << 20);
        assert_eq!(
            verdict([0.5 * pages; 3]).to_string(),
            "Worth it: merging would save 2.00 GiB (50.0 %), 1.94 GiB net of KSM's own memory, for 7 s of ksmd's CPU \
             time once and 3 min 11 s per day."
        );
        assert_eq!(
            verdict([0.0, 0.4 * pages, 0.8 * pages]).to_string(),
            "Can't tell: merging would save between 0 B and 3.20 GiB (0 to 80 %); ask again with --sketch, which \
             reads everything once."
        );
        assert_eq!(
            verdict([0.3 * pages, 0.5 * pages, 0.7 * pages]).to_string(),
            "Worth it: merging would save at least 1.20 GiB (30 %) and at most 2.80 GiB (70 %), for 7 s of ksmd's CPU \
             time once and 3 min 11 s per day."
        );
        let none = MergeVerdict::weigh(&VerdictInput { is_mergeable: false, ..costs([0.0; 3]) });
        assert_eq!(
            none.to_string(),
            "Not worth it: merging would save 0 B (0.0 %) and cost 64.0 MiB of KSM's own memory, if it opted in."
        );
    }

    #[test]
    fn merged_pages_and_zero_pages_cost_less() {
        let all = costs([524_288.0; 3]);
        let half = MergeVerdict::weigh(&VerdictInput { merged: 524_288, ..all });
        assert!(half.ksmd_cpu_seconds < 3.0);
        let leaving = MergeVerdict::weigh(&VerdictInput { leaving: 1 << 19, ..all });
        assert_eq!(leaving.metadata_bytes, 32 << 20);
    }
}
