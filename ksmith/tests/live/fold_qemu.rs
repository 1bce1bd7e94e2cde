//! A virtual machine of QEMU under `ksmith run --fold`: what its guest keeps stays, and what it has freed and emptied is given back.

use std::fs;
use std::time::Duration;

use ksmith_core::field::KernelVersion;
use ksmith_core::kernel::SmapsRollup;
use serde_json::Value;

use crate::preload_library;
use crate::support::linux::{APPEND, Linux, LinuxKit};
use crate::support::program::PROGRAM;
use crate::support::{skipped, wait_until};

const PATIENCE: Duration = Duration::from_secs(240);

/// MiB that the guest keeps, and that it fills and frees.
const KEPT: u64 = 24;
const FREED: u64 = 64;

/// PSS in bytes.
fn memory(guest: &Linux) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", guest.qemu_pid())).unwrap();
    SmapsRollup::parse(&text).unwrap().pss.unwrap()
}

#[test]
fn a_virtual_machine_is_folded_while_its_guest_works() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let is_new = KernelVersion::parse(&release).is_some_and(|version| version >= KernelVersion::new(6, 8));
    if !is_new || !rustix::process::geteuid().is_root() {
        return skipped("folding unasked needs Linux 6.8 and a full userfaultfd, as root has");
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(kit) = LinuxKit::make(directory.path(), &[]) else { return };
    let report = directory.path().join("report.json");
    let library = format!("KSMITH_PRELOAD={}", preload_library::library().display());
    let ksmith = ["run", "--fold=every=1s", "--fold-cpu", "20", "--ranges", "none", "--scan", "never", "--report"];
    let line = [&["env", &library, PROGRAM][..], &ksmith, &[report.to_str().unwrap(), "--"]].concat();
    let append = format!("{APPEND} init_on_free=1");
    let mut guest = kit.start_under(&line, "folded", 192, None, &["-append", &append]);
    assert!(guest.boot(PATIENCE), "{}", guest.console());
    let run = |guest: &mut Linux, command: &str| {
        let said = guest.run(command, PATIENCE);
        said.unwrap_or_else(|| panic!("{command}: {}", guest.console()))
    };
    assert!(guest.leak("kept", KEPT, PATIENCE), "{}", guest.console());
    run(&mut guest, "sha256sum /leak/kept > /tmp/sum");
    for _ in 0..4 {
        assert!(guest.leak("freed", FREED, PATIENCE), "{}", guest.console());
        let full = memory(&guest);
        run(&mut guest, "rm /leak/freed");
        let said = run(
            &mut guest,
            "sha256sum -c /tmp/sum && cp /leak/kept /leak/copy && cmp /leak/kept /leak/copy && rm /leak/copy && echo same-$((6 * 7))",
        );
        assert!(said.contains("same-42"), "{said}");
        wait_until("what was freed is given back", || memory(&guest) + (FREED << 20) / 2 < full);
    }
    let said = run(&mut guest, "sha256sum -c /tmp/sum && echo same-$((7 * 6))");
    assert!(said.contains("same-42"), "{said}");
    guest.end();
    let json: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert!(json["folded_bytes"].as_u64().unwrap() >= FREED << 20, "{json}");
}
