//! The calls that the program makes and that lead through here: memory mapped, moved and advised (`mapping.rs`), blocks
//! allocated (`blocks.rs`), the heap grown (`heap.rs`).
//!
//! What malloc(3) asks the kernel for goes by no symbol and can't be seen. So large blocks are looked at when malloc has
//! made them, and the heap when its end has moved.

mod blocks;
mod heap;
mod mapping;
mod sandbox;

use crate::state::{self, Mode};

/// Makes the calls lead to their next ones, and turns on what the mode needs.
pub fn arm() {
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

/// Does nothing any more, whatever the program calls.
fn be_quiet() {
    if state::mode() != Mode::Idle {
        state::set_mode(Mode::Quiet);
        heap::ignore();
        blocks::arm(usize::MAX);
    }
}
