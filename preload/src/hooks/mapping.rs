//! Interposes the calls that make mappings, resize them, make them writable and advise on them.

use core::ffi::{c_int, c_void};

use crate::next::NextFunction;
use crate::state::{self, PreloadMode};
use crate::sys::MemoryAdvice;
use crate::syscall::call_as_libc;
use crate::wishes::{self, RangeRequest};
use crate::{helper, marks, sys};

type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, libc::off64_t) -> *mut c_void;
type Mremap = unsafe extern "C" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;
type Advise = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;

static MMAP: NextFunction = NextFunction::new(c"mmap");
static MMAP64: NextFunction = NextFunction::new(c"mmap64");
static MREMAP: NextFunction = NextFunction::new(c"mremap");
static MPROTECT: NextFunction = NextFunction::new(c"mprotect");
static MADVISE: NextFunction = NextFunction::new(c"madvise");

/// Finds the next functions, while the process has one thread.
pub fn find_next() {
    for next in [&MMAP, &MMAP64, &MREMAP, &MPROTECT, &MADVISE] {
        let _ = next.address();
    }
}

/// Interposed mmap(2), with the same contract.
///
/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off64_t,
) -> *mut c_void {
    // SAFETY: the caller's arguments are passed on without change.
    unsafe { map(&MMAP, address, length, access, flags, file, offset) }
}

/// Interposed mmap(2), with the same contract.
///
/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off64_t,
) -> *mut c_void {
    // SAFETY: the caller's arguments are passed on without change.
    unsafe { map(&MMAP64, address, length, access, flags, file, offset) }
}

unsafe fn map(
    next: &NextFunction,
    address: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off64_t,
) -> *mut c_void {
    let mapped = match next.address() {
        // SAFETY: the next function of this name is of this type, and the arguments are the caller's.
        Some(next) => unsafe {
            core::mem::transmute::<usize, Mmap>(next)(address, length, access, flags, file, offset)
        },
        // SAFETY: the same call without libc, the arguments being the caller's.
        None => unsafe {
            let (access, flags, file) = (access as usize, flags as usize, file as usize);
            call_as_libc(libc::SYS_mmap, [address as usize, length, access, flags, file, offset as usize])
                as *mut c_void
        },
    };
    if mapped != libc::MAP_FAILED && is_data(access, flags) {
        if state::hints_huge() {
            hint_huge(mapped as usize, length, flags);
        }
        added(mapped as usize, length);
    }
    mapped
}

/// Returns true if a mapping is writable private anonymous memory: not shared, of a file, code or a mere reservation.
fn is_data(access: c_int, flags: c_int) -> bool {
    let unsuitable = libc::MAP_HUGETLB | libc::MAP_GROWSDOWN;
    flags & libc::MAP_ANONYMOUS != 0
        && flags & libc::MAP_TYPE == libc::MAP_PRIVATE
        && flags & unsuitable == 0
        && is_written(access)
}

fn is_written(access: c_int) -> bool {
    access & libc::PROT_WRITE != 0 && access & libc::PROT_EXEC == 0
}

/// Size of a huge page on x86-64.
const HUGE_PAGE: usize = 2 << 20;

/// Requests huge pages for new memory on the program's behalf. This does not count as a request of the program: the
/// memory is marked as without it. The whole mapping is advised, even if it is not aligned: a part would divide it, and
/// the kernel does not resize a divided mapping. Stacks, and reservations larger than the host's memory, stay as they
/// are.
#[cold]
fn hint_huge(start: usize, length: usize, flags: c_int) {
    let is_reservation = flags & libc::MAP_NORESERVE != 0 && length > state::largest();
    if length >= HUGE_PAGE && flags & libc::MAP_STACK == 0 && !is_reservation && state::mode() != PreloadMode::Quiet
    {
        let _ = sys::madvise(start, length, MemoryAdvice::HugePage);
    }
}

/// Handles new memory of the program.
fn added(start: usize, length: usize) {
    let is_large = length >= state::threshold();
    match state::mode() {
        PreloadMode::Madvise if is_large => drop(marks::offer_new(start, length)),
        PreloadMode::Madvise | PreloadMode::Guided => wishes::forget(start, start.saturating_add(length)),
        PreloadMode::Idle | PreloadMode::Prctl | PreloadMode::Quiet => return,
    }
    if is_large {
        helper::wake();
    }
}

/// Limit of attempts to rejoin a mapping that the library's thread has divided. The thread may have begun one other
/// mark by then.
const REJOINED: usize = 4;

/// Returns true if the last call failed because of a mapping that the library's thread may have divided.
fn is_divided() -> bool {
    // SAFETY: libc's own variable of this thread.
    let errno = unsafe { *libc::__errno_location() };
    errno == libc::EFAULT && matches!(state::mode(), PreloadMode::Madvise | PreloadMode::Guided)
}

/// Calls the next mremap.
///
/// # Safety
/// As mremap(2).
unsafe fn remap(
    old: *mut c_void,
    old_length: usize,
    length: usize,
    flags: c_int,
    address: *mut c_void,
) -> *mut c_void {
    match MREMAP.address() {
        // SAFETY: the next function takes these in the same registers, and the arguments are the caller's.
        Some(next) => unsafe {
            core::mem::transmute::<usize, Mremap>(next)(old, old_length, length, flags, address)
        },
        // SAFETY: the same call without libc, the arguments being the caller's.
        None => unsafe {
            let (old, flags, address) = (old as usize, flags as usize, address as usize);
            call_as_libc(libc::SYS_mremap, [old, old_length, length, flags, address]) as *mut c_void
        },
    }
}

/// Interposed mremap(2), with the same contract. The last argument is used only if the flags say so.
///
/// # Safety
/// As mremap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_length: usize,
    length: usize,
    flags: c_int,
    address: *mut c_void,
) -> *mut c_void {
    // SAFETY: the arguments are the caller's.
    let mut moved = unsafe { remap(old, old_length, length, flags, address) };
    // The helper marks mappings that it has read of. Where one was unmapped meanwhile, the mark divides the one at its place,
    // and the kernel moves no mapping that is divided.
    if moved == libc::MAP_FAILED && is_divided() {
        let _mover = marks::MoveGuard::begin();
        let start = old as usize;
        for _ in 0..REJOINED {
            if !marks::rejoin(start, start.saturating_add(old_length)) {
                break;
            }
            // SAFETY: the arguments are the caller's, and the call before has changed nothing.
            moved = unsafe { remap(old, old_length, length, flags, address) };
            if moved != libc::MAP_FAILED || !is_divided() {
                break;
            }
        }
    }
    if moved == libc::MAP_FAILED || state::mode() == PreloadMode::Quiet {
        return moved;
    }
    let (from, to) = (old as usize, moved as usize);
    wishes::move_requests((from, from.saturating_add(old_length)), (to, to.saturating_add(length)));
    // A marked mapping stays marked. One that was too small may have reached the threshold.
    if state::mode() == PreloadMode::Madvise && length >= state::threshold() && old_length < state::threshold() {
        marks::offer(to, length);
    }
    moved
}

/// Interposed mprotect(2), with the same contract.
///
/// # Safety
/// As mprotect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(start: *mut c_void, length: usize, access: c_int) -> c_int {
    let result = match MPROTECT.address() {
        // SAFETY: the next function of this name is of this type, and the arguments are the caller's.
        Some(next) => unsafe { core::mem::transmute::<usize, Advise>(next)(start, length, access) },
        // SAFETY: the same call without libc, the arguments being the caller's.
        None => unsafe { call_as_libc(libc::SYS_mprotect, [start as usize, length, access as usize]) as c_int },
    };
    // Garbage collectors reserve memory first and make it writable later. The kernel ignores the mark on other
    // kinds.
    if result == 0 && state::mode() == PreloadMode::Madvise && length >= state::threshold() && is_written(access) {
        marks::offer(start as usize, length);
    }
    result
}

/// Interposed madvise(2), with the same contract.
///
/// # Safety
/// As madvise(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, length: usize, advice: c_int) -> c_int {
    if advice == libc::MADV_UNMERGEABLE {
        // Before the call, so that the helper, which looks after each mark, undoes one that came in between.
        wishes::record_request(
            start as usize,
            marks::ceil((start as usize).saturating_add(length)),
            RangeRequest::Leave,
        );
    }
    let result = match MADVISE.address() {
        // SAFETY: the next function of this name is of this type, and the arguments are the caller's.
        Some(next) => unsafe { core::mem::transmute::<usize, Advise>(next)(start, length, advice) },
        // SAFETY: the same call without libc, the arguments being the caller's.
        None => unsafe { call_as_libc(libc::SYS_madvise, [start as usize, length, advice as usize]) as c_int },
    };
    if result == 0 {
        advised(start as usize, marks::ceil((start as usize).saturating_add(length)), advice);
    }
    result
}

/// Records the program's own advice on its memory. Advice to leave it out has been recorded before the call.
fn advised(start: usize, end: usize, advice: c_int) {
    match advice {
        libc::MADV_MERGEABLE => wishes::record_request(start, end, RangeRequest::Merge),
        // The program wants huge pages, which ksmd would split.
        libc::MADV_HUGEPAGE if !state::merges_huge() => {
            let is_ours = matches!(state::mode(), PreloadMode::Prctl | PreloadMode::Madvise | PreloadMode::Guided);
            if is_ours && !wishes::wants_merged(start, end) {
                wishes::record_request(start, end, RangeRequest::Leave);
                let _ = marks::withdraw(start, end);
            }
        }
        _ => {}
    }
}
