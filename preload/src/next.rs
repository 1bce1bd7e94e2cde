//! The next functions behind the interposed ones: those of the next library, finally of libc.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::sys;

/// The next function behind an interposed one.
#[derive(Debug)]
pub struct NextFunction {
    name: &'static CStr,
    address: AtomicUsize,
}

/// The thread that is searching through the loader. Old loaders allocate meanwhile, which calls back into the library.
static ASKING: AtomicI32 = AtomicI32::new(0);

impl NextFunction {
    /// Names a function without searching for it.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// Returns the address of the function. `None` if no library has it, or if this thread is already searching.
    #[inline]
    pub fn address(&self) -> Option<usize> {
        match self.address.load(Ordering::Relaxed) {
            0 => self.search_loader(),
            address => Some(address),
        }
    }

    /// Returns the address of the function, if it was found before.
    #[inline]
    pub fn known(&self) -> Option<usize> {
        match self.address.load(Ordering::Relaxed) {
            0 => None,
            address => Some(address),
        }
    }

    #[cold]
    fn search_loader(&self) -> Option<usize> {
        let own = sys::tid();
        if ASKING.load(Ordering::Relaxed) == own {
            return None;
        }
        // Two threads at once, before the constructor has run, would only overwrite each other's note.
        let before = ASKING.swap(own, Ordering::Relaxed);
        // SAFETY: the name ends in a zero byte.
        let found = sys::quietly(|| unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }) as usize;
        ASKING.store(before, Ordering::Relaxed);
        self.address.store(found, Ordering::Relaxed);
        (found != 0).then_some(found)
    }
}
