//! `when = "short"`: ksmd waits while there is memory, begins when it is short, and goes on until it clearly is not.
//!
//! The daemon sees files of the test in the places of `/proc/meminfo` and `/proc/pressure/memory`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ksmith_lab::{MemoryGuest, MemoryPart};

use crate::support::program::{PROGRAM, RunningProgram, config_file, status};
use crate::support::{A_HANDFUL, KernelLock, guest, number, wait_until};

/// Equal pages of each pair of guests.
const PAGES: usize = 8192;

/// Shows the daemon other files, and becomes it.
const SHOW: &str = "mount --bind \"$0\" /proc/meminfo\n\
                    if [ -e /proc/pressure/memory ]; then mount --bind \"$1\" /proc/pressure/memory; fi\n\
                    shift; exec \"$@\"";

/// Memory as the daemon is to see it.
struct ShownMemory {
    directory: tempfile::TempDir,
    kib: u64,
}

impl ShownMemory {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let text = fs::read_to_string("/proc/meminfo").unwrap();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
        let shown = Self { directory, kib: total.unwrap().parse().unwrap() };
        fs::write(shown.path("meminfo"), "").unwrap();
        let calm = "avg10=0.00 avg60=0.00 avg300=0.00 total=0";
        fs::write(shown.path("pressure"), format!("some {calm}\nfull {calm}\n")).unwrap();
        shown
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Makes so many per cent of memory available. The file is never seen half written: it keeps its length.
    fn set_available(&self, percent: u64) {
        let available = self.kib * percent / 100;
        let text = format!(
            "MemTotal: {:>16} kB\nMemFree: {available:>16} kB\nMemAvailable: {available:>16} kB\n",
            self.kib
        );
        let file = File::options().write(true).open(self.path("meminfo")).unwrap();
        file.write_all_at(text.as_bytes(), 0).unwrap();
    }

    fn start_daemon(&self, config: &Path) -> RunningProgram {
        let (memory, pressure) = (self.path("meminfo"), self.path("pressure"));
        let line =
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", SHOW, &memory, &pressure, PROGRAM];
        let line = [&line[..], &["daemon", "--config", config.to_str().unwrap()]].concat();
        let mut daemon = RunningProgram::start_line(&line, |_| ());
        daemon.wait_ready();
        daemon
    }
}

/// Two guests with equal memory.
fn equal_guests(seed: u64) -> [MemoryGuest; 2] {
    let part = [MemoryPart::Equal { seed, pages: PAGES }];
    [guest(&part), guest(&part)]
}

/// Makes other parts of memory available, and waits until the daemon says of each that it is plentiful.
fn await_plenty(memory: &ShownMemory, per_cents: impl IntoIterator<Item = u64>) {
    for percent in per_cents {
        memory.set_available(percent);
        let detail = format!("{percent} % of memory is available, and when = \"short\"");
        wait_until("the daemon says that it waits", || {
            let Some(status) = status() else { return false };
            let daemon = &status["daemon"];
            let says = |key: &str, text: &str| daemon[key].as_str().is_some_and(|said| said.starts_with(text));
            says("reason", "memory is plentiful, so ksmd waits") && says("reason_detail", &detail)
        });
    }
}

fn are_merged(pairs: usize) -> bool {
    number("pages_sharing") + A_HANDFUL >= (pairs * PAGES) as u64
}

#[test]
fn ksmd_scans_from_a_shortage_until_it_is_clearly_over() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let memory = ShownMemory::new();
    memory.set_available(21);
    let (file, _) = config_file("[policy.profit]\nwhen = \"short\"\nshort_percent = 20.0\n");
    let passes = number("full_scans");
    let mut pairs = vec![equal_guests(81)];
    let daemon = memory.start_daemon(file.path());
    await_plenty(&memory, [60, 40, 30, 22, 21]);
    assert_eq!((number("run"), number("full_scans")), (0, passes), "{}", daemon.log());

    memory.set_available(19);
    wait_until("the first pair is merged", || are_merged(1));
    // As much as before the shortage, and a quarter more than `short_percent` ends it.
    memory.set_available(24);
    pairs.push(equal_guests(82));
    wait_until("the second pair is merged", || are_merged(2));

    await_plenty(&memory, [26]);
    wait_until("ksmd is parked", || number("run") == 0);
    let passes = number("full_scans");
    pairs.push(equal_guests(83));
    await_plenty(&memory, [60, 40, 30, 26, 21]);
    assert_eq!((number("run"), number("full_scans")), (0, passes), "{}", daemon.log());
    assert!(!are_merged(3));
    daemon.end();
}
