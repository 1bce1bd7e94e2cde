//! The calls that the program makes and that lead through here: memory mapped, moved and advised (`mapping.rs`), and in
//! libksmith_blocks.so blocks allocated (`blocks.rs`) and the heap grown (`heap.rs`).
//!
//! What malloc(3) asks the kernel for goes by no symbol and can't be seen. So large blocks are looked at when malloc has
//! made them, and the heap when its end has moved; or a thread goes through the map from time to time (`helper.rs`).

#[cfg(feature = "blocks")]
mod blocks;
#[cfg(feature = "blocks")]
mod heap;
mod mapping;
mod sandbox;

use crate::state::{self, Mode};

/// Makes the calls lead to their next ones, and turns on what the mode needs.
pub fn arm() {
    mapping::find_next();
    #[cfg(feature = "blocks")]
    {
        blocks::find_next();
        match state::mode() {
            Mode::Madvise => {
                heap::watch();
                blocks::arm(state::threshold());
            }
            Mode::Guided => blocks::arm(state::threshold()),
            Mode::Idle | Mode::Prctl | Mode::Quiet => blocks::arm(usize::MAX),
        }
    }
}

/// Does nothing any more, whatever the program calls.
fn be_quiet() {
    state::set_mode(Mode::Quiet);
    #[cfg(feature = "blocks")]
    {
        heap::ignore();
        blocks::arm(usize::MAX);
    }
}
