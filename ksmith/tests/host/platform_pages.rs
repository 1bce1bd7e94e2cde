//! Commands of the pages for Incus, plain QEMU and user-mode Linux, with real QEMUs and user-mode Linux.

use std::fs;
use std::time::Duration;

use crate::support::image::UmlImage;
use crate::support::own::on_own_host;
use crate::support::page_commands::{CommandPath, blocks};
use crate::support::program::{guest_row, pid_of_row};
use crate::support::vm::{QemuProcess, UmlKit, has, is_offered};
use crate::support::{actuator_of, hold_off_ksm, wait_until, wait_within};
use ksmith_host::act::StateDir;
use ksmith_service::balance::MemoryLedger;

const MIB: u64 = 1 << 20;
/// The RAM of [`QemuProcess`].
const RAM: u64 = 64 * MIB;

/// The init of a guest without a console: it reads all there is, and waits.
const INIT: &str = "#!/bin/sh
mount -t proc proc /proc
cat /usr/share/data/* > /dev/null
while :; do sleep 1000; done
";

#[test]
fn the_command_for_incus_gives_its_guest_private_memory() {
    if !["qemu-system-x86_64", "python3"].into_iter().all(has) {
        return;
    }
    on_own_host(|| {
        let Some(_others_wait) = hold_off_ksm() else { return };
        let directory = tempfile::tempdir().unwrap();
        let instance = directory.path().join("web");
        fs::create_dir(&instance).unwrap();
        let path = CommandPath::make(directory.path(), &["incus"]);
        let [update] = blocks("platforms.md", "sh,run-by=host/platform_pages+incus").try_into().expect("one block");
        let run = |block: &str| {
            let line = format!("export INCUS_DIR='{}'\n{block}", directory.path().display());
            path.run(&line, directory.path()).status.success()
        };
        // As Incus starts it: all about its memory is in the file.
        let found = || {
            let file = instance.join("qemu.conf").display().to_string();
            let qemu = QemuProcess::start(directory.path(), "web", None, &["-readconfig", &file]);
            let row = guest_row("web").expect("it is found");
            assert_eq!(pid_of_row(&row), qemu.pid());
            (row["obstacle"].as_str().map(str::to_owned), is_offered(qemu.pid(), RAM))
        };
        assert!(run("incus config set local:web raw.qemu.conf="));
        assert_eq!(found(), (Some("shared".to_owned()), false));
        assert!(!run(&update.replace("raw.qemu.conf", "raw.qemu.config")), "a key that Incus lacks");
        assert!(run(&update));
        assert_eq!(found(), (None, true));
    });
}

#[test]
fn the_commands_for_plain_qemu_give_a_monitor_by_which_merging_is_switched() {
    if !has("qemu-system-x86_64") {
        return;
    }
    on_own_host(|| {
        let Some(_others_wait) = hold_off_ksm() else { return };
        let directory = tempfile::tempdir().unwrap();
        let path = CommandPath::make(directory.path(), &[]);
        path.add_wrapper("qemu-system-x86_64", &[], &["-accel", "tcg", "-S", "-nodefaults", "-display", "none"]);
        let [start, switch] =
            blocks("plain-qemu.md", "sh,run-by=host/platform_pages").try_into().expect("two blocks");
        // The host's own directory is not the test's.
        let start = start.replace("/run/", &format!("{}/", directory.path().display()));
        let _guest = path.start(&start, directory.path());
        let ram = 2048 * MIB;
        wait_until("it is offered", || guest_row("web").is_some_and(|row| is_offered(pid_of_row(&row), ram)));
        let qemu = pid_of_row(&guest_row("web").unwrap());
        let states: Vec<bool> = switch
            .lines()
            .map(|line| {
                path.run_well(line, directory.path());
                is_offered(qemu, ram)
            })
            .collect();
        assert_eq!(states, [false, true], "{switch}");
    });
}

#[test]
fn the_commands_for_containers_offer_the_memory_of_their_programs() {
    if !has("python3") {
        return;
    }
    let Some(_others_wait) = hold_off_ksm() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = CommandPath::make(directory.path(), &["podman", "docker", "lxc-attach"]);
    fs::write(directory.path().join("app.py"), "print(open('/proc/self/ksm_stat').read())").unwrap();
    let [start] =
        blocks("containers.md", "sh,run-by=host/platform_pages+containers").try_into().expect("one block");
    let said = path.run_well(&start, directory.path());
    assert_eq!(said.matches("ksm_merge_any: yes").count(), start.lines().count(), "{said}");
    for (line, wrong) in start.lines().zip([("-v", "-vol"), (":ro", ":readonly"), (" -- ksmith", " ksmith")]) {
        let line = line.replace(wrong.0, wrong.1);
        assert!(!path.run(&line, directory.path()).status.success(), "{line}");
    }
}

#[test]
fn the_commands_for_user_mode_linux_start_a_guest_and_resize_it() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(_image) = UmlImage::make_with(directory.path(), 96, INIT) else { return };
        let path = CommandPath::make(directory.path(), &[]);
        let kit = UmlKit::make(directory.path()).unwrap();
        let preload = format!("LD_PRELOAD={}", kit.registers().display());
        path.add_wrapper("linux.uml", &[&preload, &format!("HOME={}", directory.path().display())], &[]);
        let [start, resize] =
            blocks("user-mode-linux.md", "sh,run-by=host/platform_pages").try_into().expect("two blocks");
        let mut guest = path.start(&start, directory.path());
        let mut found = None;
        wait_until("it is found", || {
            assert!(guest.is_running(), "{}", fs::read_to_string(directory.path().join("stderr")).unwrap());
            found = guest_row("box");
            found.is_some()
        });
        let row = found.unwrap();
        assert_eq!((row["kind"].as_str(), row["memory_bytes"].as_u64()), (Some("uml"), Some(256 * MIB)));
        assert_eq!(row["obstacle"], "shared");
        let ledger = MemoryLedger::open(&StateDir::at(directory.path().join("state"))).unwrap();
        wait_within(Duration::from_secs(120), "it has read its disk", || {
            let figures =
                actuator_of(pid_of_row(&row), "box", &ledger).and_then(|mut actuator| actuator.read_figures());
            figures.is_ok_and(|figures| figures.inside.cache_bytes.is_some_and(|bytes| bytes > 90 * MIB))
        });
        let said: Vec<String> = resize.lines().map(|line| path.run_well(line, directory.path())).collect();
        let [plan, take, give] = said.try_into().expect("three commands");
        assert!(plan.contains("box"), "{plan}");
        assert!(
            take.contains("box: 256 MiB -> 192 MiB") && give.contains("box: 192 MiB -> 256 MiB"),
            "{take}{give}"
        );
        assert!(directory.path().join("box.cow").exists() && guest.is_running());
    });
}
