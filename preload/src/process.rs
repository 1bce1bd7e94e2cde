//! The identity of this process's memory. It is not the PID: a child of vfork(2), or of clone(2) with `CLONE_VM`,
//! has another PID and shares the memory of its parent, where other threads go on meanwhile.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering::Relaxed};

use crate::sys;

/// A page that is empty in children of fork(2) (`MADV_WIPEONFORK`, Linux 4.14) and shared by processes that
/// share memory.
static PAGE: AtomicPtr<AtomicI32> = AtomicPtr::new(core::ptr::null_mut());

/// Maps the page, while the library is loaded. Without it the PID stands in.
pub fn prepare() {
    if let Some(page) = sys::page_wiped_on_fork() {
        let page: *mut AtomicI32 = page.cast();
        // SAFETY: a page of our own, of zeros.
        unsafe { &*page }.store(sys::pid(), Relaxed);
        PAGE.store(page, Relaxed);
    }
}

/// Returns the number of this memory, never 0: the PID of the first process that called this. Processes that share the
/// memory have the same number, and a child with a copy has another.
pub fn number() -> c_int {
    // SAFETY: null, or a page that is never unmapped.
    let Some(page) = (unsafe { PAGE.load(Relaxed).as_ref() }) else { return sys::pid() };
    match page.load(Relaxed) {
        0 => {
            let own = sys::pid();
            page.compare_exchange(0, own, Relaxed, Relaxed).err().unwrap_or(own)
        }
        number => number,
    }
}

#[cfg(test)]
pub mod tests {
    use core::ffi::c_void;

    use super::*;

    extern "C" fn call(test: *mut c_void) -> c_int {
        // SAFETY: `in_child` passes a pointer of this type.
        c_int::from(unsafe { &*test.cast::<&(dyn Fn() -> bool + Sync)>() }())
    }

    /// Returns the result of `test` in a child that shares this memory or has a copy. `test` may neither allocate nor
    /// panic.
    pub fn in_child(shares_memory: bool, test: &(dyn Fn() -> bool + Sync)) -> bool {
        let mut stack = vec![0_u128; 8192];
        let flags = libc::SIGCHLD | if shares_memory { libc::CLONE_VM | libc::CLONE_VFORK } else { 0 };
        let mut status = 0;
        let test = &raw const test;
        // SAFETY: only the child uses the stack until it has ended, and the function gets the argument that it
        // expects.
        let pid = unsafe {
            libc::clone(call, stack.as_mut_ptr_range().end.cast(), flags, test.cast_mut().cast::<c_void>())
        };
        assert!(pid > 0);
        // SAFETY: the PID is that of our child, and the status has a place.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status) == 1
    }

    #[test]
    fn shared_memory_has_one_number_and_a_copy_another() {
        prepare();
        let own = number();
        assert_eq!(number(), own);
        assert!(in_child(true, &|| number() == own && sys::pid() != own));
        assert!(in_child(false, &|| number() != own && number() == sys::pid()));
    }
}
