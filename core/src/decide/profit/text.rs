//! The sentences of `profit`.

use std::time::Duration;

use super::guests::GuestChanges;
use super::look::ScanForecast;
use super::scan_reason::ScanReason;
use crate::cpu_use::TICKS_PER_SECOND;
use crate::decide::ReasonSentences;
use crate::scan::{ScanOutcome, ScanSettings};
use crate::units::{Bytes, CountedNoun, NewSavings, TimeSpan};

/// Describes the reason for a scan.
pub fn why(reason: ScanReason, changes: GuestChanges, expected_bytes: f64) -> ReasonSentences {
    let plain = ReasonSentences::plain;
    match reason {
        ScanReason::Burst => growth(changes),
        ScanReason::Finish => plain("equal pages may have missed each other while huge pages were split"),
        ScanReason::Retry => plain("new guests merged less than they may have in common with others"),
        ScanReason::Revisit | ScanReason::Sustain => ReasonSentences::detailed(
            "memory that had changed is stable again",
            format!("expecting {} more", Bytes(expected_bytes as i128)),
        ),
        ScanReason::Tidy if changes.ended_pages == 0 => plain("KSM still tracks pages of guests that have ended"),
        ScanReason::Tidy => ReasonSentences::detailed(
            "guests have ended, and KSM still tracks their pages",
            CountedNoun { count: changes.ended_pages, noun: "merged page" }.to_string(),
        ),
        ScanReason::Probe if changes.grown_bytes > 0 => growth(changes),
        ScanReason::Probe => ReasonSentences::detailed(
            "guests were active: looking for memory that has become equal",
            format!("{} of CPU", TimeSpan(cpu_time(changes))),
        ),
    }
}

/// Describes the amount of new memory.
pub fn growth(changes: GuestChanges) -> ReasonSentences {
    let grown = Bytes::from(changes.grown_bytes);
    ReasonSentences::plain(match changes.new_guests {
        0 => format!("{grown} of new memory"),
        count => format!("{grown} of new memory, {}", CountedNoun::new(count, "new process")),
    })
}

/// Describes a scan in progress.
pub fn scanning(why: ReasonSentences, settings: &ScanSettings) -> ReasonSentences {
    let pages = if settings.visits_all { "every page" } else { "few old pages" };
    why.with_detail(format!("{pages}, up to {:.0} % of a CPU", settings.share * 100.0))
}

/// Describes the savings and the cost of a scan that has ended, beside those that were foretold.
pub fn outcome(
    reason: ScanReason,
    foretold: Option<ScanForecast>,
    outcome: &ScanOutcome,
    price: f64,
) -> ReasonSentences {
    let per_second = outcome.yield_per_cpu_second();
    let saved = NewSavings(outcome.saved_bytes);
    let text = match outcome.saved_bytes {
        ..0 => "memory changed faster than the last scan merged it".to_owned(),
        0 => "the last scan found nothing new".to_owned(),
        _ if per_second < price => "the last scan found little new".to_owned(),
        bytes => format!("the last scan saved {}", Bytes::from(bytes)),
    };
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let rate = match outcome.saved_bytes {
        ..0 => String::new(),
        _ => format!("{:.1} MiB/CPU-s, ", mib(per_second)),
    };
    let foretold = foretold.map(|foretold| {
        format!(", forecast {} saved in {:.2} CPU-s", Bytes::from(foretold.saved_bytes), foretold.cpu_seconds)
    });
    let detail = format!(
        "{}: {saved} in {:.2} CPU-s ({rate}price {:.1}){}",
        reason.state(),
        outcome.cpu_seconds,
        mib(price),
        foretold.unwrap_or_default(),
    );
    ReasonSentences::detailed(text, detail)
}

/// Describes the scan that comes next, and the time until then.
pub fn describe_next(reason: ScanReason, left: Duration) -> ReasonSentences {
    let scan = match reason {
        ScanReason::Finish | ScanReason::Retry | ScanReason::Sustain => "one more pass",
        ScanReason::Burst | ScanReason::Revisit | ScanReason::Probe | ScanReason::Tidy => "next look",
    };
    ReasonSentences::plain(format!("{scan} in {}", TimeSpan(left)))
}

/// Describes why a probe that is due is not made. Page samples tell whether memory has changed; without them the
/// guests' activity does.
pub fn describe_idleness(changes: GuestChanges, has_page_samples: bool) -> ReasonSentences {
    if has_page_samples {
        return ReasonSentences::plain("next look when changed memory is stable");
    }
    ReasonSentences::detailed(
        "next look when the guests are active",
        format!("{} of CPU since", TimeSpan(cpu_time(changes))),
    )
}

fn cpu_time(changes: GuestChanges) -> Duration {
    Duration::from_secs_f64(changes.cpu_ticks as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    fn judged(saved_bytes: i64, foretold: Option<ScanForecast>) -> ReasonSentences {
        outcome(ScanReason::Burst, foretold, &ScanOutcome { saved_bytes, cpu_seconds: 2.0 }, 8.0 * MIB as f64)
    }

    #[test]
    fn an_ended_scan_is_told_in_a_line_and_its_arithmetic_apart() {
        let told = |saved_bytes, text: &str, detail: &str| {
            assert_eq!(judged(saved_bytes, None), ReasonSentences::detailed(text, detail));
        };
        told(
            22 * MIB,
            "the last scan saved 22.0 MiB",
            "burst: 22.0 MiB saved in 2.00 CPU-s (11.0 MiB/CPU-s, price 8.0)",
        );
        told(
            2 * MIB,
            "the last scan found little new",
            "burst: 2.00 MiB saved in 2.00 CPU-s (1.0 MiB/CPU-s, price 8.0)",
        );
        told(0, "the last scan found nothing new", "burst: 0 B saved in 2.00 CPU-s (0.0 MiB/CPU-s, price 8.0)");
        told(
            -48 * MIB,
            "memory changed faster than the last scan merged it",
            "burst: 48.0 MiB less saved in 2.00 CPU-s (price 8.0)",
        );
        let foretold = ScanForecast { saved_bytes: 12 << 20, cpu_seconds: 0.4 };
        let detail = judged(22 * MIB, Some(foretold)).detail.unwrap();
        assert!(detail.ends_with("price 8.0), forecast 12.0 MiB saved in 0.40 CPU-s"), "{detail}");
    }

    #[test]
    fn new_memory_is_told_with_the_number_of_its_processes() {
        let told =
            |new_guests| growth(GuestChanges { new_guests, grown_bytes: 12 << 20, ..GuestChanges::default() }).text;
        assert_eq!(told(0), "12.0 MiB of new memory");
        assert_eq!(told(1), "12.0 MiB of new memory, 1 new process");
        assert_eq!(told(2), "12.0 MiB of new memory, 2 new processes");
    }

    #[test]
    fn each_scan_has_a_line_without_figures_and_figures_apart() {
        let changes = GuestChanges { ended_pages: 1, cpu_ticks: 300, ..GuestChanges::default() };
        let told = |reason| why(reason, changes, 12.0 * MIB as f64);
        assert_eq!(
            told(ScanReason::Tidy),
            ReasonSentences::detailed("guests have ended, and KSM still tracks their pages", "1 merged page")
        );
        assert_eq!(
            told(ScanReason::Revisit),
            ReasonSentences::detailed("memory that had changed is stable again", "expecting 12.0 MiB more")
        );
        assert_eq!(
            told(ScanReason::Probe),
            ReasonSentences::detailed("guests were active: looking for memory that has become equal", "3 s of CPU")
        );
    }

    #[test]
    fn what_comes_next_is_told_with_its_time() {
        let seconds = Duration::from_secs(35);
        assert_eq!(describe_next(ScanReason::Probe, seconds).text, "next look in 35 s");
        assert_eq!(describe_next(ScanReason::Retry, seconds).text, "one more pass in 35 s");
        let parked = judged(2 * MIB, None).followed_by(describe_next(ScanReason::Probe, seconds));
        assert_eq!(parked.text, "the last scan found little new; next look in 35 s");
    }

    #[test]
    fn a_probe_that_waits_names_what_it_waits_for() {
        let changes = GuestChanges { cpu_ticks: 300, ..GuestChanges::default() };
        let active = ReasonSentences::detailed("next look when the guests are active", "3 s of CPU since");
        assert_eq!(describe_idleness(changes, false), active);
        let stable = ReasonSentences::plain("next look when changed memory is stable");
        assert_eq!(describe_idleness(changes, true), stable);
    }
}
