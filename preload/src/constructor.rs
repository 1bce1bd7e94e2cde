//! The constructor, which runs when the library is loaded.

use core::ffi::CStr;

#[cfg(not(test))]
use crate::process;
use crate::settings::{OfferMethod, OfferedRanges, PreloadSettings};
use crate::state::{self, PreloadMode};
use crate::sys;
use crate::text::LineBuffer;
use crate::{client, helper, marks};
#[cfg(not(test))]
use crate::{hooks, sweep};

/// Seconds between two requests to the daemon. It reads all of the process's memory for each.
const GUIDED_INTERVAL: u64 = 10;

/// Seconds between two sweeps for the memory of malloc(3), if blocks are not intercepted and the program has threads.
const SWEEP_INTERVAL: u64 = 5;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[cfg(not(test))]
extern "C" fn constructor() {
    sys::quietly(|| {
        process::prepare();
        let settings = load();
        hooks::arm();
        if state::mode() == PreloadMode::Madvise {
            sweep::sweep();
        }
        // Where blocks are intercepted, the first large block starts it.
        if !cfg!(feature = "blocks") {
            helper::wake();
        }
        if settings.is_verbose {
            say_mode();
        }
    });
}

/// Returns an environment variable. Ignores all in a program with more privileges than its caller.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends in a zero byte, and so does the value, which is only read before the program begins.
    unsafe {
        if libc::getauxval(libc::AT_SECURE) != 0 {
            return None;
        }
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// Reads the settings and chooses the mode.
fn load() -> PreloadSettings {
    let settings = PreloadSettings::from_variables(variable);
    if let Some(path) = variable(c"KSMITH_SOCKET") {
        client::set_socket(path);
    }
    // SAFETY: both take a plain number.
    let (page, pages) = unsafe { (libc::sysconf(libc::_SC_PAGESIZE), libc::sysconf(libc::_SC_PHYS_PAGES)) };
    let page = usize::try_from(page).ok().filter(|page| page.is_power_of_two()).unwrap_or(4096);
    marks::set_page(page);
    let memory = usize::try_from(pages).map_or(usize::MAX, |pages| pages.saturating_mul(page));
    let mode = match settings.ranges {
        OfferedRanges::None => PreloadMode::Idle,
        OfferedRanges::Guided => {
            // An inherited opt-in would mark everything. Nothing is merged yet, so that withdrawing it unmerges
            // nothing.
            if sys::has_memory_merge() {
                let _ = sys::set_memory_merge(false);
            }
            PreloadMode::Guided
        }
        OfferedRanges::All => match settings.method {
            OfferMethod::Best | OfferMethod::Prctl if sys::set_memory_merge(true).is_ok() => PreloadMode::Prctl,
            OfferMethod::Prctl => PreloadMode::Idle,
            OfferMethod::Best | OfferMethod::Madvise => PreloadMode::Madvise,
        },
    };
    let interval = settings.interval.unwrap_or(match mode {
        PreloadMode::Guided => GUIDED_INTERVAL,
        PreloadMode::Madvise if !cfg!(feature = "blocks") => SWEEP_INTERVAL,
        _ => 0,
    });
    state::set(&settings, memory, interval);
    // Guided mode needs the thread. A sweep is worth a thread only if the user asks for it.
    helper::find(mode == PreloadMode::Guided || settings.interval.is_some());
    state::set_mode(mode);
    settings
}

/// Returns the mode as a word, for `ksmith_method`.
pub fn method() -> &'static CStr {
    match state::mode() {
        PreloadMode::Idle => c"none",
        PreloadMode::Prctl => c"prctl",
        PreloadMode::Madvise => c"madvise",
        PreloadMode::Guided => c"guided",
        PreloadMode::Quiet => c"quiet",
    }
}

fn say_mode() {
    let line = LineBuffer::<128>::new()
        .add(b"ksmith: process ")
        .add_number(u64::try_from(sys::pid()).unwrap_or(0))
        .add(b" offers memory by: ")
        .add(method().to_bytes())
        .add(b"\n");
    sys::say(line.bytes());
}
