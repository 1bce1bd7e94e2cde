//! Sweeps the map of the process for memory that no intercepted call showed, mostly the arenas of malloc(3).
//!
//! Only whole mappings are marked, so that a sweep never adds mappings and may join divided ones.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::lock::TryLock;
use crate::maps::{MapsEntry, MapsEntryKind};
use crate::sys::Errno;
use crate::{file, marks, state, sys};

/// Buffer for many lines of the map, shared by all readers.
pub static BUFFER: TryLock<[u8; 32 << 10]> = TryLock::new([0; 32 << 10]);

/// Nanoseconds spent on sweeps. The next variable holds the start of the first sweep.
static SPENT: AtomicU64 = AtomicU64::new(0);
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// Initial time budget of sweeps, in nanoseconds. It grows by 1/500 of the elapsed time.
const CREDIT: u64 = 5_000_000;
const PART: u64 = 500;

/// Passes each mapping of this process to `each` and returns their number. `EBUSY` if another thread is already
/// reading.
pub fn mappings(mut each: impl FnMut(&MapsEntry)) -> Result<usize, Errno> {
    let mut buffer = BUFFER.try_lock().ok_or(libc::EBUSY)?;
    let mut count = 0_usize;
    file::lines(c"/proc/self/maps", &mut *buffer, |line| {
        count = count.saturating_add(1);
        if let Some(mapping) = MapsEntry::parse(line) {
            each(&mapping);
        }
        true
    })?;
    Ok(count)
}

/// Bytes that glibc reserves for each arena of malloc(3) beyond the heap, aligned to this size (`HEAP_MAX_SIZE`
/// in `malloc/arena.c`). It makes them usable step by step, by a call that can't be intercepted.
const ARENA: usize = 64 << 20;

/// Returns the arena that consists of two neighbours, one in use and one reserved. Marked as a whole, it remains marked
/// as it grows.
fn arena(before: Option<MapsEntry>, mapping: &MapsEntry) -> Option<(usize, usize)> {
    let used = before.filter(|used| used.kind == MapsEntryKind::Data && used.end == mapping.start)?;
    // Other arenas may lie right before or after it, each aligned to this size.
    let start = used.end.wrapping_sub(1) & !ARENA.wrapping_sub(1);
    let is_arena = mapping.kind == MapsEntryKind::Reserved
        && start >= used.start
        && mapping.end >= start.checked_add(ARENA)?;
    is_arena.then_some((start, start.wrapping_add(ARENA)))
}

/// Marks all private anonymous memory from the threshold on.
pub fn sweep() {
    let began = sys::now();
    let _ = BEGAN.compare_exchange(0, began, Relaxed, Relaxed);
    let mut before = None;
    let count = mappings(|mapping| {
        if let Some((start, end)) = arena(before, mapping) {
            marks::give_way();
            marks::mark_allowed(start, end);
        }
        if mapping.is_data() && (state::threshold()..=state::largest()).contains(&mapping.length()) {
            marks::give_way();
            marks::mark_allowed(mapping.start, mapping.end);
        }
        before = Some(*mapping);
    });
    if let Ok(count) = count {
        marks::counted(count);
    }
    SPENT.fetch_add(sys::now().saturating_sub(began), Relaxed);
}

/// Sweeps, unless the time budget is exhausted.
pub fn sweep_if_cheap() {
    let elapsed = sys::about_now().saturating_sub(BEGAN.load(Relaxed));
    if SPENT.load(Relaxed) < CREDIT.saturating_add(elapsed / PART) {
        sweep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn mapping(start: usize, end: usize, kind: MapsEntryKind) -> MapsEntry {
        MapsEntry { start, end, kind }
    }

    #[test]
    fn an_arena_is_used_memory_and_what_is_reserved_behind_it() {
        let reserved = mapping(ARENA + 8192, 2 * ARENA, MapsEntryKind::Reserved);
        let found = |used| arena(Some(used), &reserved);
        assert_eq!(found(mapping(ARENA, ARENA + 8192, MapsEntryKind::Data)), Some((ARENA, 2 * ARENA)));
        // The arena before is full.
        assert_eq!(found(mapping(4096, ARENA + 8192, MapsEntryKind::Data)), Some((ARENA, 2 * ARENA)));
        assert_eq!(found(mapping(ARENA + 4096, ARENA + 8192, MapsEntryKind::Data)), None);
        assert_eq!(found(mapping(ARENA, ARENA + 4096, MapsEntryKind::Data)), None);
        assert_eq!(found(mapping(ARENA, ARENA + 8192, MapsEntryKind::Other)), None);
        assert_eq!(arena(None, &reserved), None);
        let used = mapping(ARENA, ARENA + 8192, MapsEntryKind::Data);
        assert_eq!(arena(Some(used), &mapping(ARENA + 8192, 2 * ARENA - 4096, MapsEntryKind::Reserved)), None);
        assert_eq!(arena(Some(used), &mapping(ARENA + 8192, 2 * ARENA, MapsEntryKind::Other)), None);
    }
}
