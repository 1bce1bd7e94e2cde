//! `ksmith top` beside live guests, with a daemon that is restarted.

use ksmith_lab::MemoryPart;

use crate::support::program::{PROGRAM, RunningProgram};
use crate::support::tmux::TmuxTerminal;
use crate::support::{KernelLock, guest};

/// Settings held for as long as the daemon runs.
const SCANNING: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\n\
    settings = { pages_to_scan = 20000, sleep_millisecs = 5, smart_scan = 0, run = 1 }\n";

#[test]
fn top_shows_live_guests_and_survives_a_restart_of_the_daemon() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let guests: Vec<_> = (0..4).map(|_| guest(&[MemoryPart::Equal { seed: 21, pages: 4096 }])).collect();
    let daemon = RunningProgram::daemon(SCANNING, &[]);
    let Some(terminal) = TmuxTerminal::start((80, 24), "", &format!("{PROGRAM} top --every 0.2")) else { return };
    terminal.wait_for(&format!("daemon pid {}", daemon.pid()));
    terminal.wait("what three of four guests save", |screen| screen.contains("saved 48.0 MiB"));
    terminal.wait("the guests", |screen| {
        guests.iter().all(|guest| screen.contains(&format!("  {}  ", guest.pid())))
            && screen.contains("policy fixed: ")
    });
    terminal.wait_for("KSM is running; ksmd uses");
    terminal.text(&format!("/saved>11MiB and program={}", "ksmith"));
    terminal.keys(&["Enter"]);
    terminal.wait("no error", |screen| screen.contains("filter saved>11MiB") && !screen.contains("at character"));
    terminal.keys(&["w"]);
    terminal.wait_for("16.0 MiB is merged");
    daemon.end();
    terminal.wait_for("no daemon answers since the last one ended");
    let daemon = RunningProgram::daemon(SCANNING, &[]);
    terminal.wait_for(&format!("daemon pid {}", daemon.pid()));
    terminal.keys(&["2"]);
    terminal.wait_for(&format!("the daemon was restarted: pid {}", daemon.pid()));
    terminal.resize(200, 50);
    terminal.keys(&["1"]);
    terminal.wait_for("metadata");
    daemon.end();
    terminal.keys(&["q"]);
    terminal.wait_for("ENDED 0 icanon echo");
}
