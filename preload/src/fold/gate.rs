//! Gates between what a program does and the folding of its memory.
//!
//! [`CHUNKS`]: as a thread ends the kernel writes to its data, and marks its robust mutexes, without waiting for a userfaultfd. A
//! page with such data is not zero, and so it is not folded. But it is zero before the thread begins, where the program has given
//! the thread a stack of resident zeros; so is the page of a robust mutex before that is made. So none of the two begins between the
//! first look at a chunk and its end, and no chunk is folded while one of them begins (`hooks/births.rs`).
//!
//! Threads that libc makes for itself do not pass, as for timers (`SIGEV_THREAD`). Libc maps their stacks, and a mapping that is
//! younger than the first look is not folded; or it has them from threads that have ended, and such a stack has data that is not
//! zero.
//!
//! [`WINDOWS`]: a window divides its mapping, and the kernel resizes no mapping that is divided. What it has refused is tried again
//! while there is no window (`hooks/mapping.rs`).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{process, sys};

/// Between threads that begin and chunks.
pub static CHUNKS: Gate = Gate::new(20);
/// Between mappings that are resized and windows.
pub static WINDOWS: Gate = Gate::new(2000);

/// How long one waits before it asks again, in nanoseconds.
const NAP: core::ffi::c_long = 50_000;

/// What goes on in this memory: threads of the program that pass, and folding threads. In a child of fork the number of the memory
/// is another, and nothing goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inside {
    passing: u16,
    folders: u16,
}

/// A gate that folding threads close and others pass.
#[derive(Debug)]
pub struct Gate {
    /// The number of the memory, and what goes on there.
    word: AtomicU64,
    /// How often a folding thread asks before it goes on without this part of the memory.
    patience: usize,
}

impl Gate {
    const fn new(patience: usize) -> Self {
        Self { word: AtomicU64::new(0), patience }
    }

    /// Changes what goes on, unless `change` says `None`.
    fn change(&self, change: impl Fn(Inside) -> Option<Inside>) -> Option<Inside> {
        let own = u64::from(process::number().cast_unsigned()) << 32;
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let inside = if word >> 32 == own >> 32 { word as u32 } else { 0 };
            let next = change(Inside { passing: (inside >> 16) as u16, folders: inside as u16 })?;
            let new = own | u64::from(next.passing) << 16 | u64::from(next.folders);
            match self.word.compare_exchange_weak(word, new, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Some(next),
                Err(now) => word = now,
            }
        }
    }

    /// Does something while no folding thread has closed the gate.
    pub fn pass<T>(&self, work: impl FnOnce() -> T) -> T {
        let inside = self.change(|inside| Some(Inside { passing: inside.passing.saturating_add(1), ..inside }));
        let mut is_closed = inside.is_some_and(|inside| inside.folders > 0);
        while is_closed {
            // No folding thread closes it again meanwhile.
            sys::nap(NAP);
            is_closed = self.change(|inside| (inside.folders == 0).then_some(inside)).is_none();
        }
        let result = work();
        self.change(|inside| Some(Inside { passing: inside.passing.saturating_sub(1), ..inside }));
        result
    }

    /// Closes the gate for one folding thread. `None`: threads pass all the time.
    pub fn close(&self) -> Option<Closed<'_>> {
        for _ in 0..self.patience {
            let one_more = |inside: Inside| Inside { folders: inside.folders.saturating_add(1), ..inside };
            if self.change(|inside| (inside.passing == 0).then(|| one_more(inside))).is_some() {
                return Some(Closed(self));
            }
            sys::nap(NAP);
        }
        None
    }
}

/// A gate that one folding thread has closed. It opens on drop, when the last of them does.
#[derive(Debug)]
pub struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.change(|inside| Some(Inside { folders: inside.folders.saturating_sub(1), ..inside }));
    }
}
