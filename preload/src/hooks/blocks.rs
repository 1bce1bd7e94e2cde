//! Interposes malloc(3) and related functions, but not free(3).
//!
//! The overhead of a small block is two comparisons. Only blocks from the threshold on, or growth of the heap, take
//! more.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::heap;
use crate::next::NextFunction;
use crate::state::{self, PreloadMode};
use crate::{helper, marks, sweep, sys};

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Aligned = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;

static MALLOC: NextFunction = NextFunction::new(c"malloc");
static CALLOC: NextFunction = NextFunction::new(c"calloc");
static REALLOC: NextFunction = NextFunction::new(c"realloc");
static ALIGNED_ALLOC: NextFunction = NextFunction::new(c"aligned_alloc");
static MEMALIGN: NextFunction = NextFunction::new(c"memalign");
static POSIX_MEMALIGN: NextFunction = NextFunction::new(c"posix_memalign");

/// Minimum size of a block that is examined.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Targets of malloc and calloc: the next functions, or the library's if blocks are examined. So the unused feature
/// costs one jump.
static MALLOC_WAY: AtomicPtr<()> = AtomicPtr::new(malloc_with_a_look as *mut ());
static CALLOC_WAY: AtomicPtr<()> = AtomicPtr::new(calloc_with_a_look as *mut ());

/// Finds the next functions.
pub fn find_next() {
    for next in [&MALLOC, &CALLOC, &REALLOC, &ALIGNED_ALLOC, &MEMALIGN, &POSIX_MEMALIGN] {
        let _ = next.address();
    }
}

/// Examines blocks of at least `limit` bytes, and the heap if it is watched. With `usize::MAX` nothing is
/// examined.
pub fn arm(limit: usize) {
    LIMIT.store(limit, Relaxed);
    let looks = limit != usize::MAX;
    if let Some(next) = MALLOC.address() {
        MALLOC_WAY.store(if looks { malloc_that_looks as *mut () } else { next as *mut () }, Relaxed);
    }
    if let Some(next) = CALLOC.address() {
        CALLOC_WAY.store(if looks { calloc_with_a_look as *mut () } else { next as *mut () }, Relaxed);
    }
}

#[inline(always)]
fn is_short_way(size: usize) -> bool {
    size < LIMIT.load(Relaxed) && !heap::has_moved()
}

/// Interposed malloc(3), with the same contract.
///
/// # Safety
/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: the target is of this type.
    unsafe { core::mem::transmute::<*mut (), Malloc>(MALLOC_WAY.load(Relaxed))(size) }
}

unsafe extern "C" fn malloc_that_looks(size: usize) -> *mut c_void {
    if is_short_way(size)
        && let Some(next) = MALLOC.known()
    {
        // SAFETY: the next function of this name is of this type.
        return unsafe { core::mem::transmute::<usize, Malloc>(next)(size) };
    }
    // SAFETY: the argument is the caller's.
    unsafe { malloc_with_a_look(size) }
}

#[cold]
unsafe extern "C" fn malloc_with_a_look(size: usize) -> *mut c_void {
    let Some(next) = MALLOC.address() else { return nothing() };
    // SAFETY: as above.
    let block = unsafe { core::mem::transmute::<usize, Malloc>(next)(size) };
    examine_block(block, size, false);
    block
}

/// Interposed calloc(3), with the same contract.
///
/// # Safety
/// As calloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: the target is of this type.
    unsafe { core::mem::transmute::<*mut (), Calloc>(CALLOC_WAY.load(Relaxed))(count, size) }
}

unsafe extern "C" fn calloc_with_a_look(count: usize, size: usize) -> *mut c_void {
    let Some(next) = CALLOC.address() else { return nothing() };
    // SAFETY: the next function of this name is of this type.
    let block = unsafe { core::mem::transmute::<usize, Calloc>(next)(count, size) };
    let bytes = count.wrapping_mul(size);
    if !is_short_way(bytes) {
        examine_block(block, bytes, false);
    }
    block
}

/// Interposed realloc(3), with the same contract.
///
/// # Safety
/// As realloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    let Some(next) = REALLOC.address() else { return nothing() };
    // SAFETY: the next function of this name is of this type and made the block.
    let block = unsafe { core::mem::transmute::<usize, Realloc>(next)(old, size) };
    if !is_short_way(size) {
        examine_block(block, size, false);
    }
    block
}

/// Interposed `aligned_alloc(3)`, with the same contract.
///
/// # Safety
/// As `aligned_alloc(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    aligned(&ALIGNED_ALLOC, alignment, size)
}

/// Interposed memalign(3), with the same contract.
///
/// # Safety
/// As memalign(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    aligned(&MEMALIGN, alignment, size)
}

fn aligned(next: &NextFunction, alignment: usize, size: usize) -> *mut c_void {
    let Some(next) = next.address() else { return nothing() };
    // SAFETY: both functions are of this type.
    let block = unsafe { core::mem::transmute::<usize, Aligned>(next)(alignment, size) };
    if !is_short_way(size) {
        examine_block(block, size, true);
    }
    block
}

/// Interposed `posix_memalign(3)`, with the same contract.
///
/// # Safety
/// As `posix_memalign(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    let Some(next) = POSIX_MEMALIGN.address() else { return libc::ENOMEM };
    // SAFETY: the next function of this name is of this type; the caller gave the place.
    let failed = unsafe { core::mem::transmute::<usize, PosixMemalign>(next)(place, alignment, size) };
    if failed == 0 && !is_short_way(size) {
        // SAFETY: the call has stored a block there.
        examine_block(unsafe { *place }, size, true);
    }
    failed
}

/// Returns null with ENOMEM. The loader may call back while it searches for the next function.
fn nothing() -> *mut c_void {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    core::ptr::null_mut()
}

/// Examines a block, and marks the new memory around it.
#[cold]
fn examine_block(block: *mut c_void, size: usize, is_aligned: bool) {
    heap::mark_growth();
    if block.is_null() || size < state::threshold() {
        return;
    }
    let start = block as usize;
    match state::mode() {
        PreloadMode::Madvise => {
            if !heap::has(start) {
                place(start, size, is_aligned);
            }
            helper::wake();
        }
        PreloadMode::Guided => helper::wake(),
        PreloadMode::Idle | PreloadMode::Prctl | PreloadMode::Quiet => {}
    }
}

/// Bytes of malloc's header before a block in a mapping of its own.
const HEADER: usize = 16;

/// Size and alignment of an arena's heap, as a power of two.
const ARENA_BITS: u32 = 26;

fn place(start: usize, size: usize, is_aligned: bool) {
    let in_page = start & marks::page().wrapping_sub(1);
    // A block at this offset has a mapping of its own. An aligned block does not show it, but usually has one.
    let is_own_mapping = in_page == HEADER || is_aligned;
    if is_own_mapping && marks::offer(start.wrapping_sub(HEADER), size.saturating_add(HEADER)) {
        return;
    }
    if is_first_in_a_while(start >> ARENA_BITS) {
        sweep::sweep_if_cheap();
    }
}

/// The last examination of each arena: the arena's number and the second, in one word.
static LOOKS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Returns true if no block in this arena was examined in this second.
fn is_first_in_a_while(arena: usize) -> bool {
    let look = ((arena as u64) << 16) | ((sys::about_now() / 1_000_000_000) & 0xffff);
    LOOKS.get(arena % LOOKS.len()).is_none_or(|slot| slot.swap(look, Relaxed) != look)
}
