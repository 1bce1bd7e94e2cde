//! A user whose processes execute programs all the time: each is another one at each look.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::attack::RunningAttack;
use crate::support::own::on_own_host;
use crate::support::program::{RunningProgram, status};
use crate::support::{guest, hold_off_ksm, settings, skipped};
use ksmith_host::observe::shows_mergeable;
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;

/// With domains to guard there are many turns.
const CONFIG: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 321, run = 0 }\n\
     [domains]\nmode = \"one\"\nadmit = \"a\"\ndefault = \"a\"\n";

/// The names of what the attack runs.
const NAMES: [&str; 6] = ["sh", "dash", "bash", "true", "busybox", "python3"];

/// More than any of the attack's programs has, and less than a guest.
const LARGE: u64 = 48 << 20;

fn resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

/// Returns the times of the daemon's turns, as its log has them.
fn turns(log: &str) -> Vec<Duration> {
    let time = |line: &str| line.split_once("a turn took ")?.1.strip_suffix(" us")?.parse().ok();
    log.lines().filter_map(time).map(Duration::from_micros).collect()
}

#[test]
fn of_processes_that_execute_programs_all_the_time_no_figure_becomes_a_guests() {
    on_own_host(|| {
        let _ksm_waits = hold_off_ksm();
        if !shows_mergeable(&Root::host()) {
            return skipped("this kernel does not show that memory is mergeable");
        }
        let before = settings::now();
        let good = [16_384, 20_480].map(|pages| guest(&[MemoryPart::Unique { pages }]));
        let daemon = RunningProgram::daemon(CONFIG, &["-vv"]);
        let Some(attack) = RunningAttack::execute_always(100) else { return };
        let begin = Instant::now();
        for _ in 0..40 {
            let status = status().unwrap();
            let rows = status["processes"].as_array().unwrap();
            let row_of = |pid: u32| rows.iter().find(|row| row["pid"] == pid);
            let rss = |row: &Value| row["rss_bytes"].as_u64().unwrap_or(0);
            for guest in &good {
                let row = row_of(guest.pid()).unwrap();
                let name = row["name"].as_str().unwrap();
                assert!(!NAMES.contains(&name), "{row}");
                assert!(rss(row).abs_diff(resident_bytes(guest.pid())) < 2 << 20 && rss(row) > LARGE, "{row}");
            }
            let is_good = |row: &&Value| good.iter().any(|guest| row["pid"] == guest.pid());
            for row in rows.iter().filter(|row| !is_good(row)) {
                let name = row["name"].as_str().unwrap();
                assert!(NAMES.iter().any(|known| name.starts_with(known)) && rss(row) < LARGE, "{row}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let (wall, log) = (begin.elapsed(), daemon.log());
        drop(attack);
        let turns = turns(&log);
        let (sum, longest) = (turns.iter().sum::<Duration>(), turns.iter().max().copied().unwrap_or_default());
        print_figures(&format!("{} turns in {wall:?} took {sum:?}, the longest {longest:?}", turns.len()));
        assert!(turns.len() > 2, "{log}");
        assert!(!log.contains(" ERROR "), "{log}");
        daemon.end();
        assert_eq!(settings::now(), before);
    });
}

#[allow(clippy::disallowed_methods, reason = "a test's own words")]
fn print_figures(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
