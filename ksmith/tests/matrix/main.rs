//! The kernel matrix: the tested program and the reproducers of kernel facts, on several kernels that QEMU emulates, and on
//! user-mode Linux, which has no KSM. A short form is one of the usual tests; `make matrix` runs all of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

#[path = "../../../preload/tests/support/mod.rs"]
mod preload_library;
#[path = "../support/mod.rs"]
mod support;

mod checks;
mod guest;
mod judged;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use checks::{GuestCheck, Ksm, judge};
use guest::{BootResult, BootTree, TestedKernel};
use ksmith_core::field::KernelVersion;
use support::{guest_kernel, skipped};
use table::{KernelColumn, OutcomeTable};

/// Memory of a guest in MiB: the demo leaves 512 to the host.
const MIB: u32 = 1536;

/// Emulators at a time.
const AT_ONCE: usize = 2;

/// The checks of the short form: a command of each kind, and a fact that differs between kernels.
const SHORT: [&str; 9] = [
    "status",
    "doctor",
    "scan",
    "daemon profit",
    "domains one",
    "domains node",
    "restore",
    "first_visit",
    "unstable_tree",
];

/// The kernels of the long form, as `testdata/matrix-kernels` names them.
const KERNELS: [&str; 6] = ["5.10", "6.1", "6.12", "6.16", "6.18", "newest"];

/// Judges every check on one kernel.
fn column(name: &str, boot: &BootResult, has_ksm: bool, checks: &[GuestCheck]) -> KernelColumn {
    let version = KernelVersion::parse(&boot.release);
    let ksm: Ksm = version.filter(|_| has_ksm);
    // The console says once why checks are missing.
    let mut end = Some(boot.end());
    let mut outcome = |check: &GuestCheck| match (version, boot.said.get(&check.name)) {
        (Some(_), Some(said)) => judge(&check.name, ksm, said),
        _ => Err(format!("{} did not end. {}", check.name, end.take().unwrap_or_default())),
    };
    let outcomes = checks.iter().map(|check| (check.name.clone(), outcome(check))).collect();
    let release = if version.is_some() { boot.release.clone() } else { name.to_owned() };
    KernelColumn { release, ksm, outcomes }
}

/// The kernel that `make target/guest-kernel` unpacks. `None`, said loudly, where there is none.
fn packaged_kernel() -> Option<PathBuf> {
    let boot = guest_kernel().join("boot");
    let found = fs::read_dir(&boot).ok().and_then(|entries| {
        entries.flatten().map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("vmlinuz-"))
    });
    if found.is_none() {
        skipped(&format!("no kernel for guests in {} (make target/guest-kernel)", boot.display()));
    }
    found
}

#[test]
fn the_program_works_and_the_reproducers_tell_the_truth_on_a_packaged_kernel() {
    let Some(kernel) = packaged_kernel() else { return };
    let checks = checks::named(&SHORT);
    assert_eq!(checks.len(), SHORT.len());
    let Some(tree) = BootTree::make(&checks) else { return };
    let column = column("packaged", &tree.boot(&TestedKernel::Qemu(kernel), MIB / 3), true, &checks);
    assert_eq!(column.faults(), "");
}

/// `KSMITH_MATRIX=6.1,none` takes these kernels only.
#[test]
#[ignore = "emulates several kernels: make matrix"]
fn every_command_works_or_says_why_not_on_every_kernel() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/matrix");
    let checks = checks::all();
    let Some(tree) = BootTree::make(&checks) else { return };
    let only = std::env::var("KSMITH_MATRIX").ok();
    let wanted = |name: &&str| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == *name));
    let names: Vec<&str> = KERNELS.into_iter().chain(["none"]).filter(wanted).collect();
    let waiting = Mutex::new(names.iter().rev());
    let run = || {
        let mut columns = Vec::new();
        loop {
            let Some(name) = waiting.lock().unwrap().next() else { return columns };
            let kernel = match *name {
                "none" => TestedKernel::UserMode,
                name => TestedKernel::Qemu(place.join(name).join("vmlinuz")),
            };
            let boot = tree.boot(&kernel, MIB);
            fs::write(place.join(format!("{name}.console")), &boot.console).unwrap();
            let column = column(name, &boot, *name != "none", &checks);
            println!("{}", column.text());
            columns.push((*name, column));
        }
    };
    let mut columns: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(run)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    columns.sort_by_key(|(name, _)| names.iter().position(|known| known == name));
    let table = OutcomeTable(columns.into_iter().map(|(_, column)| column).collect());
    println!("{}", table.text());
    assert_eq!(table.faults(), "");
}
