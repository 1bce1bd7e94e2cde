//! Two microVMs of QEMU from one saved state, whose memory is a file that each maps privately: what they share from birth is
//! page cache, and KSM merges what they wrote.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::program::ksmith;
use crate::support::qmp::QmpClient;
use crate::support::vm::{FILLED_PAGES, PAGE, QemuProcess, content, has, mapped_file};
use crate::support::{KernelLock, passes_until, wait_until};

/// Pages that the guests' program writes: as many with one content in each clone as with contents of its own.
const WRITTEN_PAGES: u64 = 1024;

/// Pages of the host that QEMU itself may have offered and merged: its firmware, and tables.
const OF_QEMU: u64 = 128;

const PROGRAM: &str = include_str!("../support/clone.S");

const KIB_PER_PAGE: u64 = PAGE as u64 >> 10;

/// The directory of a snapshot, with the program that its guests run.
struct MicrovmSnapshot<'a> {
    directory: &'a Path,
    firmware: PathBuf,
}

/// A microVM with its serial port.
struct Microvm {
    qemu: QemuProcess,
    monitor: QmpClient,
    serial: PathBuf,
}

impl<'a> MicrovmSnapshot<'a> {
    fn make(directory: &'a Path) -> Self {
        std::fs::write(directory.join("clone.S"), PROGRAM).unwrap();
        let firmware = directory.join("clone.bin");
        for line in [
            &["cc", "-m32", "-c", "-o", "clone.o", "clone.S"][..],
            &["objcopy", "-O", "binary", "-j", ".text", "clone.o", "clone.bin"],
        ] {
            let status = Command::new(line[0]).args(&line[1..]).current_dir(directory).status().unwrap();
            assert!(status.success(), "{line:?}");
        }
        Self { directory, firmware }
    }

    /// Starts a microVM on the snapshot's memory.
    fn start(&self, name: &str, share: &str, content: Option<&Path>, more: &[&str]) -> Microvm {
        let memory = self.directory.join("web.mem").display().to_string();
        let object = format!("memory-backend-file,id=ram,size=64M,mem-path={memory},share={share}");
        let serial = self.directory.join(format!("{name}.serial"));
        let port = format!("unix:{},server=on,wait=off", serial.display());
        let firmware = self.firmware.display().to_string();
        let options =
            ["-M", "microvm,memory-backend=ram", "-object", &object, "-bios", &firmware, "-serial", &port];
        let qemu = QemuProcess::start(self.directory, name, content, &[&options, more].concat());
        let mut monitor = QmpClient::connect(&qemu.socket);
        // What lies in shared memory is in its file, and not in the saved state.
        let capability = json!({ "capability": "x-ignore-shared", "state": true });
        monitor.execute("migrate-set-capabilities", json!({ "capabilities": [capability] }));
        Microvm { qemu, monitor, serial }
    }

    /// Saves all of a stopped microVM but its memory.
    fn save(&self, vm: &mut Microvm) {
        vm.monitor.execute("stop", json!({}));
        vm.monitor
            .execute("migrate", json!({ "uri": format!("exec:cat > {}/web.state", self.directory.display()) }));
        wait_until("the state is saved", || {
            vm.monitor.execute("query-migrate", json!({}))["status"] == "completed"
        });
    }

    /// Starts a clone of the saved microVM.
    fn clone(&self, name: &str) -> Microvm {
        let mut vm = self.start(name, "off", None, &["-incoming", "defer"]);
        vm.monitor.execute(
            "migrate-incoming",
            json!({ "uri": format!("exec:cat {}/web.state", self.directory.display()) }),
        );
        wait_until("the state is loaded", || vm.monitor.execute("query-status", json!({}))["status"] == "paused");
        vm.monitor.execute("cont", json!({}));
        vm
    }
}

impl Microvm {
    /// Has the guest's program do its work for this byte, and waits until it has.
    fn work(&self, byte: u8) {
        let mut port = UnixStream::connect(&self.serial).unwrap();
        port.write_all(&[byte]).unwrap();
        let mut answer = [0];
        port.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"k");
    }

    /// Returns figures of its mapping of the snapshot's memory, in pages.
    fn pages<const N: usize>(&self, keys: [&str; N]) -> [u64; N] {
        mapped_file(self.qemu.pid(), "web.mem", keys).map(|kib| kib / KIB_PER_PAGE)
    }

    /// Returns its row of `ksmith guests`.
    fn row(&self) -> Value {
        let (code, out, told) = ksmith(&["guests", "--pss", "--json"]);
        assert_eq!(code, 0, "{told}");
        let report: Value = serde_json::from_str(&out).unwrap();
        let rows = report["guests"].as_array().unwrap();
        rows.iter().find(|row| row["pids"][0] == self.qemu.pid()).expect("it is listed").clone()
    }
}

#[test]
fn clones_of_a_snapshot_share_its_page_cache_and_ksm_merges_only_what_they_wrote() {
    if !["qemu-system-x86_64", "cc", "objcopy"].into_iter().all(has) {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let content = content(directory.path(), 8);
    let snapshot = MicrovmSnapshot::make(directory.path());
    let mut template = snapshot.start("template", "on", Some(&content), &[]);
    template.monitor.execute("cont", json!({}));
    template.work(b'r');
    snapshot.save(&mut template);
    drop(template);
    std::fs::remove_file(&content).unwrap();

    let clones = ["one", "two"].map(|name| snapshot.clone(name));
    clones[0].work(b'r');
    clones[1].work(b'r');
    let read = FILLED_PAGES as u64;
    let figures = |row: &Value| ["merged_bytes", "saved_bytes"].map(|key| row[key].as_u64().unwrap() / PAGE as u64);
    // Born: each has read all of it, no page is its own, and the host has each page once, without KSM.
    for clone in &clones {
        assert_eq!(clone.pages(["Rss", "Pss", "Anonymous", "KSM"]), [read, read / 2, 0, 0]);
        let row = clone.row();
        assert_eq!((row["obstacle"].as_str(), figures(&row)), (None, [0, 0]), "{row}");
        let [rss, pss] = ["rss_bytes", "pss_bytes"].map(|key| row[key].as_u64().unwrap() / PAGE as u64);
        assert!(rss >= read && rss - pss >= read / 2, "{row}");
    }
    // KSM has nothing to do with it.
    passes_until("QEMU's own pages are merged", || true);
    for clone in &clones {
        assert_eq!(clone.pages(["Rss", "Pss", "Anonymous", "KSM"]), [read, read / 2, 0, 0]);
        assert!(figures(&clone.row())[0] <= OF_QEMU, "{}", clone.row());
        let (code, said, told) = ksmith(&["doctor", &clone.qemu.pid().to_string()]);
        assert!(
            code == 0 && said.contains("is pages of files, which the page cache shares already"),
            "{said}{told}"
        );
    }

    // Diverged: half of what each writes is the same in both.
    clones[0].work(b'1');
    clones[1].work(b'2');
    for clone in &clones {
        assert_eq!(clone.pages(["Rss", "Anonymous", "KSM"]), [read + 2 * WRITTEN_PAGES, 2 * WRITTEN_PAGES, 0]);
    }
    passes_until("the equal pages are merged", || {
        clones.iter().all(|clone| clone.pages(["KSM"]) == [WRITTEN_PAGES])
    });
    let mut saved = 0;
    for clone in &clones {
        assert_eq!(clone.pages(["Rss", "Anonymous"]), [read + 2 * WRITTEN_PAGES, 2 * WRITTEN_PAGES]);
        let [merged, its] = figures(&clone.row());
        assert!((WRITTEN_PAGES..=WRITTEN_PAGES + OF_QEMU).contains(&merged), "{merged}");
        saved += its;
    }
    assert!((WRITTEN_PAGES..=WRITTEN_PAGES + OF_QEMU).contains(&saved), "{saved}");
}
