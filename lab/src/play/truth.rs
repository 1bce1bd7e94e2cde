//! Real savings of guests in huge pages: KSM's counters have neither the empty pages that splits free nor the merged
//! pages that khugepaged has copied.

use std::time::{Duration, Instant};

use ksmith_core::kernel::{Meminfo, SmapsRollup};
use ksmith_host::root::Root;

use crate::measure::TruthPoint;

/// Time between two samples. Each walks all page tables of the guests, so they are rarer than those of the counters.
const EVERY: Duration = Duration::from_secs(1);

/// The samples of a run.
#[derive(Debug)]
pub(super) struct TruthRecorder {
    root: Root,
    began: Instant,
    next: Option<Instant>,
    pub(super) points: Vec<TruthPoint>,
}

impl TruthRecorder {
    /// Starts at `began`. Without `is_wanted` it records nothing.
    pub(super) fn new(root: Root, began: Instant, is_wanted: bool) -> Self {
        Self { root, began, next: is_wanted.then_some(began), points: Vec::new() }
    }

    /// Takes a sample if one is due: `guests` are the PIDs and the bytes of contents of the guests that have filled their memory.
    pub(super) fn record_due(&mut self, counted_bytes: u64, guests: impl Iterator<Item = (u32, u64)>) {
        let now = Instant::now();
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        self.next = Some(now + EVERY);
        let mut point = TruthPoint {
            at: self.began.elapsed().as_secs_f64(),
            counted_bytes,
            free_bytes: self.free_bytes(),
            ..TruthPoint::default()
        };
        for (pid, bytes) in guests {
            let text = self.root.text(format!("proc/{pid}/smaps_rollup"));
            let Some(sums) = text.value().and_then(|text| SmapsRollup::parse(text).ok()) else { continue };
            let held = sums.pss_anon.or(sums.pss).unwrap_or(bytes);
            point.truly_saved_bytes += bytes.saturating_sub(held);
            point.huge_bytes += sums.anon_huge.unwrap_or(0);
        }
        self.points.push(point);
    }

    fn free_bytes(&self) -> u64 {
        let text = self.root.text("proc/meminfo");
        text.value().and_then(|text| Meminfo::parse(text).ok()?.free).unwrap_or(0)
    }
}
