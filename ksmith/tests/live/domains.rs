//! Trust domains on the live kernel: real QEMU guests (without acceleration) with known content in memory, all
//! equal, so that each guest that may merge does.

use crate::support;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::program::{RunningProgram, ksmith, status};
use crate::support::{KernelLock, UNDO, guest, number, wait_until};
use ksmith_lab::MemoryPart;

/// Pages of known content in each guest: no two are alike, and all guests have the same.
const PAGES: u64 = 4096;

/// A policy that never rests: it would merge whatever it may.
const EAGER: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 20000, sleep_millisecs = \
                     10, smart_scan = 0, run = 1 }\n";

/// A configuration in which the machine's other processes count to domain a, which must not affect b.
const ONE: &str = "[domains]\nmode = \"one\"\nadmit = \"a\"\ndefault = \"a\"\n[[domains.rule]]\ndomain = \"b\"\nname = \
                   \"foreign-*\"\n[[domains.rule]]\ndomain = \"b\"\nname = \"ksmith\"\n";

const UUID: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

/// A directory with the content and the guests' sockets.
struct MachineDirectory(tempfile::TempDir);

impl MachineDirectory {
    /// `None`, said loudly, where there is no QEMU.
    fn new() -> Option<Self> {
        let is_there = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
        if is_there.is_err() {
            support::skipped("there is no qemu-system-x86_64");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut content = Vec::new();
        for page in 0..PAGES {
            let words = (0..512).map(|word: u64| (page << 20 | word << 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            content.extend(words.flat_map(u64::to_le_bytes));
        }
        fs::write(directory.path().join("content"), content).unwrap();
        Some(Self(directory))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn start(&self, name: &str) -> DomainMachine {
        self.start_with(name, &[])
    }

    fn start_with(&self, name: &str, more: &[&str]) -> DomainMachine {
        let content = self.path("content");
        let child = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-m", "64", "-display", "none", "-nodefaults", "-S", "-name", name])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", self.path(name).display())])
            .args(more)
            .args(["-device", &format!("loader,file={},addr=0x1000000,force-raw=on", content.display())])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        DomainMachine(child)
    }

    /// Starts a guest and waits until its memory is filled and offered.
    fn ready(&self, name: &str) -> DomainMachine {
        let machine = self.start(name);
        wait_until("the guest is filled", || machine.rss_pages() > PAGES && machine.is_mergeable());
        machine
    }
}

struct DomainMachine(Child);

impl DomainMachine {
    fn rss_pages(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.0.id())).unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn is_mergeable(&self) -> bool {
        let text = fs::read_to_string(format!("/proc/{}/ksm_stat", self.0.id())).unwrap();
        text.contains("ksm_mergeable: yes")
    }

    fn merging(&self) -> u64 {
        merging(self.0.id())
    }

    /// Returns true if its RAM is offered. QEMU's firmware and devices have memory of their own, which it can't switch.
    fn offers_ram(&self) -> bool {
        ram(self.0.id()).is_some_and(|(is_offered, _)| is_offered)
    }
}

impl Drop for DomainMachine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the state of a guest's RAM: true if it is marked mergeable, and its merged pages.
fn ram(pid: u32) -> Option<(bool, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    let mappings = ksmith_core::kernel::ProcessMapping::parse_all(&text).ok()?;
    let ram = mappings.iter().find(|mapping| mapping.end - mapping.start == 64 << 20)?;
    Some((ram.is_mergeable()?, ram.figures.as_ref()?.merged? / 4096))
}

fn merging(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/ksm_merging_pages")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// A thread that samples the merged pages of some processes, as often as it can.
struct MergeWatcher {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    most_all: Arc<AtomicU64>,
    looks: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl MergeWatcher {
    fn over(pids: Vec<u32>) -> Self {
        let [most, most_all, looks]: [Arc<AtomicU64>; 3] = Default::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let mut watch = Self {
            stop: Arc::clone(&stop),
            most: Arc::clone(&most),
            most_all: Arc::clone(&most_all),
            looks: Arc::clone(&looks),
            thread: None,
        };
        watch.thread = Some(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for &pid in &pids {
                    most_all.fetch_max(merging(pid), Ordering::Relaxed);
                }
                // That walks over all page tables: not at every look.
                if looks.fetch_add(1, Ordering::Relaxed) % 8 == 0 {
                    for &pid in &pids {
                        most.fetch_max(ram(pid).map_or(0, |(_, merged)| merged), Ordering::Relaxed);
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }));
        watch
    }

    /// The most pages that were merged in any of them at any look: of its RAM, and in all; and the number of looks.
    fn end(mut self) -> (u64, u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        let [ram, all, looks] = [&self.most, &self.most_all, &self.looks].map(|it| it.load(Ordering::Relaxed));
        (ram, all, looks)
    }
}

fn passes(more: u64) {
    let begin = number("full_scans");
    wait_until("ksmd makes passes", || number("full_scans") >= begin + more);
}

fn state() -> (String, String) {
    let daemon = status().unwrap()["daemon"].clone();
    (daemon["state"].as_str().unwrap().to_owned(), daemon["reason"].as_str().unwrap().to_owned())
}

/// Pages of a guest's firmware: it stays mergeable when the guest is switched off.
const FIRMWARE: u64 = 4 << 8;

/// Guests that were started without merging have no firmware memory on offer either; for those that were not, that
/// much is tolerated here.
#[test]
fn in_mode_one_no_page_is_ever_shared_between_domains() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(machines) = MachineDirectory::new() else { return };
    let own = ["own-1", "own-2"].map(|name| machines.ready(name));
    let foreign = ["foreign-1", "foreign-2"].map(|name| machines.ready(name));
    let never = machines.start_with("foreign-never", &["-machine", "mem-merge=off"]);
    let watch = MergeWatcher::over(foreign.iter().map(|machine| machine.0.id()).collect());
    let watch_never = MergeWatcher::over(vec![never.0.id()]);
    let tolerant = ONE.replace("default", "remaining_mergeable_mib = 4\ndefault");
    let daemon = RunningProgram::daemon(&format!("{EAGER}{tolerant}"), &[]);
    wait_until("the admitted guests have merged", || own.iter().all(|machine| machine.merging() >= PAGES));
    assert!(foreign.iter().all(|machine| !machine.offers_ram()), "switched off: {}", daemon.log());
    // A new foreign guest, while ksmd runs at full speed. It is watched from its first moment.
    let late = machines.start("foreign-late");
    let watch_late = MergeWatcher::over(vec![late.0.id()]);
    wait_until("the new guest is filled", || late.rss_pages() > PAGES);
    wait_until("the new guest is switched off", || !late.offers_ram());
    wait_until("ksmd scans again", || number("run") == 1);
    passes(4);
    for watch in [watch, watch_late, watch_never] {
        let (ram, all, looks) = watch.end();
        println!("{looks} looks: {ram} pages of RAM merged, {all} in all");
        assert!(looks > 50, "{looks} looks");
        assert_eq!(ram, 0, "pages of a foreign guest's RAM were merged: {}", daemon.log());
        assert!(all <= FIRMWARE, "{all} pages");
    }
    assert_eq!(never.merging(), 0);
    assert!(own.iter().all(|machine| machine.merging() >= PAGES));
    assert!(daemon.log().contains("is of domain b (a is admitted)"), "{}", daemon.log());
    daemon.end();
    // The same guests under a daemon that only reports: this is what was kept apart.
    let daemon = RunningProgram::daemon(EAGER, &[]);
    let another = machines.ready("foreign-another");
    wait_until("it merges with the others", || ram(another.0.id()).unwrap().1 == PAGES);
    daemon.end();
}

/// Unless it is tolerated, not even firmware is shared: ksmd stays parked, and the reason names the way out.
#[test]
fn what_qemu_can_not_switch_off_keeps_ksmd_parked() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(machines) = MachineDirectory::new() else { return };
    let _own = ["own-1", "own-2"].map(|name| machines.ready(name));
    let foreign = machines.start_with("foreign-1", &["-uuid", UUID]);
    wait_until("the guest is filled", || foreign.rss_pages() > PAGES && foreign.is_mergeable());
    let watch = MergeWatcher::over(vec![foreign.0.id()]);
    let daemon = RunningProgram::daemon(&format!("{EAGER}{ONE}"), &[]);
    wait_until("its RAM is switched off and the rest is told", || state().1.contains("mem-merge=off"));
    assert!(!foreign.offers_ram());
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((number("run"), watch.end().1), (0, 0));
    // By its UUID, too, the doctor finds it; its RAM is not marked any more.
    let (code, out, _) = ksmith(&["--json", "doctor", UUID]);
    assert!(code == 0 && out.contains(&format!("\"pid\": {}", foreign.0.id())), "{out}");
    drop(foreign);
    wait_until("ksmd scans", || number("run") == 1);
    daemon.end();
}

/// A process that offered its memory itself can't be switched off: ksmd waits until it is gone.
#[test]
fn a_foreign_process_without_a_switch_keeps_ksmd_parked() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(machines) = MachineDirectory::new() else { return };
    let own = ["own-1", "own-2"].map(|name| machines.ready(name));
    let daemon = RunningProgram::daemon(&format!("{EAGER}{ONE}"), &[]);
    wait_until("the admitted guests have merged", || own.iter().all(|machine| machine.merging() >= PAGES));
    // Its two halves are equal: it would merge with itself.
    let foreign =
        guest(&[MemoryPart::Equal { seed: 71, pages: 2048 }, MemoryPart::Equal { seed: 71, pages: 2048 }]);
    let watch = MergeWatcher::over(vec![foreign.pid()]);
    // At first it may only be known that a new process offers memory.
    let is_told = format!("ksmith (pid {}) is of domain b", foreign.pid());
    wait_until("ksmd is parked", || number("run") == 0 && state().1.contains(&is_told));
    let (word, reason) = state();
    assert_eq!(word, "guarded");
    assert!(reason.contains("only it can take that back"), "{reason}");
    let stood = number("pages_scanned");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((number("pages_scanned"), number("run")), (stood, 0), "ksmd stands still as long as it is there");
    assert_eq!(watch.end().1, 0);
    drop(foreign);
    wait_until("ksmd scans again", || number("run") == 1);
    passes(2);
    daemon.end();
    // With it allowed, it merges.
    let allowed = ONE.replace("default", "unswitchable = \"allow\"\ndefault");
    let daemon = RunningProgram::daemon(&format!("{EAGER}{allowed}"), &[]);
    let foreign =
        guest(&[MemoryPart::Equal { seed: 71, pages: 2048 }, MemoryPart::Equal { seed: 71, pages: 2048 }]);
    wait_until("it merges", || merging(foreign.pid()) >= 4096);
    daemon.end();
}

/// Whoever un-marks memory that ksmd knows could mark it again for ksmd's next visit alone, and merge with others.
#[test]
fn a_user_that_unmarks_memory_that_ksmd_knows_keeps_ksmd_parked() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !fs::read_to_string("/proc/self/ksm_stat").is_ok_and(|figures| figures.contains("ksm_mergeable")) {
        return support::skipped("this kernel does not tell what is mergeable, so that nothing counts as off");
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks/unmark.py");
    let program = fs::read_to_string(program).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", &program]).uid(65534).gid(65534).current_dir("/");
    let mut user = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(user.stdout.take().unwrap());
    let mut hear = || assert_eq!(said.read_line(&mut String::new()).unwrap(), 1, "it has ended");
    hear();
    let pid = user.id();
    let figures = || fs::read_to_string(format!("/proc/{pid}/ksm_stat")).unwrap();
    support::write("run", "1");
    passes(2);
    support::write("run", "0");
    user.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    hear();
    let figures = figures();
    assert!(figures.contains("ksm_rmap_items 256\n") && figures.contains("ksm_mergeable: no\n"), "{figures}");
    let only_own = "[domains]\nmode = \"one\"\nadmit = \"a\"\n[[domains.rule]]\ndomain = \"a\"\nname = \"own-*\"\n";
    let daemon = RunningProgram::daemon(&format!("{EAGER}{only_own}"), &[]);
    let is_told = format!("(pid {pid}) belongs to no domain");
    wait_until("ksmd is parked", || number("run") == 0 && state().1.contains(&is_told));
    assert_eq!(state().0, "guarded");
    drop(user.stdin.take());
    user.wait().unwrap();
    wait_until("ksmd scans", || number("run") == 1);
    daemon.end();
}

#[test]
fn an_hour_has_no_more_passes_than_allowed() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let _guests = [
        guest(&[MemoryPart::Equal { seed: 72, pages: 512 }]),
        guest(&[MemoryPart::Equal { seed: 72, pages: 512 }]),
    ];
    let begin = number("full_scans");
    let daemon = RunningProgram::daemon(&format!("{EAGER}[domains]\nmax_passes_per_hour = 4\n"), &[]);
    wait_until("the allowance is used up", || state().0 == "metered");
    assert_eq!(number("run"), 0);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(number("full_scans") - begin, 4);
    let (_, reason) = state();
    assert!(reason.starts_with("max_passes_per_hour is reached; the next pass may begin in 59 min"), "{reason}");
    daemon.end();
}

/// Mode `node` where KSM compares across nodes: nothing may merge until that is changed.
#[test]
fn mode_node_waits_for_merge_across_nodes_and_then_admits_bound_guests() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !Path::new("/sys/kernel/mm/ksm/merge_across_nodes").exists() {
        return support::skipped("this kernel has no NUMA");
    }
    let own = [
        guest(&[MemoryPart::Equal { seed: 73, pages: 512 }]),
        guest(&[MemoryPart::Equal { seed: 73, pages: 512 }]),
    ];
    let node = "[domains]\nmode = \"node\"\nnodes = { a = 0 }\ndefault = \"a\"\n";
    support::write("merge_across_nodes", "1");
    let daemon = RunningProgram::daemon(&format!("{EAGER}{node}"), &[]);
    let (state_then, reason) = state();
    assert_eq!(state_then, "guarded");
    assert!(reason.contains("merge_across_nodes is not 0"), "{reason}");
    daemon.end();
    assert!(own.iter().all(|guest| merging(guest.pid()) == 0));
    support::write("merge_across_nodes", "0");
    let daemon = RunningProgram::daemon(&format!("{EAGER}{node}"), &[]);
    // On a host with one node all guests are bound to it.
    wait_until("they merge", || own.iter().all(|guest| merging(guest.pid()) == 512));
    daemon.end();
    let daemon = RunningProgram::daemon(&format!("{EAGER}{}", node.replace("a = 0", "a = 1")), &[]);
    assert_eq!(state().0, "guarded", "its memory is not on node 1");
    daemon.end();
}

/// A service's cgroup with two of its own making below. Removed on drop, when their processes have ended.
struct ServiceCgroup {
    hierarchy: &'static Path,
    path: String,
}

impl ServiceCgroup {
    /// `None`, said loudly, where no cgroup can be made.
    fn make() -> Option<Self> {
        let path = format!("system.slice/ksmith-test-{}.service", std::process::id());
        for hierarchy in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"].map(Path::new) {
            let makes = |name: &str| fs::create_dir_all(hierarchy.join(&path).join(name)).is_ok();
            if hierarchy.join("cgroup.procs").exists() && makes("a") && makes("b") {
                return Some(Self { hierarchy, path });
            }
        }
        support::skipped("no cgroup can be made here");
        None
    }

    fn take_in(&self, name: &str, pid: u32) {
        // In hierarchies of version 1 it may be in the cgroup of a container with this test.
        let others = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
        for other in others.filter(|other| other.join("tasks").exists() && other != self.hierarchy) {
            let _ = fs::write(other.join("cgroup.procs"), pid.to_string());
        }
        let processes = self.hierarchy.join(&self.path).join(name).join("cgroup.procs");
        fs::write(processes, pid.to_string()).unwrap();
    }
}

impl Drop for ServiceCgroup {
    fn drop(&mut self) {
        let service = self.hierarchy.join(&self.path);
        for directory in
            [service.join("a"), service.join("b"), service.clone(), self.hierarchy.join("system.slice")]
        {
            // The slice may have other services.
            let _ = fs::remove_dir(directory);
        }
    }
}

#[test]
fn processes_of_one_service_that_rules_tell_apart_share_no_page() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(service) = ServiceCgroup::make() else { return };
    let [own, foreign] = ["a", "b"].map(|name| {
        let guest = guest(&[MemoryPart::Equal { seed: 74, pages: 2048 }]);
        service.take_in(name, guest.pid());
        guest
    });
    let pids = [own.pid(), foreign.pid()];
    let watch = MergeWatcher::over(pids.to_vec());
    let rule = |domain: &str| {
        format!("[[domains.rule]]\ndomain = \"{domain}\"\ncgroup = \"/{}/{domain}\"\n", service.path)
    };
    let rules = format!("[domains]\nmode = \"one\"\nadmit = \"a\"\ndefault = \"a\"\n{}{}", rule("a"), rule("b"));
    let daemon = RunningProgram::daemon(&format!("{EAGER}{rules}"), &[]);
    let is_parked_for = |pid: u32| number("run") == 0 && state().1.contains(&format!("(pid {pid}) is of domain b"));
    wait_until("ksmd is parked for the other domain's", || is_parked_for(pids[1]));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((watch.end().1, number("run")), (0, 0));
    drop(foreign);
    wait_until("ksmd scans", || number("run") == 1);
    service.take_in("b", pids[0]);
    wait_until("ksmd is parked for the one that was moved", || is_parked_for(pids[0]));
    drop(own);
    daemon.end();
}

/// Options with which nothing but the RAM is offered: there is no firmware that would stay mergeable.
const RAM_ALONE: [&str; 4] =
    ["-machine", "pc,mem-merge=off,memory-backend=ram0", "-object", "memory-backend-ram,id=ram0,size=64M,merge=on"];

/// A guest that was kept apart is switched on when ksmd stands still, and else stays off, as the list says.
#[test]
fn a_switched_off_guest_is_switched_on_only_where_ksmd_stands_still() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(machines) = MachineDirectory::new() else { return };
    let start = |name: &str| {
        let machine = machines.start_with(name, &RAM_ALONE);
        wait_until("the guest is filled", || machine.rss_pages() > PAGES && machine.offers_ram());
        machine
    };
    let (own, foreign) = (start("own-1"), start("foreign-1"));
    let admits = |domain: &str| format!("{EAGER}{}", ONE.replace("admit = \"a\"", &format!("admit = {domain:?}")));
    let listed = || fs::read_to_string(UNDO).unwrap_or_default();

    // ksmd stood still before: it does again, and the guest is as it was.
    let watch = MergeWatcher::over(vec![foreign.0.id()]);
    let daemon = RunningProgram::daemon(&admits("a"), &[]);
    wait_until("the foreign guest is switched off", || !foreign.offers_ram());
    assert!(listed().contains("foreign-1") && listed().contains("domain"), "{}", listed());
    wait_until("ksmd scans", || number("run") == 1);
    passes(2);
    let log = daemon.end();
    assert!(foreign.offers_ram() && log.contains("merging of foreign-1"), "{log}");
    assert!(!Path::new(UNDO).exists(), "{}", listed());
    assert_eq!(watch.end().1, 0, "nothing of it was ever merged");

    // ksmd was running before, though over no pages: what is off stays off.
    support::write("pages_to_scan", "0");
    support::write("sleep_millisecs", "1000");
    support::write("run", "1");
    let daemon = RunningProgram::daemon(&admits("a"), &[]);
    wait_until("the foreign guest is switched off", || !foreign.offers_ram());
    let log = daemon.end();
    assert!(log.contains("stays off: KSM scans now (run=1)"), "{log}");
    assert!(!foreign.offers_ram() && listed().contains("foreign-1"));
    let (code, out, err) = ksmith(&["restore"]);
    assert!(code == 0 && out.contains("stays off") && !foreign.offers_ram(), "{out}{err}");

    // The next daemon knows of it: it admits the other domain, and the guests change places.
    let keeps = admits("b").replace("admit = \"b\"", "admit = \"b\"\non_exit = \"keep\"");
    let daemon = RunningProgram::daemon(&keeps, &[]);
    wait_until("the guests have changed places", || foreign.offers_ram() && !own.offers_ram());
    wait_until("the list says so", || listed().contains("own-1") && !listed().contains("foreign-1"));
    daemon.kill();

    // Killed, and nothing scans any more: restoring switches all guests on, unless the daemon was told to keep them off.
    // That is on the list: a configuration that can't be read keeps nothing from being restored.
    let (_file, typo) = support::program::config_file("[domains]\non_exti = \"restore\"\n");
    support::write("run", "0");
    support::write("pages_to_scan", "100");
    let (code, out, err) = ksmith(&["--config", &typo, "restore"]);
    assert!(code == 0 && out.contains("on_exit") && !own.offers_ram(), "{out}{err}");
    // A daemon that keeps no domains apart has no reason to keep it off.
    let daemon =
        RunningProgram::daemon("[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { run = 0 }\n", &[]);
    wait_until("it is on again", || own.offers_ram());
    daemon.end();
    assert!(!Path::new(UNDO).exists(), "{}", listed());
}

/// Without a daemon nothing would keep the domains apart meanwhile.
#[test]
fn a_scan_without_a_daemon_is_refused_where_domains_are_kept_apart() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let _guest = guest(&[MemoryPart::Equal { seed: 74, pages: 64 }]);
    for domains in [ONE, "[domains]\nmax_passes_per_hour = 4\n"] {
        let socket = "[daemon]\ncontrol_socket = \"/nonexistent/ksmith\"\n";
        let (_file, config) = support::program::config_file(&format!("{socket}{domains}"));
        let before = number("full_scans");
        let (code, _, err) = ksmith(&["--config", &config, "scan"]);
        assert!(code == 3 && err.contains("ksmith daemon"), "{code} {err}");
        assert_eq!(number("full_scans"), before);
    }
}
