//! The lease that ksmd scans under: its own sleep is a day, and ksmith wakes it for each batch.
//!
//! A ksmith that is stopped, frozen or killed wakes nothing, so ksmd ends its batch and sleeps on. With a short
//! `sleep_millisecs` instead ksmd would go on at full speed for as long as that ksmith stands still.
//!
//! ksmd reads `sleep_millisecs` when its batch has ended, and sleeps until the value differs from what it read
//! (`ksm_scan_thread` in `mm/ksm.c`, since Linux 5.0). So each new value wakes a ksmd that sleeps, and none is heard
//! while it scans. A value that came back before ksmd ran would not be heard either: the values count up, and each
//! comes again only after all the others.
//!
//! A long batch is made in parts ([`BatchParts`]), so that ksmd never has long to go when nothing wakes it any more.

mod pacer;
mod terms;
mod waker;

use std::time::Duration;

pub use pacer::{PacerStep, SleepingKsmd, WakePacer};
pub use terms::LeaseTerms;
pub use waker::{KsmdWaker, ends_lease};

use crate::field::KernelVersion;

/// The least sleep under a lease: a little more than a day, so that no sleep that a person chose is taken for a lease.
const FIRST: u64 = 87_000_000;

/// Values that wake ksmd in turn. They are as many as ksmith writes in a minute at the most.
const VALUES: u64 = 100_000;

/// The most pages that ksmd visits without being woken again: some 20 to 40 ms.
const LONGEST_PART: u64 = 5_000;

/// The first kernel that is woken by a new `sleep_millisecs`.
pub const SINCE: KernelVersion = KernelVersion::new(5, 0);

/// Significant binary digits of a part's size; the rest is rounded up. The sizes that a burst takes are few, and the
/// undo store has them after a few bursts. A part gets larger by a sixteenth at most.
const DIGITS: u32 = 5;

/// An upper estimate of what a visit costs ksmd.
const NS_PER_PAGE: u64 = 10_000;

/// The share of a CPU from which on ksmd needs a lease.
const FREE_SHARE: f64 = 0.01;

/// The time by which a lease outlasts the next look that is due.
pub const GRACE: Duration = Duration::from_secs(1);

/// The value of `sleep_millisecs` that wakes a ksmd which sleeps for `value`. After any other value it begins a lease.
pub fn next_value(value: u64) -> u64 {
    if is_leased(value) { FIRST + (value - FIRST + 1) % VALUES } else { FIRST }
}

/// Returns true if a value of `sleep_millisecs` stands for a lease.
pub fn is_leased(sleep_ms: u64) -> bool {
    (FIRST..FIRST + VALUES).contains(&sleep_ms)
}

/// A batch in equal parts. ksmd is woken for each, and sleeps only after the last part and at the end of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchParts {
    /// Pages in a part.
    pub pages: u64,
    /// Parts in a batch.
    pub count: u64,
}

impl BatchParts {
    /// A batch that is made in one piece.
    pub const WHOLE: Self = Self { pages: 0, count: 1 };

    /// Divides a batch. Each part may get larger by a sixteenth, since only some sizes are used.
    pub fn from_batch(pages_to_scan: u64) -> Self {
        let count = pages_to_scan.div_ceil(LONGEST_PART).max(1);
        let pages = pages_to_scan.div_ceil(count);
        Self { pages: round_up(pages).min(LONGEST_PART), count }
    }
}

/// The next number with [`DIGITS`] binary digits that count.
fn round_up(pages: u64) -> u64 {
    let digits = u64::BITS - pages.leading_zeros();
    pages.next_multiple_of(1 << digits.saturating_sub(DIGITS))
}

/// The settings that decide how much CPU ksmd uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanRate {
    /// True if `run` is 1.
    pub runs: bool,
    /// True if the kernel's advisor sets the pages.
    pub is_advised: bool,
    /// Pages in a batch.
    pub pages_to_scan: u64,
    /// The sleep after a batch that was decided on, in milliseconds.
    pub sleep_ms: u64,
}

impl ScanRate {
    /// Returns true if ksmd could use more than 1 % of a CPU, or a batch is a long one.
    ///
    /// `share = batch / (batch + sleep)`, at 10 us a page. The kernel's advisor may set any batch.
    pub fn needs_lease(&self) -> bool {
        // An empty batch without a sleep takes a whole CPU.
        let batch_ns = self.pages_to_scan.max(1) as f64 * NS_PER_PAGE as f64;
        let sleep_ns = self.sleep_ms as f64 * 1e6;
        let is_much = self.pages_to_scan > LONGEST_PART || batch_ns > FREE_SHARE * (batch_ns + sleep_ns);
        self.runs && (self.is_advised || is_much)
    }

    /// The parts of a batch. What the kernel's advisor sets is not divided.
    pub fn parts(&self) -> BatchParts {
        if self.is_advised { BatchParts::WHOLE } else { BatchParts::from_batch(self.pages_to_scan) }
    }

    /// The sleep after a batch.
    pub fn sleep(&self) -> Duration {
        Duration::from_millis(self.sleep_ms)
    }

    /// `sleep_millisecs` and `pages_to_scan` as they were decided on, where the files have these values under a lease
    /// of this rate: the values themselves, unless the lease has written them.
    fn decided(&self, sleep_ms: Option<u64>, pages: Option<u64>) -> (Option<u64>, Option<u64>) {
        let is_part = |pages: u64| !self.is_advised && pages == self.parts().pages;
        let decided_pages = pages.map(|pages| if is_part(pages) { self.pages_to_scan } else { pages });
        let decided_sleep = sleep_ms.map(|ms| if is_leased(ms) { self.sleep_ms } else { ms });
        (decided_sleep, decided_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(pages_to_scan: u64, sleep_ms: u64) -> ScanRate {
        ScanRate { runs: true, is_advised: false, pages_to_scan, sleep_ms }
    }

    #[test]
    fn what_may_use_more_than_a_hundredth_of_a_cpu_needs_a_lease() {
        for (pages, sleep, needs) in
            [(100, 20, true), (20, 20, false), (1250, 0, true), (0, 0, true), (0, 20, false), (5001, 1 << 30, true)]
        {
            assert_eq!(rate(pages, sleep).needs_lease(), needs, "{pages} pages, {sleep} ms");
        }
        assert!(!ScanRate { runs: false, ..rate(1_000_000, 0) }.needs_lease());
        assert!(ScanRate { is_advised: true, ..rate(1, 1_000_000) }.needs_lease(), "the advisor may set any batch");
    }

    #[test]
    fn each_value_wakes_ksmd_and_comes_again_after_all_others() {
        assert!(!is_leased(20) && !is_leased(0) && !is_leased(u64::MAX));
        let (mut value, mut count) = (next_value(20), 0_u64);
        let first = value;
        loop {
            assert!(is_leased(value));
            let after = next_value(value);
            assert_ne!(after, value);
            value = after;
            count += 1;
            if value == first {
                break;
            }
        }
        assert_eq!(count, VALUES);
        assert!(FIRST + VALUES < i32::MAX as u64, "msecs_to_jiffies takes a larger one for negative");
    }

    #[test]
    fn a_batch_is_divided_into_parts_that_are_short_and_make_it_whole() {
        for pages in [0, 1, 100, 4900, LONGEST_PART, LONGEST_PART + 1, 625_000, u64::from(u32::MAX)] {
            let parts = BatchParts::from_batch(pages);
            let made = parts.pages * parts.count;
            let most = pages + pages / 16 + parts.count;
            assert!(parts.pages <= LONGEST_PART && (pages..=most).contains(&made), "{pages}: {parts:?}");
        }
        assert_eq!(BatchParts::from_batch(1250), BatchParts { pages: 1280, count: 1 });
        assert_eq!(ScanRate { is_advised: true, ..rate(625_000, 20) }.parts().count, 1);
    }

    #[test]
    fn parts_have_few_sizes() {
        let sizes: std::collections::BTreeSet<u64> =
            (1..=LONGEST_PART).map(|pages| BatchParts::from_batch(pages).pages).collect();
        assert!(sizes.len() < 150, "{}", sizes.len());
    }

    #[test]
    fn all_values_have_as_many_digits() {
        assert_eq!(FIRST.to_string().len(), (FIRST + VALUES - 1).to_string().len());
    }
}
