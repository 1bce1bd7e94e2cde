//! Going through the map of the process: finds what no call showed, the arenas of malloc(3) above all.
//!
//! Only whole mappings are marked, so a sweep never makes more of them: it rather joins what was parted.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::lock::Exclusive;
use crate::maps::{Kind, Mapping};
use crate::sys::Errno;
use crate::{file, marks, state, sys};

/// Room for many lines of the map, shared by all who read it.
pub static BUFFER: Exclusive<[u8; 32 << 10]> = Exclusive::new([0; 32 << 10]);

/// Nanoseconds that sweeps have taken, and when the first began.
static SPENT: AtomicU64 = AtomicU64::new(0);
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// Sweeps may take this much at first, and one part in 500 of the time from then on.
const CREDIT: u64 = 5_000_000;
const PART: u64 = 500;

/// Gives each mapping of this process to `each`; how many there are. `EBUSY` if somebody is about it already.
pub fn mappings(mut each: impl FnMut(&Mapping)) -> Result<usize, Errno> {
    let mut buffer = BUFFER.take().ok_or(libc::EBUSY)?;
    let mut count = 0_usize;
    file::lines(c"/proc/self/maps", &mut *buffer, |line| {
        count = count.saturating_add(1);
        if let Some(mapping) = Mapping::of(line) {
            each(&mapping);
        }
        true
    })?;
    Ok(count)
}

/// Marks all private anonymous memory from the threshold on.
pub fn sweep() {
    let began = sys::now();
    let _ = BEGAN.compare_exchange(0, began, Relaxed, Relaxed);
    let count = mappings(|mapping| {
        let is_wanted = mapping.kind != Kind::Other
            && mapping.length() >= state::threshold()
            && mapping.length() <= state::largest();
        if is_wanted {
            marks::mark_allowed(mapping.start, mapping.end);
        }
    });
    if let Ok(count) = count {
        marks::counted(count);
    }
    SPENT.fetch_add(sys::now().saturating_sub(began), Relaxed);
}

/// The same, if it does not cost the program more time than it should.
pub fn sweep_if_cheap() {
    let elapsed = sys::about_now().saturating_sub(BEGAN.load(Relaxed));
    if SPENT.load(Relaxed) < CREDIT.saturating_add(elapsed / PART) {
        sweep();
    }
}
