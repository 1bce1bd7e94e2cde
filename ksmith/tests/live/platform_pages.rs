//! Commands of the pages about platforms that have memory offered to KSM, or libvirt.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::page_commands::{CommandPath, blocks, page_text};
use crate::support::program::{guest_row, pid_of_row};
use crate::support::vm::{
    FILLED_PAGES, LibvirtDaemons, RunningDomain, content, has, is_offered, mapped_file, virsh,
};
use crate::support::{KernelLock, hold_off_ksm, passes_until, wait_until};

const RAM: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

#[test]
fn the_commands_for_libvirt_and_opennebula_keep_their_guests_from_merging() {
    // First the lock: two of these tests would start and end one libvirt.
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(_libvirt) = LibvirtDaemons::start() else { return };
    if virsh(&["dominfo", "web"]).is_some() {
        return crate::support::skipped("this host has a domain web");
    }
    let directory = tempfile::tempdir().unwrap();
    let content = content(directory.path(), 9);
    let path = CommandPath::make(directory.path(), &["onevm"]);
    let [switch, permanent] =
        blocks("libvirt.md", "sh,run-by=live/platform_pages").try_into().expect("two blocks of libvirt");
    let mut web = RunningDomain::define(directory.path(), "web", &content);
    assert!(is_offered(web.pid, RAM));
    let said = path.run_well(&switch, directory.path());
    assert!(said.contains("web") && said.contains("merging is off"), "{said}");
    assert!(!is_offered(web.pid, RAM));
    let definition = || virsh(&["dumpxml", "--inactive", "web"]).unwrap();
    // As the page shows it.
    let [shown] = blocks("libvirt.md", "xml").try_into().expect("one block of XML");
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join("\n");
    assert!(!lines(&definition()).contains(&lines(&shown)));
    path.run_well(&permanent, directory.path());
    assert!(lines(&definition()).contains(&lines(&shown)), "{}", definition());
    web.start_again();
    assert!(!is_offered(web.pid, RAM));
    drop(web);

    let [update] = blocks("platforms.md", "sh,run-by=live/platform_pages+onevm").try_into().expect("one block");
    let state = directory.path().join("42");
    fs::write(&state, "").unwrap();
    let deploy = |raw: &str| RunningDomain::define_with(directory.path(), "one-42", &content, raw);
    let before = deploy(&fs::read_to_string(&state).unwrap());
    assert!(is_offered(before.pid, RAM));
    assert_eq!(guest_row("one-42").expect("by the name of the page")["mergeable"], true);
    drop(before);
    let update = format!("export ONE_DIR='{}'\n{update}", directory.path().display());
    path.run_well(&update, directory.path());
    // A key that OpenNebula lacks is refused, so that the stand-in can fail.
    assert!(!path.run(&update.replace("DATA =", "DATUM ="), directory.path()).status.success());
    let after = deploy(&fs::read_to_string(&state).unwrap());
    assert!(!is_offered(after.pid, RAM));
    assert_eq!(guest_row("one-42").unwrap()["mergeable"], false);
}

#[test]
fn the_commands_for_microvms_clone_a_snapshot_and_have_merged_what_the_clones_wrote() {
    if !["curl", "python3"].into_iter().all(has) {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = CommandPath::make(directory.path(), &["firecracker"]);
    fs::rename(content(directory.path(), 10), directory.path().join("web.mem")).unwrap();
    fs::write(directory.path().join("web.state"), "").unwrap();
    let [clone] =
        blocks("platforms.md", "sh,run-by=live/platform_pages+firecracker").try_into().expect("one block");
    let refused = path.run("firecracker --api-socket web1.sock", directory.path());
    assert!(!refused.status.success(), "the stand-in takes any option");
    let mut running = path.start(&clone, directory.path());
    let told = || fs::read_to_string(directory.path().join("stderr")).unwrap();
    wait_until("both clones have loaded the snapshot", || {
        let is_over = !running.is_running();
        let are_there = ["web1", "web2"].into_iter().all(|name| {
            guest_row(name).is_some_and(|row| {
                let maps = fs::read_to_string(format!("/proc/{}/maps", pid_of_row(&row))).unwrap_or_default();
                maps.contains("/web.mem")
            })
        });
        assert!(are_there || !is_over, "{}", told());
        are_there && is_over
    });
    let clones = ["web1", "web2"].map(|name| guest_row(name).unwrap());
    let pages = FILLED_PAGES as u64;
    let figures = |row: &Value| {
        mapped_file(pid_of_row(row), "web.mem", ["Rss", "Pss", "Anonymous", "KSM"]).map(|kib| kib / 4)
    };
    for clone in &clones {
        assert_eq!(clone["kind"], "firecracker");
        // Half is written and its own; the other half is page cache, which each maps.
        assert_eq!(figures(clone), [pages, pages / 2 + pages / 4, pages / 2, 0], "{clone}");
        assert_eq!(clone["saved_bytes"], 0);
    }
    passes_until("what both wrote is merged", || clones.iter().all(|clone| figures(clone)[3] == pages / 4));
    for clone in &clones {
        let [rss, _, anonymous, merged] = figures(clone);
        assert_eq!([rss, anonymous, merged], [pages, pages / 2, pages / 4]);
    }
    let saved: u64 =
        ["web1", "web2"].map(|name| guest_row(name).unwrap()["saved_bytes"].as_u64().unwrap()).iter().sum();
    assert!(saved >= pages / 4 * 4096, "{saved}");
}

#[test]
fn the_command_for_cloud_hypervisor_offers_its_guests_memory() {
    if !has("python3") {
        return;
    }
    let Some(_others_wait) = hold_off_ksm() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = CommandPath::make(directory.path(), &["cloud-hypervisor"]);
    let word = "sh,run-by=live/platform_pages+cloud-hypervisor";
    let [start] = blocks("platforms.md", word).try_into().expect("one block");
    assert!(!path.run(&start.replace("mergeable", "merge"), directory.path()).status.success());
    let found = |block: &str| {
        let _running = path.start(block, directory.path());
        wait_until("it is there", || {
            guest_row("web3").is_some_and(|row| offers(&pid_of_row(&row), 512 * MIB).is_some())
        });
        let row = guest_row("web3").unwrap();
        assert_eq!(
            (row["kind"].as_str(), row["memory_bytes"].as_u64()),
            (Some("cloud-hypervisor"), Some(512 * MIB))
        );
        offers(&pid_of_row(&row), 512 * MIB).unwrap()
    };
    assert!(found(&start));
    assert!(!found(&start.replace("mergeable=on", "mergeable=off")));
    assert!(page_text("platforms.md").contains("mergeable=on"));
}

/// Returns true if the process's mapping of this size is offered to KSM; `None` if it has none yet.
fn offers(pid: &u32, bytes: u64) -> Option<bool> {
    let maps = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("maps")).ok()?;
    let has_it = maps.lines().any(|line| {
        let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        number(end) - number(start) == bytes
    });
    has_it.then(|| is_offered(*pid, bytes))
}
