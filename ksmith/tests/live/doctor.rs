//! `ksmith doctor PID` on the live kernel: for each cause a process that suffers from it, and nothing else named.

use crate::support;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{KernelLock, guest, hold_off_others, number, passes_until, vmstat, wait_until, write};
use ksmith_lab::{MemoryGuest, MemoryPart};
use serde_json::Value;

const PAGE: u64 = 4096;
/// Long enough, in seconds, to look through all mergeable memory, whatever others run here. The doctor ends earlier.
const LONG: u32 = 90;
const KSMITH: &str = env!("CARGO_BIN_EXE_ksmith");

/// Returns the doctor's JSON report on a process.
pub fn doctor(pid: u32, seconds: u32) -> Value {
    let output = Command::new(KSMITH)
        .args(["--json", "doctor", &pid.to_string(), "--seconds", &seconds.to_string()])
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["processes"].as_array().unwrap().len(), 1);
    report["processes"][0].clone()
}

/// Pages that the doctor puts down to a cause.
fn pages(report: &Value, cause: &str) -> u64 {
    let causes = report["causes"].as_array().unwrap();
    let bytes = causes.iter().find(|it| it["cause"] == cause).map_or(0, |it| it["bytes"].as_u64().unwrap());
    assert_eq!(bytes % PAGE, 0);
    bytes / PAGE
}

/// The causes of the memory that is marked mergeable, by pages.
fn marked(report: &Value) -> Vec<(String, u64)> {
    let mut sums = std::collections::BTreeMap::new();
    let mappings = report["mappings"].as_array().unwrap().iter().filter(|mapping| mapping["is_marked"] == true);
    for part in mappings.flat_map(|mapping| mapping["parts"].as_array().unwrap()) {
        *sums.entry(part["cause"].as_str().unwrap().to_owned()).or_insert(0) +=
            part["bytes"].as_u64().unwrap() / PAGE;
    }
    sums.into_iter().collect()
}

fn evidence(report: &Value, cause: &str) -> String {
    let causes = report["causes"].as_array().unwrap();
    let found = causes.iter().find(|it| it["cause"] == cause).unwrap();
    found["evidence"].as_str().unwrap_or("").to_owned()
}

/// Merged pages of a process. Other programs of this host may have mergeable memory too, so the host's figures tell
/// nothing.
fn merging(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/ksm_merging_pages")).unwrap();
    text.trim().parse().unwrap()
}

/// Lets ksmd run at full speed until it is stopped.
fn run_ksmd(smart_scan: bool) {
    write("smart_scan", if smart_scan { "1" } else { "0" });
    write("pages_to_scan", "20000");
    write("sleep_millisecs", "5");
    write("run", "1");
}

fn equal(seed: u64, pages: usize) -> MemoryPart {
    MemoryPart::Equal { seed, pages }
}

#[test]
fn what_can_not_merge_is_told_by_kind() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let parts = [
        MemoryPart::Unique { pages: 2048 },
        MemoryPart::Shared { pages: 700 },
        MemoryPart::Unmarked { pages: 500 },
    ];
    let guest = guest(&parts);
    let report = doctor(guest.pid(), LONG);
    assert_eq!(marked(&report), [("unique".to_owned(), 2048)]);
    assert_eq!(report["main"], "unique");
    assert_eq!(pages(&report, "shared"), 700);
    // Its own stack and heap come with the 500.
    assert!((500..1500).contains(&pages(&report, "not_marked")), "{report}");
    assert!(pages(&report, "file") > 0);
    assert_eq!(report["searched_bytes"], report["searchable_bytes"]);
    assert_eq!(evidence(&report, "not_marked"), "their VmFlags lack mg, and ksm_merge_any is no");
}

#[test]
fn a_ksmd_that_stands_still_is_named() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let [one, _other] = [guest(&[equal(51, 1024)]), guest(&[equal(51, 1024)])];
    let report = doctor(one.pid(), LONG);
    assert_eq!((report["main"].as_str(), marked(&report)), (Some("stopped"), vec![("stopped".to_owned(), 1024)]));
}

#[test]
fn the_doctor_leaves_everything_as_it_is() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let parts = [equal(52, 1024), MemoryPart::Zero { pages: 256 }, MemoryPart::Unique { pages: 256 }];
    let [mut one, mut other] = [guest(&parts), guest(&parts)];
    write("use_zero_pages", "1");
    let pids = [one.pid(), other.pid()];
    let zero = support::zero_pages();
    passes_until("they are merged", || pids.map(merging) == [1024; 2] && support::zero_pages() >= zero + 512);
    let state = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let after_name: Vec<String> = stat.rsplit(')').next().unwrap().split(' ').map(str::to_owned).collect();
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        // What the pages of its files count as depends on other processes of the same program.
        let own = ["Rss:", "Anonymous:", "KSM:", "AnonHugePages:", "Swap:", "Pss_Anon:"];
        let is_own = |line: &&str| own.iter().any(|name| line.starts_with(name));
        let figures: Vec<String> = rollup.lines().filter(is_own).map(str::to_owned).collect();
        assert_eq!(figures.len(), own.len());
        // Minor faults, what is in memory, KSM's own counts.
        (after_name[8].clone(), figures, fs::read_to_string(format!("/proc/{pid}/ksm_stat")).unwrap())
    };
    let all = |pids: [u32; 2]| {
        let host = ["pages_shared", "pages_sharing", "ksm_zero_pages", "full_scans"].map(number);
        (host, vmstat("cow_ksm"), pids.map(state))
    };
    // Another test's process may come between once; the doctor's own doing would show each time.
    let mut tries = (0..5).map(|_| {
        let before = all(pids);
        let report = doctor(pids[0], LONG);
        (before, all(pids), report)
    });
    let last = tries.by_ref().find(|(before, after, _)| before == after);
    let (_, _, report) = last.expect("the doctor disturbed what it looked at");
    let expected = [("merged", 1024), ("unique", 256), ("zero_page", 256)];
    assert_eq!(marked(&report), expected.map(|(cause, pages)| (cause.to_owned(), pages)));
    assert_eq!(report["main"], "merged");
    assert_eq!(one.wrong_pages().unwrap() + other.wrong_pages().unwrap(), 0);
}

/// Two guests 13 passes apart never meet while smart_scan is on (see the simulator's test of that name).
#[test]
fn the_trap_of_smart_scan_is_seen_and_named() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let pages = 4096;
    write("smart_scan", "1");
    write("pages_to_scan", "1000000");
    write("sleep_millisecs", "1000");
    let early = guest(&[equal(53, pages)]);
    // One pass per wake-up, so that the distance is exact.
    let begin = number("full_scans");
    write("run", "1");
    wait_until("13 passes are done", || {
        let done = number("full_scans") - begin;
        if done < 13 {
            // A changed value wakes ksmd at once.
            let sleep = if number("sleep_millisecs") == 1000 { "1001" } else { "1000" };
            write("sleep_millisecs", sleep);
        }
        done >= 13
    });
    write("run", "0");
    assert_eq!(number("full_scans") - begin, 13);
    let late = guest(&[equal(53, pages)]);
    write("pages_to_scan", "100000");
    write("sleep_millisecs", "20");
    write("run", "1");
    wait_until("30 more passes are done", || number("full_scans") - begin >= 43);
    assert_eq!(merging(early.pid()) + merging(late.pid()), 0, "the trap did not close");
    for pid in [early.pid(), late.pid()] {
        let report = doctor(pid, LONG);
        assert_eq!(marked(&report), [("smart_scan".to_owned(), pages as u64)]);
        assert_eq!(report["main"], "smart_scan");
        let evidence = evidence(&report, "smart_scan");
        assert!(evidence.contains("passes ended while ksmith watched"), "{evidence}");
    }
    assert_eq!(merging(early.pid()) + merging(late.pid()), 0);
    passes_until("the remedy works", || [early.pid(), late.pid()].map(merging) == [pages as u64; 2]);
}

#[test]
fn memory_not_visited_twice_is_named() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let [one, _other] = [guest(&[equal(54, 2048)]), guest(&[equal(54, 2048)])];
    write("smart_scan", "1");
    write("pages_to_scan", "10");
    write("sleep_millisecs", "100");
    write("run", "1");
    let report = doctor(one.pid(), 3);
    assert_eq!(report["main"], "not_visited_twice", "{report}");
    assert!(pages(&report, "not_visited_twice") >= 2000);
}

#[test]
fn pages_that_change_are_told_from_those_that_stay() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let every = std::time::Duration::from_millis(50);
    let guest = guest(&[MemoryPart::Churn { pages: 512, every }, MemoryPart::Unique { pages: 512 }]);
    run_ksmd(true);
    let report = doctor(guest.pid(), LONG);
    assert_eq!(marked(&report), [("changing".to_owned(), 512), ("unique".to_owned(), 512)]);
    assert!(evidence(&report, "changing").contains("had other content"));
}

/// 1,000 copies in frames of 256: three frames more than one content needs.
#[test]
fn a_content_with_more_copies_than_a_frame_may_serve_is_named() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let guest = guest(&[MemoryPart::Same { seed: 55, pages: 1000 }]);
    passes_until("all are merged", || merging(guest.pid()) == 1000);
    let report = doctor(guest.pid(), LONG);
    assert_eq!(marked(&report), [("chain_limit".to_owned(), 3), ("merged".to_owned(), 997)]);
    assert_eq!(evidence(&report, "chain_limit"), "one content has 1000 copies, and max_page_sharing is 256");
}

/// The 257th copy finds no room in the full frame and no partner to begin another.
#[test]
fn the_odd_copy_beyond_a_full_frame_is_named() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let full = guest(&[MemoryPart::Same { seed: 56, pages: 256 }]);
    passes_until("all are merged", || merging(full.pid()) == 256);
    let odd = guest(&[MemoryPart::Same { seed: 56, pages: 1 }]);
    run_ksmd(false);
    let report = doctor(odd.pid(), LONG);
    assert_eq!(marked(&report), [("chain_limit".to_owned(), 1)], "{report}");
}

#[test]
fn huge_pages_are_split_unless_something_holds_them() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let huge = |seed| guest(&[MemoryPart::Huge { seed, pages: 2048 }]);
    let [mut held, free, other] = [huge(57), huge(58), huge(58)];
    let partner = huge(57);
    let report = doctor(free.pid(), LONG);
    if [&report, &doctor(held.pid(), LONG)].iter().any(|it| it["huge_bytes"] != 2048 * PAGE) {
        return support::skipped("this machine gave no transparent huge pages");
    }
    assert_eq!(report["main"], "stopped");
    held.hold(0).unwrap();
    run_ksmd(false);
    let begin = number("full_scans");
    wait_until("four passes are done", || number("full_scans") >= begin + 4);
    wait_until("the free one is merged", || merging(free.pid()) == 2048);
    let report = doctor(free.pid(), LONG);
    assert_eq!((marked(&report), &report["huge_bytes"]), (vec![("merged".to_owned(), 2048)], &Value::from(0)));
    let report = doctor(held.pid(), LONG);
    assert_eq!(report["main"], "huge_page", "{report}");
    assert_eq!(marked(&report), [("huge_page".to_owned(), 2048)]);
    drop((partner, other));
}

#[test]
fn a_page_that_something_holds_is_named() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut held = guest(&[equal(59, 512)]);
    let _partner = guest(&[equal(59, 512)]);
    held.hold(0).unwrap();
    run_ksmd(false);
    let begin = number("full_scans");
    wait_until("four passes are done", || number("full_scans") >= begin + 4);
    wait_until("all but the held one are merged", || merging(held.pid()) == 511);
    let report = doctor(held.pid(), LONG);
    assert_eq!(marked(&report), [("held".to_owned(), 1), ("merged".to_owned(), 511)], "{report}");
}

/// Huge pages set aside for a test, given back at its end.
struct HugetlbPool(String);

impl HugetlbPool {
    const FILE: &str = "/proc/sys/vm/nr_hugepages";

    fn reserve(pages: u64) -> Option<Self> {
        let before = fs::read_to_string(Self::FILE).ok()?;
        let pool = Self(before.trim().to_owned());
        fs::write(Self::FILE, (pool.0.parse::<u64>().ok()? + pages).to_string()).ok()?;
        let now: u64 = fs::read_to_string(Self::FILE).ok()?.trim().parse().ok()?;
        (now >= pages).then_some(pool)
    }
}

impl Drop for HugetlbPool {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, &self.0);
    }
}

#[test]
fn hugetlbfs_is_named() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(pool) = HugetlbPool::reserve(2) else { return support::skipped("no pages of hugetlbfs to be had") };
    let guest = guest(&[MemoryPart::Hugetlb { pages: 1024 }]);
    let report = doctor(guest.pid(), LONG);
    assert_eq!((pages(&report, "hugetlb"), report["main"].as_str()), (1024, Some("hugetlb")), "{report}");
    drop(guest);
    drop(pool);
}

/// A process opts in as a whole before exec, and takes it back. (That ksmd clears the flag of a process in which it
/// finds nothing happens no more since Linux 6.18; it leaves the same traces.)
#[test]
fn an_opt_in_that_is_gone_is_named() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut command = Command::new(KSMITH);
    command.args(["memory-guest", "equal:60:512"]).env("LD_PRELOAD", "libksmith.so");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    #[allow(unsafe_code, reason = "the prctl of the child, before exec")]
    // SAFETY: prctl alone is called between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::prctl(67, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let Ok(mut child) = command.spawn() else { return support::skipped("this kernel has no PR_SET_MEMORY_MERGE") };
    let pid = child.id();
    let (mut commands, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut answers = std::io::BufRead::lines(std::io::BufReader::new(answers));
    assert_eq!(answers.next().unwrap().unwrap(), "ready");
    let ksm_stat = || fs::read_to_string(format!("/proc/{pid}/ksm_stat")).unwrap();
    assert!(ksm_stat().contains("ksm_merge_any: yes"), "{}", ksm_stat());
    assert_eq!(doctor(pid, LONG)["main"], "unique");
    std::io::Write::write_all(&mut commands, b"opt-out\n").unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), "ok");
    assert!(ksm_stat().contains("ksm_merge_any: no"), "{}", ksm_stat());
    let report = doctor(pid, LONG);
    assert_eq!(report["main"], "opt_in_lost", "{report}");
    assert!(pages(&report, "opt_in_lost") >= 512);
    assert!(evidence(&report, "opt_in_lost").contains("LD_PRELOAD=libksmith"));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// No VFIO device is to be had here: a tree with the files of a QEMU that drives one.
#[test]
fn a_guest_with_a_vfio_device_is_told_from_its_files() {
    let tree = tempfile::tempdir().unwrap();
    let process = tree.path().join("proc/4242");
    fs::create_dir_all(process.join("fd")).unwrap();
    fs::write(process.join("stat"), format!("4242 (qemu-system-x86) S 1{}\n", " 0".repeat(48))).unwrap();
    fs::write(process.join("cmdline"), "qemu-system-x86_64\0-name\0guest=gpu\0").unwrap();
    let smaps = "7f0000000000-7f0040000000 rw-p 00000000 00:00 0 \nKernelPageSize: 4 kB\nRss: 1048576 kB\nAnonymous: 1048576 kB\n\
                 AnonHugePages: 0 kB\nKSM: 0 kB\nVmFlags: rd wr mr mw me ac sd mg\n";
    fs::write(process.join("smaps"), smaps).unwrap();
    fs::write(process.join("ksm_stat"), "ksm_rmap_items 262144\nksm_merge_any: no\nksm_mergeable: yes\n").unwrap();
    std::os::unix::fs::symlink("/dev/vfio/12", process.join("fd/20")).unwrap();
    let run = |wanted: &str| {
        Command::new(KSMITH).arg("--json").arg("--root").arg(tree.path()).args(["doctor", wanted]).output().unwrap()
    };
    let output = run("gpu");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &report["processes"][0];
    assert_eq!((report["main"].as_str(), pages(report, "vfio")), (Some("vfio"), 1 << 18));
    assert_eq!(report["unseen"][0], "its pages: a captured tree has none");
    fs::remove_file(process.join("fd/20")).unwrap();
    let report: Value = serde_json::from_slice(&run("4242").stdout).unwrap();
    assert_eq!(report["processes"][0]["main"], "unseen", "without the device its pages would have to be seen");
    let output = run("no-guest-is-called-so");
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no guest and no process"));
}

/// As another user the program can't look into root's processes, and says so; of its own it sees the mappings.
#[test]
fn an_unprivileged_doctor_says_what_it_can_not_see() {
    if !rustix::process::geteuid().is_root() {
        return support::skipped("only root can become another user");
    }
    let _others_wait = hold_off_others();
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let program = place.path().join("ksmith");
    support::copy_program(Path::new(KSMITH), &program);
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let unprivileged = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).uid(65534).gid(65534).current_dir("/");
        command
    };
    let output = unprivileged(&["doctor", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stderr).contains("run ksmith as root, or as the process's user"));
    let own = unprivileged(&["memory-guest", "unique:64"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut own = own.unwrap();
    std::io::Read::read_exact(own.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    let output = unprivileged(&["--json", "doctor", &own.id().to_string()]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &report["processes"][0];
    assert!(marked(report).iter().any(|it| *it == ("unseen".to_owned(), 64)), "{report}");
    assert_eq!(report["unseen"][0], "its pages: /proc/kpageflags is for root");
    own.kill().unwrap();
    own.wait().unwrap();
}

/// A guest is found by its name, and a PID that no process has is refused.
#[test]
fn a_process_is_found_by_name_or_pid() {
    let _others_wait = hold_off_others();
    let guest: MemoryGuest = guest(&[MemoryPart::Unique { pages: 16 }]);
    assert_eq!(doctor(guest.pid(), LONG)["pid"], guest.pid());
    let output = Command::new(KSMITH).args(["doctor", "4194305"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(Path::new("/proc/2/stat").exists());
    let output = Command::new(KSMITH).args(["doctor", "2"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("kernel thread"));
}
