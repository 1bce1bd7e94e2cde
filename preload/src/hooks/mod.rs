//! The interposed calls of the program: on mappings (`mapping.rs`), namespaces (`namespace.rs`), credentials
//! (`credentials.rs`) and filters of system calls (`sandbox.rs`). libksmith_blocks.so also interposes calls on blocks
//! (`blocks.rs`) and the heap (`heap.rs`).
//!
//! The calls by which malloc(3) gets memory from the kernel use no symbol and can't be interposed. So large blocks are
//! examined when malloc returns them, and the heap when its end has moved. Alternatively, a thread sweeps the map
//! (`helper.rs`).

#[cfg(feature = "blocks")]
mod blocks;
mod credentials;
#[cfg(feature = "blocks")]
mod heap;
mod mapping;
mod namespace;
mod sandbox;

use crate::state::{self, PreloadMode};

/// Finds the next functions and enables the hooks that the mode needs.
pub fn arm() {
    mapping::find_next();
    namespace::find_next();
    credentials::find_next();
    sandbox::find_next();
    #[cfg(feature = "blocks")]
    {
        blocks::find_next();
        match state::mode() {
            PreloadMode::Madvise => {
                heap::watch();
                blocks::arm(state::threshold());
            }
            PreloadMode::Guided => blocks::arm(state::threshold()),
            PreloadMode::Idle | PreloadMode::Prctl | PreloadMode::Quiet => blocks::arm(usize::MAX),
        }
    }
}

/// Disables all hooks.
fn be_quiet() {
    state::set_mode(PreloadMode::Quiet);
    #[cfg(feature = "blocks")]
    {
        heap::ignore();
        blocks::arm(usize::MAX);
    }
}
