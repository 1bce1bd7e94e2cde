//! Two virtual machines on huge pages, as QEMU's memory is by default: what is said to be saved and exposed is what the host
//! has gained and would need.

use std::time::Duration;

use ksmith_core::kernel::SmapsRollup;

use crate::support::linux::{LinuxGuest, LinuxKit};
use crate::support::program::{RunningProgram, config_file, status};
use crate::support::{KernelLock, number, skipped, wait_until};

const MIB: u64 = 1 << 20;

/// Zeros that each guest writes into a file, in MiB. Splits of its huge pages free them.
const ZEROS: u64 = 48;

/// The longest that a guest may take, which is emulated.
const PATIENCE: Duration = Duration::from_secs(240);

fn sums(guest: &LinuxGuest) -> SmapsRollup {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", guest.pid())).unwrap();
    SmapsRollup::parse(&text).unwrap()
}

fn pss(guests: &[LinuxGuest]) -> u64 {
    guests.iter().map(|guest| sums(guest).pss.unwrap()).sum()
}

fn said(key: &str) -> u64 {
    status().and_then(|status| status[key].as_u64()).unwrap_or(0)
}

/// True if two figures differ by no more than a twentieth, and what two QEMUs get and return by themselves.
fn are_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= one.max(other) / 20 + 2 * MIB
}

#[test]
fn what_two_virtual_machines_save_and_may_need_again_is_said_as_it_is() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let place = tempfile::tempdir().unwrap();
    let Some(kit) = LinuxKit::make(place.path(), &[]) else { return };
    let start = |name| kit.start(name, 256, None, &["-machine", "pc,mem-merge=on"]);
    let mut guests = [start("one"), start("two")];
    for guest in &mut guests {
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        assert!(guest.leak("own", 16, PATIENCE), "{}", guest.console());
        let zeros = format!("dd if=/dev/zero of=/leak/zeros bs=1M count={ZEROS} 2> /dev/null");
        assert!(guest.run(&zeros, PATIENCE).is_some(), "{}", guest.console());
    }
    if sums(&guests[0]).ksm.is_none() {
        return skipped("smaps_rollup shows merged memory from Linux 6.7 on");
    }
    let huge: u64 = guests.iter().map(|guest| sums(guest).anon_huge.unwrap()).sum();
    if huge < 64 * MIB {
        return skipped("the kernel gave QEMU no huge pages");
    }
    let before = pss(&guests);
    let (_file, path) = config_file("");
    let daemon = RunningProgram::start(&["daemon", "--config", &path]);
    wait_until("the guests are merged", || {
        number("run") == 0 && before.saturating_sub(pss(&guests)) >= 2 * ZEROS * MIB
    });
    wait_until("what is said to be saved is what PSS lost", || {
        let (freed, saved) = (before.saturating_sub(pss(&guests)), said("saved_bytes"));
        are_near(saved, freed) && said("exposure_bytes") >= saved
    });

    // Zeros that were freed are written to: the host needs them again, and exposure falls by as much.
    let (held, exposed) = (pss(&guests), said("exposure_bytes"));
    for guest in &mut guests {
        let write = format!("dd if=/dev/urandom of=/leak/zeros bs=1M count={ZEROS} conv=notrunc 2> /dev/null");
        assert!(guest.run(&write, PATIENCE).is_some(), "{}", guest.console());
    }
    wait_until("exposure has fallen by what the host has needed", || {
        let needed = pss(&guests).saturating_sub(held);
        needed >= ZEROS * MIB && are_near(exposed.saturating_sub(said("exposure_bytes")), needed)
    });
    daemon.end();
}
