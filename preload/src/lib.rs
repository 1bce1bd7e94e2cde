//! libksmith: opts the memory of the program that it is loaded into in to KSM, and answers the calls of `ksmith.h`.
//!
//! Loaded by `LD_PRELOAD` it works alone: by one prctl where the kernel has it, else by marking ranges as they appear
//! (`hooks/`; libksmith_blocks.so sees more of them) and by going through the map of the process (`sweep.rs`). Linked or opened, it marks what it is told to
//! (`api/`). It asks the daemon over the user socket (`client/`).
//!
//! What holds everywhere:
//! * The program never notices. A failure leaves its memory as it was; `errno` is what the program's own call left.
//! * Nothing here allocates, and nothing waits for a lock: what two threads would do at once, one does, and the other
//!   goes on. So it may run within a signal handler, and after a fork of a program with threads.
//! * No function that is interposed here is called from here: there is nothing to guard against re-entry.

#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![cfg_attr(
    all(not(test), not(feature = "blocks")),
    allow(dead_code, reason = "some of it serves libksmith_blocks.so alone")
)]
#![cfg_attr(test, allow(dead_code, reason = "a test binary has no hooks, nor what serves them alone"))]
#![allow(unsafe_code, reason = "a library in C's terms: pointers come in, system calls go out")]

mod api;
mod client;
mod constructor;
mod errors;
mod file;
mod guided;
mod helper;
#[cfg(not(test))]
mod hooks;
mod lock;
mod maps;
mod marks;
mod next;
mod process;
mod settings;
mod state;
mod stats;
mod sweep;
mod sys;
mod text;
mod wishes;

/// What a panic would do, had anything here cause for one.
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort takes nothing.
    unsafe { libc::abort() }
}

// Named by the tables of unwinding of the standard core, never called: nothing unwinds. Not as a function of Rust, which
// would be seen from outside and stand before that of a program in Rust.
#[cfg(all(panic = "abort", not(test)))]
core::arch::global_asm!(".globl rust_eh_personality", ".hidden rust_eh_personality", "rust_eh_personality:", "ret");
