//! The cost of each kind of ksmd's work on this host: the figures for `ksmith_core::sim::Costs`.
//!
//! `cargo bench -p ksmith --bench visit_costs` needs root, and a host where KSM is not in use.

#![allow(clippy::unwrap_used, reason = "a bench ends by panicking")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ksmith_lab::Part;
use support::{KernelLock, guest, number, wait_until, write};

const PAGES: usize = 65_536;

/// ksmd's directory in /proc.
struct Ksmd(PathBuf);

impl Ksmd {
    fn find() -> Self {
        let mut processes = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        let is_ksmd =
            |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == "ksmd");
        Self(processes.find(is_ksmd).unwrap())
    }

    /// CPU time so far, in ns.
    fn cpu(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    /// How often it went to sleep.
    fn sleeps(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    /// One pass: prints its cost for each of `units`.
    fn pass(&self, what: &str, units: u64) {
        let (before, scans) = (self.cpu(), number("full_scans"));
        let sleep = if number("sleep_millisecs") == 600_000 { "600001" } else { "600000" };
        write("sleep_millisecs", sleep);
        if number("run") != 1 {
            write("run", "1");
        }
        wait_until("the pass is over", || number("full_scans") > scans);
        // ksmd is on its way to sleep; its time is accounted when it gets there.
        std::thread::sleep(Duration::from_millis(20));
        println!("{what:<44} {:>9} ns", (self.cpu() - before) / units);
    }
}

fn fresh() {
    write("run", "2");
    write("smart_scan", "0");
    write("use_zero_pages", "0");
    write("pages_to_scan", "1000000");
}

fn main() {
    let Some(_lock) = KernelLock::take() else { return };
    let ksmd = Ksmd::find();
    let pages = PAGES as u64;
    {
        fresh();
        let _guest = guest(&[Part::Unique { pages: PAGES }]);
        ksmd.pass("checksum: the first visit", pages);
        ksmd.pass("unshared: the second visit", pages);
        ksmd.pass("unshared: a later visit", pages);
        write("smart_scan", "1");
        for _ in 0..4 {
            ksmd.pass("unshared, smart_scan young", pages);
        }
        ksmd.pass("skip: all pages skipped", pages);
    }
    {
        fresh();
        let parts = [Part::Equal { seed: 1, pages: PAGES }];
        let _guests = [guest(&parts), guest(&parts)];
        ksmd.pass("checksum: the first visit", 2 * pages);
        ksmd.pass("unshared, then merge: both visits of a pair", pages);
        ksmd.pass("merged: a visit to a merged page", 2 * pages);
        ksmd.pass("merged: a visit to a merged page", 2 * pages);
    }
    {
        fresh();
        write("use_zero_pages", "1");
        let _guest = guest(&[Part::Zero { pages: PAGES }]);
        ksmd.pass("checksum: the first visit, empty", pages);
        ksmd.pass("merge: with the zero page", pages);
        ksmd.pass("walk: the zero page, and its item freed", pages);
        ksmd.pass("walk: the zero page", pages);
    }
    {
        fresh();
        let _guest = guest(&[Part::Unique { pages: 1 }]);
        ksmd.pass("pass: of one page", 1);
        ksmd.pass("pass: of one page", 1);
        write("pages_to_scan", "0");
        write("sleep_millisecs", "1");
        let (before, sleeps) = (ksmd.cpu(), ksmd.sleeps());
        std::thread::sleep(Duration::from_secs(2));
        let batches = (ksmd.sleeps() - sleeps).max(1);
        println!("{:<44} {:>9} ns", "batch: none visited", (ksmd.cpu() - before) / batches);
    }
}
