//! A gate between threads that begin and memory that is folded.
//!
//! As a thread ends the kernel writes to its data, and marks its robust mutexes, without waiting for a userfaultfd. A page with
//! such data is not zero, and so it is not folded. But it is zero before the thread begins, where the program has given the thread a
//! stack of resident zeros; so is the page of a robust mutex before that is made. So none of the two begins between the first look
//! at a chunk and its end, and no chunk is folded while one of them begins: the hooks of `hooks/births.rs` pass through this gate.
//!
//! Threads that libc makes for itself do not pass, as for timers (`SIGEV_THREAD`). Libc maps their stacks, and a mapping that is
//! younger than the first look is not folded; or it has them from threads that have ended, and such a stack has data that is not zero.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{process, sys};

/// What goes on in this memory: its number, births, and folding threads. In a child of fork the number is another, and nothing goes
/// on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inside {
    births: u16,
    folders: u16,
}

static GATE: AtomicU64 = AtomicU64::new(0);

/// How often a folding thread asks before it leaves a chunk alone, and for how long it sleeps in between, in nanoseconds.
const PATIENCE: usize = 20;
const NAP: core::ffi::c_long = 50_000;

/// Changes what goes on, unless `change` says `None`.
fn change(change: impl Fn(Inside) -> Option<Inside>) -> Option<Inside> {
    let own = u64::from(process::number().cast_unsigned()) << 32;
    let mut word = GATE.load(Ordering::Relaxed);
    loop {
        let inside = if word >> 32 == own >> 32 { word as u32 } else { 0 };
        let next = change(Inside { births: (inside >> 16) as u16, folders: inside as u16 })?;
        let new = own | u64::from(next.births) << 16 | u64::from(next.folders);
        match GATE.compare_exchange_weak(word, new, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return Some(next),
            Err(now) => word = now,
        }
    }
}

/// Begins something that the kernel writes to at the end of a thread: while `birth` runs no chunk is folded.
pub fn pass<T>(birth: impl FnOnce() -> T) -> T {
    let inside = change(|inside| Some(Inside { births: inside.births.saturating_add(1), ..inside }));
    let mut is_closed = inside.is_some_and(|inside| inside.folders > 0);
    while is_closed {
        // No folding thread begins with another chunk meanwhile.
        sys::nap(NAP);
        is_closed = change(|inside| (inside.folders == 0).then_some(inside)).is_none();
    }
    let result = birth();
    change(|inside| Some(Inside { births: inside.births.saturating_sub(1), ..inside }));
    result
}

/// The gate, closed by one folding thread. It opens on drop.
#[derive(Debug)]
pub struct Gate(());

impl Gate {
    /// Closes the gate. `None`: threads begin all the time.
    pub fn close() -> Option<Self> {
        for _ in 0..PATIENCE {
            let one_more = |inside: Inside| Inside { folders: inside.folders.saturating_add(1), ..inside };
            if change(|inside| (inside.births == 0).then(|| one_more(inside))).is_some() {
                return Some(Self(()));
            }
            sys::nap(NAP);
        }
        None
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        change(|inside| Some(Inside { folders: inside.folders.saturating_sub(1), ..inside }));
    }
}
