//! The state of the library in this process: a few words that any thread may read at any time.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::settings::PreloadSettings;

/// The mode of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PreloadMode {
    /// No action, or none yet: only calls of the API count.
    Idle = 0,
    /// The kernel offers all memory because of the prctl.
    Prctl = 1,
    /// Ranges are marked as they appear.
    Madvise = 2,
    /// The daemon names the ranges.
    Guided = 3,
    /// The program has sandboxed itself: the library makes no more system calls.
    Quiet = 4,
}

static MODE: AtomicU8 = AtomicU8::new(0);
static THRESHOLD: AtomicUsize = AtomicUsize::new(usize::MAX);
static LARGEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static MERGES_HUGE: AtomicBool = AtomicBool::new(false);
static HINTS_HUGE: AtomicBool = AtomicBool::new(false);
static INTERVAL: AtomicU64 = AtomicU64::new(0);

/// Not 0 if the library's thread is requested to end. The thread sleeps on it.
pub static ENDS_HELPER: AtomicU32 = AtomicU32::new(0);

/// Returns the mode.
pub fn mode() -> PreloadMode {
    match MODE.load(Relaxed) {
        1 => PreloadMode::Prctl,
        2 => PreloadMode::Madvise,
        3 => PreloadMode::Guided,
        4 => PreloadMode::Quiet,
        _ => PreloadMode::Idle,
    }
}

/// Changes the mode.
pub fn set_mode(mode: PreloadMode) {
    MODE.store(mode as u8, Relaxed);
}

/// Returns the minimum size of a marked range, in bytes.
pub fn threshold() -> usize {
    THRESHOLD.load(Relaxed)
}

/// Returns the maximum size of a marked range: the host's memory. A larger mapping is mostly holes, which kernels
/// before 6.18 walk page by page.
pub fn largest() -> usize {
    LARGEST.load(Relaxed)
}

/// Returns true if memory for which the program wants huge pages is also offered.
pub fn merges_huge() -> bool {
    MERGES_HUGE.load(Relaxed)
}

/// Returns true if huge pages are requested on the program's behalf.
pub fn hints_huge() -> bool {
    HINTS_HUGE.load(Relaxed)
}

/// Returns the seconds between two rounds of the library's thread; 0 for none.
pub fn interval() -> u64 {
    INTERVAL.load(Relaxed)
}

/// Returns true if the library's thread is requested to end.
pub fn ends_helper() -> bool {
    ENDS_HELPER.load(Relaxed) != 0
}

/// Sets the values from the environment; `largest` is the host's memory in bytes.
pub fn set(settings: &PreloadSettings, largest: usize, interval: u64) {
    THRESHOLD.store(settings.threshold, Relaxed);
    LARGEST.store(largest, Relaxed);
    MERGES_HUGE.store(settings.merges_huge, Relaxed);
    HINTS_HUGE.store(settings.hints_huge, Relaxed);
    INTERVAL.store(interval, Relaxed);
}
