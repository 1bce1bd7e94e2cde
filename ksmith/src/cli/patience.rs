//! A watchdog for commands that read the memory of other processes, which may block.

use std::time::Duration;

use ksmith_core::printable::TextPage;
use ksmith_host::memory::under_way;

use super::print;
use crate::exit::{self, NamedExitCode};

/// Timeout of a read: a process that blocks it for longer does not answer.
const LONGEST: Duration = Duration::from_secs(10);

/// Starts a watchdog that ends the command, with a message, when a process blocks it. A thread that waits for the
/// process can't be woken, but ends with the command.
pub(super) fn watch() {
    watch_with(exit::FAILED);
}

/// As [`watch`], with another exit code.
pub(super) fn watch_with(code: NamedExitCode) {
    let work = move || {
        loop {
            std::thread::sleep(LONGEST / 20);
            if let Some(pid) = under_way::stuck(LONGEST).first() {
                let mut page = TextPage::new();
                page.line(format_args!(
                    "ksmith: process {pid} has not let its memory be read for {} s; name other processes, or end it",
                    LONGEST.as_secs()
                ));
                print::aside(&page);
                std::process::exit(code.number.into());
            }
        }
    };
    // Without it the command waits.
    let _ = std::thread::Builder::new().name("patience".to_owned()).spawn(work);
}
