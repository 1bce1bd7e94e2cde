//! A look at memory before ksmd visits it (`look_first`).
//!
//! Pages of all mergeable memory are drawn at random and read ([`crate::merge_forecast`]). Where merging would save less
//! than the price of the visits, no scan begins.

use super::guests::GuestChanges;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use crate::decide::ReasonSentences;
use crate::sample::ForecastState;
use crate::units::Bytes;

/// CPU-seconds of ksmd for two visits of a page that does not merge: a checksum, and a search of both trees
/// (`SimCosts` in `core/src/sim/config.rs`).
const TWO_VISITS: f64 = 5e-6;

/// The expected result of a scan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanForecast {
    /// Bytes that it would newly save.
    pub saved_bytes: u64,
    /// CPU-seconds of ksmd.
    pub cpu_seconds: f64,
}

/// The result of asking whether a scan may begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LookVerdict {
    /// Pages are to be read first.
    Wait,
    /// The scan may begin. `None`: no page could be read.
    Begin(Option<ScanForecast>),
    /// The scan would save less than its price.
    Leave(ScanForecast),
}

/// The looks at memory, one before each scan for new memory and before each probe.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryLook {
    /// True after the decision to read pages, until the next.
    is_wanted: bool,
    /// True from that decision until its result was judged.
    is_under_way: bool,
}

impl MemoryLook {
    /// Returns true if pages are to be read for the next sample.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Records a sample at which no scan is to begin. A look whose pages are still being read goes on.
    pub fn follow(&mut self, forecast: ForecastState) {
        self.is_wanted = false;
        self.is_under_way &= forecast == ForecastState::Pending;
    }

    /// Judges a scan that is to begin for that reason. At first pages are to be read; the next verdict is of these.
    pub fn judge(
        &mut self,
        reason: ScanReason,
        forecast: ForecastState,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> LookVerdict {
        self.is_wanted = !self.is_under_way;
        self.is_under_way = self.is_wanted;
        match forecast {
            _ if self.is_wanted => LookVerdict::Wait,
            ForecastState::Known(forecast) => {
                let scan = ScanForecast {
                    saved_bytes: forecast.saved_bytes.saturating_sub(now.ksmd.saved_nonzero_bytes()),
                    cpu_seconds: cpu_seconds(forecast.bytes, reason, changes, now),
                };
                if (scan.saved_bytes as f64) < scan.cpu_seconds * now.price {
                    LookVerdict::Leave(scan)
                } else {
                    LookVerdict::Begin(Some(scan))
                }
            }
            // Memory is too short to wait, or can't be read.
            ForecastState::Pending | ForecastState::Unavailable => LookVerdict::Begin(None),
        }
    }
}

/// Returns ksmd's CPU-seconds for two visits of all pages that are not merged, of so many bytes that are mergeable. A burst
/// visits those that are old once.
pub fn cpu_seconds(mergeable_bytes: u64, reason: ScanReason, changes: GuestChanges, now: &HostSituation) -> f64 {
    let unmerged = mergeable_bytes.min(now.held_bytes).saturating_sub(now.ksmd.saved_nonzero_bytes());
    let new = changes.grown_bytes.min(unmerged);
    let old_visits = if reason == ScanReason::Burst { 0.5 } else { 1.0 };
    let bytes = new as f64 + (unmerged - new) as f64 * old_visits;
    bytes / now.ksmd.page_size.max(1) as f64 * TWO_VISITS
}

impl ScanForecast {
    /// Describes a scan that is not begun.
    pub fn in_words(self, price: f64) -> ReasonSentences {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        ReasonSentences::detailed(
            "a sample of memory shows that a scan would not pay",
            format!(
                "a scan would save about {} in {:.2} CPU-s ({:.1} MiB/CPU-s, price {:.1})",
                Bytes::from(self.saved_bytes),
                self.cpu_seconds,
                mib(self.saved_bytes as f64 / self.cpu_seconds.max(f64::MIN_POSITIVE)),
                mib(price),
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::situation::ProcessHolding;
    use super::*;
    use crate::sample::MergeForecast;

    const MIB: u64 = 1 << 20;

    /// A host that holds 1,024 MiB, at a price of 100 MiB.
    fn host() -> HostSituation {
        let holding = ProcessHolding::for_test(1024 * MIB);
        HostSituation::for_test(Duration::from_secs(9), 1.0, (100 * MIB) as f64, vec![holding])
    }

    fn known(saved_mib: u64) -> ForecastState {
        ForecastState::Known(MergeForecast {
            bytes: 1024 * MIB,
            huge_bytes: 0,
            saved_bytes: saved_mib * MIB,
            saved_in_huge_bytes: 0,
            split_bytes: 0,
        })
    }

    fn verdict(reason: ScanReason, grown_mib: u64, forecast: ForecastState) -> LookVerdict {
        let changes = GuestChanges { grown_bytes: grown_mib * MIB, ..GuestChanges::default() };
        let mut look = MemoryLook::default();
        assert_eq!(look.judge(reason, known(9999), changes, &host()), LookVerdict::Wait, "that one is old");
        assert!(look.is_wanted());
        look.follow(ForecastState::Pending);
        assert!(!look.is_wanted());
        let verdict = look.judge(reason, forecast, changes, &host());
        assert!(!look.is_wanted() && !look.is_under_way);
        verdict
    }

    #[test]
    fn a_scan_begins_where_it_is_forecast_to_pay() {
        let seconds = 262_144.0 * TWO_VISITS;
        assert!((1.2..1.4).contains(&seconds));
        let leaves = |reason, grown, saved| matches!(verdict(reason, grown, known(saved)), LookVerdict::Leave(_));
        assert!(leaves(ScanReason::Burst, 1024, 120) && !leaves(ScanReason::Burst, 1024, 140));
        // Old memory is visited once.
        assert!(leaves(ScanReason::Burst, 512, 90) && !leaves(ScanReason::Burst, 512, 110));
        assert!(leaves(ScanReason::Probe, 0, 120) && !leaves(ScanReason::Probe, 0, 140));
    }

    #[test]
    fn a_scan_that_would_not_pay_is_told_with_its_price_apart() {
        let scan = ScanForecast { saved_bytes: 2 * MIB, cpu_seconds: 0.8 };
        let words = ReasonSentences::detailed(
            "a sample of memory shows that a scan would not pay",
            "a scan would save about 2.00 MiB in 0.80 CPU-s (2.5 MiB/CPU-s, price 8.0)",
        );
        assert_eq!(scan.in_words((8 * MIB) as f64), words);
    }

    #[test]
    fn zero_pages_of_ksm_are_not_taken_from_what_is_foretold() {
        let mut now = host();
        (now.ksmd.saved_bytes, now.ksmd.zero_pages) = (300 * MIB, 200 * MIB / 4096);
        let mut look = MemoryLook { is_wanted: false, is_under_way: true };
        let verdict = look.judge(ScanReason::Probe, known(500), GuestChanges::default(), &now);
        let LookVerdict::Begin(Some(forecast)) = verdict else { panic!("{verdict:?}") };
        assert_eq!(
            forecast.saved_bytes,
            400 * MIB,
            "the forecast has the 100 MiB that are merged, and no zero page"
        );
    }

    #[test]
    fn where_nothing_can_be_read_the_scan_begins() {
        let begins = LookVerdict::Begin(None);
        assert_eq!(verdict(ScanReason::Burst, 1024, ForecastState::Unavailable), begins);
        assert_eq!(verdict(ScanReason::Burst, 1024, ForecastState::Pending), begins, "memory is short");
    }

    #[test]
    fn a_look_for_a_scan_that_was_not_to_begin_any_more_is_made_anew() {
        let mut look = MemoryLook::default();
        let judge =
            |look: &mut MemoryLook| look.judge(ScanReason::Burst, known(1), GuestChanges::default(), &host());
        assert_eq!(judge(&mut look), LookVerdict::Wait);
        look.follow(known(1));
        assert_eq!(judge(&mut look), LookVerdict::Wait);
        assert!(matches!(judge(&mut look), LookVerdict::Leave(_)));
    }
}
