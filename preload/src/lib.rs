//! The library libksmith opts the memory of its program in to KSM and implements `ksmith.h`.
//!
//! Loaded by `LD_PRELOAD`, it works by itself. If the kernel has the prctl, one call offers all memory. Otherwise the
//! library marks ranges as they appear (`hooks/`; libksmith_blocks.so sees more of them) and sweeps the map of the
//! process (`sweep.rs`). Linked or opened with dlopen, it marks the ranges that the program names (`api/`). It sends
//! requests to the daemon over the user socket (`client/`).
//!
//! Rules for all of its code:
//! * The program does not notice it. A failure leaves memory unchanged, and `errno` keeps the program's value.
//! * No code allocates or waits for a lock, except to start and to end a thread. If two threads would do the same work,
//!   one does it and the other continues. So the code may run in a signal handler, and after a fork of a program with
//!   threads.
//! * No interposed function is called from here, so that no guard against re-entry is needed. System calls are
//!   made without libc (`syscall.rs`).

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
mod fold;
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
mod syscall;
mod text;
mod wishes;

/// Aborts on a panic.
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort takes nothing.
    unsafe { libc::abort() }
}

// The unwinding tables of `core` name this symbol, and nothing calls it. A Rust function would be exported and
// take precedence over that of a program in Rust.
#[cfg(all(panic = "abort", not(test)))]
core::arch::global_asm!(".globl rust_eh_personality", ".hidden rust_eh_personality", "rust_eh_personality:", "ret");
