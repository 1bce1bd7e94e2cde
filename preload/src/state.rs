//! What the library does in this process: a few words that any thread reads at any time.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What is done about the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Nothing, or not yet anything: only calls of the API count.
    Idle = 0,
    /// The kernel offers all memory by itself; nothing is left to do.
    Prctl = 1,
    /// Ranges are marked as they appear.
    Madvise = 2,
    /// The daemon says which ranges.
    Guided = 3,
    /// The program has shut itself in: not one system call more.
    Quiet = 4,
}

static MODE: AtomicU8 = AtomicU8::new(0);
static THRESHOLD: AtomicUsize = AtomicUsize::new(usize::MAX);
static LARGEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static MERGES_HUGE: AtomicBool = AtomicBool::new(false);
static INTERVAL: AtomicU64 = AtomicU64::new(0);

/// The mode.
pub fn mode() -> Mode {
    match MODE.load(Relaxed) {
        1 => Mode::Prctl,
        2 => Mode::Madvise,
        3 => Mode::Guided,
        4 => Mode::Quiet,
        _ => Mode::Idle,
    }
}

/// Changes the mode.
pub fn set_mode(mode: Mode) {
    MODE.store(mode as u8, Relaxed);
}

/// Bytes from which something is marked.
pub fn threshold() -> usize {
    THRESHOLD.load(Relaxed)
}

/// Bytes up to which something is marked by itself: a mapping larger than the machine's memory is mostly holes, and
/// kernels before 6.18 walk those page by page.
pub fn largest() -> usize {
    LARGEST.load(Relaxed)
}

/// Whether memory that the program wants in huge pages is offered too.
pub fn merges_huge() -> bool {
    MERGES_HUGE.load(Relaxed)
}

/// Seconds between two looks of the helper, 0 for none.
pub fn interval() -> u64 {
    INTERVAL.load(Relaxed)
}

/// Sets what the environment asked for.
pub fn set(threshold: usize, largest: usize, merges_huge: bool, interval: u64) {
    THRESHOLD.store(threshold, Relaxed);
    LARGEST.store(largest, Relaxed);
    MERGES_HUGE.store(merges_huge, Relaxed);
    INTERVAL.store(interval, Relaxed);
}
