//! The cgroup actuator on a real cgroup v2: that of a guest, since the host may have version 1. The program itself runs
//! in the guest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::linux::{LinuxGuest, LinuxKit, module};
use crate::support::program::PROGRAM;
use crate::support::skipped;

const PATIENCE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// Returns the files to run the program elsewhere: itself, stripped, and its libraries.
fn program(directory: &Path) -> Option<Vec<(PathBuf, String)>> {
    let own = directory.join("ksmith");
    if !Command::new("strip").arg("-o").arg(&own).arg(PROGRAM).status().is_ok_and(|status| status.success()) {
        skipped("strip is not installed (binutils)");
        return None;
    }
    let told = Command::new("ldd").arg(&own).output().unwrap();
    let mut files = vec![(own, "/bin/ksmith".to_owned())];
    for line in String::from_utf8_lossy(&told.stdout).lines() {
        if let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')) {
            files.push((PathBuf::from(path), path.to_owned()));
        }
    }
    Some(files)
}

/// The guest with a cgroup of its own.
struct CgroupHost(LinuxGuest);

impl CgroupHost {
    /// Runs a command; what it has shown.
    fn run(&mut self, command: &str) -> String {
        let shown = self.0.run(command, PATIENCE);
        shown.unwrap_or_else(|| panic!("{command} does not end: {}", self.0.console()))
    }

    /// Runs a command and returns its output, one word.
    fn word(&mut self, command: &str) -> String {
        let shown = self.run(&format!("echo word:$({command}):"));
        // The last one is the answer; before it stands what was typed.
        shown.rsplit("word:").next().unwrap().split(':').next().unwrap().to_owned()
    }

    fn file(&mut self, file: &str) -> String {
        self.word(&format!("cat /sys/fs/cgroup/db/{file}"))
    }

    fn number(&mut self, file: &str) -> u64 {
        let text = self.file(file);
        text.parse().unwrap_or_else(|_| panic!("{file} is {text:?}"))
    }

    /// A line of a file of keys and numbers.
    fn key(&mut self, file: &str, key: &str) -> u64 {
        self.word(&format!("sed -n 's/^{key} //p' /sys/fs/cgroup/db/{file}")).parse().unwrap()
    }

    /// Runs ksmith; its exit code and what it said.
    fn ksmith(&mut self, arguments: &str) -> (String, String) {
        let said = self.run(&format!("ksmith {arguments} > /tmp/said 2>&1; echo $? > /tmp/code; cat /tmp/said"));
        (self.word("cat /tmp/code"), said)
    }

    /// Runs a process in the cgroup that reads the whole disk, so that it is cached.
    fn read_disk(&mut self) {
        self.run("sh -c 'echo 0 > /sys/fs/cgroup/db/cgroup.procs; cat /dev/vda > /dev/null'");
    }
}

#[test]
fn a_real_cgroup_gives_its_page_cache_is_never_killed_and_gets_its_limit_back() {
    let directory = tempfile::tempdir().unwrap();
    let (Some(mut files), Some(driver)) = (program(directory.path()), module("virtio_blk")) else { return };
    files.push((driver, "/modules/virtio_blk.ko".to_owned()));
    let config = directory.path().join("ksmith.toml");
    std::fs::write(&config, "[balance]\ncgroups = [\"/db\"]\n").unwrap();
    files.push((config, "/etc/ksmith.toml".to_owned()));
    let Some(kit) = LinuxKit::make(directory.path(), &files) else { return };
    let disk = directory.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(64 * MIB).unwrap();
    let drive = format!("file={},if=virtio,format=raw", disk.display());
    let mut host = CgroupHost(kit.start("host", 512, None, &["-drive", &drive]));
    assert!(host.0.boot(PATIENCE), "{}", host.0.console());
    host.run("insmod /modules/virtio_blk.ko; mount -t cgroup2 none /sys/fs/cgroup");
    host.run("echo +memory > /sys/fs/cgroup/cgroup.subtree_control; mkdir -p /run /sys/fs/cgroup/db");
    if host.word("ls /sys/fs/cgroup/db/memory.reclaim").is_empty() {
        return skipped("the guest's kernel has no memory.reclaim");
    }
    host.run(&format!("echo {} > /sys/fs/cgroup/db/memory.max", 160 * MIB));
    host.run(&format!("echo {} > /sys/fs/cgroup/db/memory.high", 120 * MIB));
    // 24 MiB that can't be reclaimed, and a service that lives on. It has the disk open: what is cached of a disk that
    // no process has open is dropped.
    host.run("sh -c 'echo 0 > /sys/fs/cgroup/db/cgroup.procs; dd if=/dev/zero of=/leak/own bs=1M count=24; sleep 9999 < /dev/vda &'");
    host.read_disk();
    let used = host.number("memory.current");
    assert!(used > 84 * MIB, "the disk is cached: {used}");

    let (code, said) = host.ksmith("balance --json");
    assert!(code == "0" && said.contains(&format!("\"whole_bytes\": {}", 120 * MIB)), "{said}");
    assert!(said.contains("\"way\": \"cgroup\"") && said.contains("\"psi_some_percent\": "), "{said}");

    // Page cache goes, and memory.high keeps it so.
    let (code, said) = host.ksmith("take db 60M");
    assert_eq!(code, "0", "{said}");
    let (current, high) = (host.number("memory.current"), host.number("memory.high"));
    assert!((60 * MIB..61 * MIB).contains(&high), "{high}: {said}");
    assert!(current <= high && current >= 24 * MIB, "{current} of {used} are left");
    assert_eq!(host.word("ls /run/ksmith/undo.json"), "/run/ksmith/undo.json");
    // A program that reads it all again does not get beyond, and goes on.
    host.read_disk();
    let current = host.number("memory.current");
    assert!(current <= 64 * MIB, "{current}");
    // More than it has to spare: it keeps what it uses, with a reserve.
    let (_, said) = host.ksmith("take db 60M");
    let high = host.number("memory.high");
    assert!((24 * MIB..60 * MIB).contains(&high), "{high}: {said}");
    assert_eq!((host.key("memory.events", "max"), host.key("memory.events", "oom_kill")), (0, 0));
    assert_eq!(host.number("memory.max"), 160 * MIB, "it is never touched");

    let (code, said) = host.ksmith("restore");
    assert!(code == "0" && said.contains("db has its 120 MiB again"), "{said}");
    assert_eq!(host.number("memory.high"), 120 * MIB);
    assert_eq!(host.word("ls /run/ksmith/undo.json"), "");
    host.read_disk();
    let again = host.number("memory.current");
    assert!(again > 84 * MIB, "all of it is cached again: {again}");
    assert!(!host.word("pidof sleep").is_empty(), "the service lives");
}
