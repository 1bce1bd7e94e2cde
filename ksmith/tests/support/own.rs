//! Tests that must not meet the others: in a process, or on a host, of their own.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::process::{Command, Stdio};

use super::skipped;

const MARK: &str = "KSMITH_TEST_HAS_OWN_PROCESS";

/// `/run/ksmith` is empty but for temporary files, with the sockets of monitors among them, and `/var/lib/ksmith` is empty. KSM is
/// a copy of its files with which nothing merges. The settings are the kernel's defaults.
const SET_UP: &str = "set -eu
mkdir -p /run/ksmith
mount -t tmpfs -o mode=755 own /run/ksmith
mkdir /run/ksmith/tmp
export TMPDIR=/run/ksmith/tmp
mkdir -p /var/lib/ksmith
mount -t tmpfs -o mode=711 own /var/lib/ksmith
if [ -e /sys/kernel/mm/ksm/run ]; then
    mkdir /run/ksmith/ksm
    cp /sys/kernel/mm/ksm/* /run/ksmith/ksm
    cd /run/ksmith/ksm
    for gauge in run use_zero_pages pages_s* pages_unshared pages_volatile full_scans ksm_zero_pages general_profit; do
        if [ -e $gauge ]; then echo 0 > $gauge; fi
    done
    echo 100 > pages_to_scan
    echo 20 > sleep_millisecs
    cd - > /dev/null
    mount --bind /run/ksmith/ksm /sys/kernel/mm/ksm
fi
khugepaged=/sys/kernel/mm/transparent_hugepage/khugepaged
if [ -e $khugepaged/max_ptes_none ]; then
    mkdir /run/ksmith/khugepaged
    cp $khugepaged/* /run/ksmith/khugepaged
    mount --bind /run/ksmith/khugepaged $khugepaged
fi
exec \"$@\"";

/// Runs a test's body in a process of its own, for it counts descriptors or threads, lowers limits or has PIDs reused.
pub fn in_own_process<F: FnOnce()>(body: F) {
    again::<F>(body, &[]);
}

/// Runs a test's body among processes of its own and with files of KSM, khugepaged and ksmith of its own: it needs no KSM, and no other
/// test reaches the monitors of its guests. Without the rights for that the test ends having shown nothing, which is said
/// loudly.
pub fn on_own_host<F: FnOnce()>(body: F) {
    const UNSHARE: [&str; 7] =
        ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation=private", "--mount-proc"];
    let may = Command::new(UNSHARE[0]).args(&UNSHARE[1..]).arg("true").stderr(Stdio::null()).status();
    if std::env::var_os(MARK).is_none() && !may.is_ok_and(|status| status.success()) {
        return skipped("no namespaces of PIDs and mounts can be made here (unshare)");
    }
    let set_up = ["sh", "-c", SET_UP, "sh"];
    again::<F>(body, &[&UNSHARE[..], &set_up[..]].concat());
}

fn again<F: FnOnce()>(body: F, by: &[&str]) {
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    // As in `live::observe::a_test::{{closure}}`: the harness knows it without the binary's name.
    let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    let name = path.split_once("::").expect("a test in a module").1;
    let program = std::env::current_exe().unwrap();
    let mut command = by.iter().map(AsRef::as_ref).chain([program.as_os_str()]);
    let status = Command::new(command.next().unwrap())
        .args(command)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success(), "{name} failed in its own process, see above");
}
