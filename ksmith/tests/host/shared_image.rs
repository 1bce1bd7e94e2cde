//! Guests that read one image through the host's page cache, by the commands of docs/how-to/user-mode-linux.md.

use std::fs;
use std::process::Command;
use std::time::Duration;

use ksmith_core::kernel::Meminfo;

use crate::support::linux::{LinuxGuest, LinuxKit, module};
use crate::support::own::on_own_host;
use crate::support::page_commands::blocks;
use crate::support::vm::{has, mapped_file};

const PATIENCE: Duration = Duration::from_secs(240);
const MIB: u64 = 1 << 20;

/// The drivers, in the order of their dependencies.
const MODULES: [&str; 5] = ["libnvdimm", "nd_btt", "nd_pmem", "nd_virtio", "virtio_pmem"];

/// Bytes of the file that each guest reads.
const READ: u64 = 16 * MIB;

/// Returns the commands of the page: the one that makes the image, QEMU's, and the guest's.
fn commands() -> [String; 3] {
    let [block] = blocks("user-mode-linux.md", "sh,run-by=host/shared_image").try_into().expect("one block");
    let text = block.replace("\\\n", " ");
    let lines: Vec<String> = text.lines().map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect();
    lines.try_into().expect("three commands")
}

/// Returns the page cache inside a guest, in bytes.
fn page_cache(guest: &mut LinuxGuest) -> u64 {
    let text = guest.run("cat /proc/meminfo", PATIENCE).unwrap();
    Meminfo::parse(&text).unwrap().cached.unwrap()
}

#[test]
fn guests_with_a_disk_by_virtio_pmem_have_one_page_cache_and_it_is_the_hosts() {
    let [make, start, mount] = commands();
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        if !has("mke2fs") {
            return;
        }
        let modules = MODULES.map(|name| Some((module(name)?, format!("/more/{name}.ko"))));
        let Some(modules) = modules.into_iter().collect::<Option<Vec<_>>>() else { return };
        let Some(kit) = LinuxKit::make(directory.path(), &modules) else { return };
        fs::create_dir(directory.path().join("usr")).unwrap();
        let contents: Vec<u8> =
            (0..READ / 4).flat_map(|word| (word as u32).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        fs::write(directory.path().join("usr/blob"), contents).unwrap();
        let made = Command::new("sh").args(["-c", &make]).current_dir(directory.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");

        let image = directory.path().join("base.img").display().to_string();
        let options = start.replace("base.img", &image);
        let options: Vec<&str> = options.split_whitespace().skip(1).collect();
        let mut guests = ["one", "two"].map(|name| kit.start(name, 96, None, &options));
        for guest in &mut guests {
            assert!(guest.boot(PATIENCE), "{}", guest.console());
            let load = MODULES.map(|name| format!("insmod /more/{name}.ko")).join(" && ");
            let ready = format!(
                "{load} && until [ -b /dev/pmem0 ]; do sleep 0.1; done && mkdir /usr && {mount} && ls /usr"
            );
            let listed = guest.run(&ready, PATIENCE);
            assert!(listed.is_some_and(|listed| listed.contains("blob")), "{}", guest.console());
            let before = page_cache(guest);
            assert!(guest.run("cat /usr/blob > /dev/null", PATIENCE).is_some(), "{}", guest.console());
            let more = page_cache(guest).saturating_sub(before);
            assert!(more < READ / 4, "{more} bytes of page cache inside");
        }
        for guest in &guests {
            let [resident, part] = mapped_file(guest.pid(), "base.img", ["Rss", "Pss"]);
            assert!(resident << 10 >= READ, "{resident} KiB are mapped");
            assert!(part <= resident * 2 / 3, "{part} of {resident} KiB: both map the same pages");
        }
    });
}
