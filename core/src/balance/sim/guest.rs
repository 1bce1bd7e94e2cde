//! One simulated guest.

use std::time::Duration;

use super::behaviour::DemandPhase;
use crate::balance::{GuestClass, GuestView, ReportedFigures};

const PAGE: u64 = 4096;

/// The seconds that a task waits for a page from disk.
const WAIT: f64 = 200e-6;

/// The memory of a simulated guest by its use, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestMemoryUse {
    /// The memory of its programs.
    pub anonymous: u64,
    /// Page cache of files that are read again and again.
    pub hot: u64,
    /// Page cache of files that were read once.
    pub cold: u64,
    /// All that the host spends on it, its kernel and unused memory that it once touched included.
    pub touched: u64,
    /// The memory that its hypervisor lets it have.
    pub given: u64,
}

/// A guest with its kernel, programs and page cache.
#[derive(Debug, Clone)]
pub struct SimGuest {
    pub(super) key: String,
    class: GuestClass,
    whole: u64,
    pub(super) given: u64,
    /// The memory of the kernel itself, which can't be taken.
    kernel: u64,
    pub(super) anonymous: u64,
    /// Page cache of files that are read again and again (`hot`) and once (`cold`).
    pub(super) hot: u64,
    cold: u64,
    /// The memory that the host spends: the most that was touched since the last take.
    pub(super) touched: u64,
    phases: Vec<DemandPhase>,
    faults_per_second: f64,
    psi_percent: f64,
    pub(super) merged: u64,
    /// The programs that its own kernel killed for lack of memory.
    pub(super) oom_kills: u64,
    /// The pages read back from disk in all.
    pub(super) refaults: u64,
}

impl SimGuest {
    /// Creates a guest of this size, a sixteenth of which is its kernel. It starts with its first phase; phases are in
    /// the order of their starts.
    pub fn new(key: &str, class: GuestClass, whole_bytes: u64, phases: Vec<DemandPhase>) -> Self {
        let kernel = whole_bytes / 16;
        Self {
            key: key.to_owned(),
            class,
            whole: whole_bytes,
            given: whole_bytes,
            kernel,
            anonymous: 0,
            hot: 0,
            cold: 0,
            touched: 0,
            phases,
            faults_per_second: 0.0,
            psi_percent: 0.0,
            merged: 0,
            oom_kills: 0,
            refaults: 0,
        }
    }

    /// Sets the memory that it can't do without whatever its programs do: a sixteenth by default.
    #[must_use]
    pub fn with_kernel(self, bytes: u64) -> Self {
        Self { kernel: bytes, ..self }
    }

    /// Sets the memory that is merged with other guests.
    #[must_use]
    pub fn merged(self, bytes: u64) -> Self {
        Self { merged: bytes, ..self }
    }

    /// Returns its memory by use.
    pub fn uses(&self) -> GuestMemoryUse {
        GuestMemoryUse {
            anonymous: self.anonymous,
            hot: self.hot,
            cold: self.cold,
            touched: self.touched,
            given: self.given,
        }
    }

    /// The pages that it read back from disk so far.
    pub fn refaults(&self) -> u64 {
        self.refaults
    }

    /// The programs that its own kernel killed so far for lack of memory.
    pub fn oom_kills(&self) -> u64 {
        self.oom_kills
    }

    /// The time that its tasks waited for pages from disk so far.
    pub fn waited(&self) -> Duration {
        Duration::from_secs_f64(self.refaults as f64 * WAIT)
    }

    /// Updates the memory that is merged with other guests.
    pub fn note_merged(&mut self, bytes: u64) {
        self.merged = bytes;
    }

    fn phase(&self, now: Duration) -> Option<DemandPhase> {
        let begun = self.phases.partition_point(|phase| phase.from <= now);
        self.phases.get(begun.checked_sub(1)?).copied()
    }

    /// The memory that it can't do without.
    fn pinned(&self) -> u64 {
        self.kernel + self.anonymous
    }

    pub(super) fn free(&self) -> u64 {
        self.given.saturating_sub(self.pinned() + self.hot + self.cold)
    }

    /// Lets it run for `span`.
    pub fn live(&mut self, now: Duration, span: Duration) {
        let Some(phase) = self.phase(now) else { return };
        let seconds = span.as_secs_f64();
        let over = |rate: u64| (rate as f64 * seconds) as u64;
        if self.anonymous > phase.anonymous_bytes {
            self.anonymous = phase.anonymous_bytes;
        } else {
            self.grow((phase.anonymous_bytes - self.anonymous).min(over(phase.growth_bytes_per_second)));
        }
        self.cold += self.hot.saturating_sub(phase.hot_bytes);
        self.hot = self.hot.min(phase.hot_bytes);
        let missing = phase.hot_bytes - self.hot;
        // Of its reads, the missing part comes from disk; with a cache that is too small that repeats each time.
        let part = if phase.hot_bytes == 0 { 0.0 } else { missing as f64 / phase.hot_bytes as f64 };
        let missed = (over(phase.rereads_bytes_per_second) as f64 * part) as u64;
        self.cache(missed.min(missing), true);
        self.cache(over(phase.reads_bytes_per_second), false);
        let pages = missed / PAGE;
        self.refaults += pages;
        self.faults_per_second = pages as f64 / seconds;
        self.psi_percent = (self.faults_per_second * WAIT * 100.0).min(100.0);
        self.touched = self.touched.max(self.pinned() + self.hot + self.cold).min(self.given.max(self.pinned()));
    }

    /// Its programs grow. Page cache is dropped for that, and if it does not suffice a program is killed.
    fn grow(&mut self, bytes: u64) {
        self.drop_cache(bytes);
        if bytes > self.free() {
            self.oom_kills += 1;
            self.anonymous = 0;
            return;
        }
        self.anonymous += bytes;
    }

    fn cache(&mut self, bytes: u64, is_hot: bool) {
        let most = self.given.saturating_sub(self.pinned()) / 16 * 15;
        let bytes = bytes.min(most);
        let excess = (self.hot + self.cold + bytes).saturating_sub(most);
        // The kernel drops files that were read once before files that are read again and again.
        let from_cold = excess.min(self.cold);
        self.cold -= from_cold;
        let room = most.saturating_sub(self.hot + self.cold);
        if is_hot { self.hot += bytes.min(room) } else { self.cold += bytes.min(room) }
    }

    pub(super) fn drop_cache(&mut self, bytes: u64) {
        let missing = bytes.saturating_sub(self.free());
        let from_cold = missing.min(self.cold);
        self.cold -= from_cold;
        self.hot -= (missing - from_cold).min(self.hot);
    }

    /// Resizes it, and returns what it has then. It keeps the memory that it can't do without.
    pub fn resize(&mut self, to: u64) -> u64 {
        if to < self.given {
            let wanted = self.given - to;
            self.drop_cache(wanted);
            self.given -= wanted.min(self.free());
            // Free memory that it once touched goes first.
            self.touched = self.touched.min(self.given);
        } else {
            self.given = to.min(self.whole);
        }
        self.given
    }

    fn available(&self) -> u64 {
        // As a kernel estimates: free memory and nearly all page cache.
        self.free() + (self.hot + self.cold) / 20 * 19
    }

    /// Returns the view that its actuator would report; `None` if it has not started.
    pub fn view(&self, now: Duration) -> Option<GuestView> {
        self.phase(now)?;
        let inside = ReportedFigures {
            available_bytes: Some(self.available()),
            free_bytes: Some(self.free()),
            cache_bytes: Some(self.hot + self.cold),
            major_faults_per_second: Some(self.faults_per_second),
            psi_some_percent: Some(self.psi_percent),
            ..ReportedFigures::default()
        };
        Some(GuestView {
            given_bytes: self.given,
            resident_bytes: self.touched,
            inside,
            merged_bytes: self.merged,
            ..GuestView::whole(&self.key, self.class.clone(), self.whole)
        })
    }
}
