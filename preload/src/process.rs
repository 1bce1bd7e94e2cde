//! Whose memory this is. Not by the PID: a child of vfork(2) (or of clone(2) with `CLONE_VM`) has another one, and the same memory
//! as its parent, whose other threads go on meanwhile.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering::Relaxed};

use crate::sys;

/// A page that the kernel gives to children of fork(2) empty (`MADV_WIPEONFORK`, Linux 4.14), and that those who share memory share.
static PAGE: AtomicPtr<AtomicI32> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the page, while the library is loaded. Without it PIDs must do.
pub fn prepare() {
    if let Some(page) = sys::page_wiped_on_fork() {
        let page: *mut AtomicI32 = page.cast();
        // SAFETY: a page of our own, of zeros.
        unsafe { &*page }.store(sys::pid(), Relaxed);
        PAGE.store(page, Relaxed);
    }
}

/// A number of this memory, never 0: the PID of who asked for it first since the memory began. The same in all who share it, another
/// one in a child that has a copy.
pub fn number() -> c_int {
    // SAFETY: null, or a page that is never given back.
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
        // SAFETY: what `in_child` has given.
        c_int::from(unsafe { &*test.cast::<&(dyn Fn() -> bool + Sync)>() }())
    }

    /// What `test`, which may neither allocate nor panic, says in a child: one that shares this memory, or one with a copy.
    pub fn in_child(shares_memory: bool, test: &(dyn Fn() -> bool + Sync)) -> bool {
        let mut stack = vec![0_u128; 8192];
        let flags = libc::SIGCHLD | if shares_memory { libc::CLONE_VM | libc::CLONE_VFORK } else { 0 };
        let mut status = 0;
        let test = &raw const test;
        // SAFETY: the stack is the child's alone until it has ended, and the function is given what it takes.
        let pid = unsafe {
            libc::clone(call, stack.as_mut_ptr_range().end.cast(), flags, test.cast_mut().cast::<c_void>())
        };
        assert!(pid > 0);
        // SAFETY: our child, and a place for how it ended.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status) == 1
    }

    #[test]
    fn who_shares_the_memory_has_the_same_number_and_who_has_a_copy_another() {
        prepare();
        let own = number();
        assert_eq!(number(), own);
        assert!(in_child(true, &|| number() == own && sys::pid() != own));
        assert!(in_child(false, &|| number() != own && number() == sys::pid()));
    }
}
