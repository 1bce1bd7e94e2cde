//! The heap of brk(2), which grows without an interceptable call. glibc keeps its end in a readable variable.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use crate::maps::MapsEntryKind;
use crate::next::NextFunction;
use crate::state::{self, PreloadMode};
use crate::{marks, sweep, sys};

/// A heap end that never moves, for a heap that is not watched.
static STILL: AtomicUsize = AtomicUsize::new(0);

/// Address of libc's variable with the heap's end (`__curbrk`).
static END: AtomicPtr<AtomicUsize> = AtomicPtr::new((&raw const STILL).cast_mut());

/// The heap's end at the last check.
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Start of the heap, or 0 if it is not watched. The next variable holds the end of its marked part.
static START: AtomicUsize = AtomicUsize::new(0);
static MARKED: AtomicUsize = AtomicUsize::new(0);

/// Maximum number of unmarked bytes at the heap's end. Small heaps are marked in smaller steps.
const STEP: usize = 16 << 20;

type Sbrk = unsafe extern "C" fn(isize) -> *mut c_void;
type Brk = unsafe extern "C" fn(*mut c_void) -> c_int;

static SBRK: NextFunction = NextFunction::new(c"sbrk");
static BRK: NextFunction = NextFunction::new(c"brk");

#[inline(always)]
fn end() -> usize {
    // SAFETY: a word of libc or our own, which lives as long as the process and is read atomically.
    unsafe { &*END.load(Relaxed) }.load(Relaxed)
}

/// Returns true if the end has moved since the last check.
#[inline(always)]
pub fn has_moved() -> bool {
    end() != SEEN.load(Relaxed)
}

/// Returns true if an address is in the heap.
pub fn has(address: usize) -> bool {
    (START.load(Relaxed)..end()).contains(&address)
}

/// Starts to watch the heap.
pub fn watch() {
    // SAFETY: the name ends in a zero byte.
    let found = sys::quietly(|| unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__curbrk".as_ptr()) });
    // libc's variable is not set before the first call of sbrk.
    let _ = SBRK.address().map(sbrk_of);
    // SAFETY: libc's variable, if it exists, is a word that holds a pointer.
    let Some(word) = (unsafe { found.cast::<AtomicUsize>().as_ref() }) else { return };
    let now = word.load(Relaxed);
    let mut start = marks::ceil(now);
    let _ = sweep::mappings(|mapping| {
        if mapping.kind == MapsEntryKind::Heap {
            start = start.min(mapping.start);
        }
    });
    if start == 0 {
        return;
    }
    START.store(start, Relaxed);
    MARKED.store(start, Relaxed);
    SEEN.store(now, Relaxed);
    END.store(found.cast(), Relaxed);
    mark_to(now);
}

/// Stops watching the heap.
pub fn ignore() {
    END.store((&raw const STILL).cast_mut(), Relaxed);
    SEEN.store(0, Relaxed);
}

/// Marks the added part of the heap, if it is large enough.
pub fn mark_growth() {
    let now = end();
    if SEEN.swap(now, Relaxed) != now && state::mode() == PreloadMode::Madvise {
        mark_to(now);
    }
}

fn mark_to(now: usize) {
    let now = marks::ceil(now);
    let marked = MARKED.load(Relaxed);
    // Memory that was returned to the kernel is unmarked when the heap grows again.
    if now < marked {
        MARKED.store(now, Relaxed);
        return;
    }
    let step = (now.saturating_sub(START.load(Relaxed)) / 16).clamp(state::threshold().min(STEP), STEP);
    if now.saturating_sub(marked) >= step && marks::mark_allowed(marked, now) {
        MARKED.store(now, Relaxed);
    }
}

/// Returns the end of the heap, by the next `sbrk`.
fn sbrk_of(next: usize) -> *mut c_void {
    // SAFETY: the next function of this name is of this type, and an increment of 0 changes nothing.
    sys::quietly(|| unsafe { core::mem::transmute::<usize, Sbrk>(next)(0) })
}

/// Interposed sbrk(2), with the same contract.
///
/// # Safety
/// As sbrk(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    let Some(next) = SBRK.address() else { return libc::MAP_FAILED };
    // SAFETY: the next function of this name is of this type.
    let result = unsafe { core::mem::transmute::<usize, Sbrk>(next)(increment) };
    mark_growth();
    result
}

/// Interposed brk(2), with the same contract.
///
/// # Safety
/// As brk(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(address: *mut c_void) -> c_int {
    let Some(next) = BRK.address() else { return -1 };
    // SAFETY: the next function of this name is of this type.
    let result = unsafe { core::mem::transmute::<usize, Brk>(next)(address) };
    mark_growth();
    result
}
