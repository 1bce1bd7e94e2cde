//! `ksmith estimate` on the live kernel: what it says is what ksmd then merges, and it leaves no trace.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::support::{
    KernelLock, clean_passes, copy_program, guest, hold_off_ksm, number, passes_until, skipped, vmstat, wait_until,
    write, zero_pages,
};
use ksmith_core::sketch::MergeRules;
use ksmith_host::estimate::{EstimateMode, EstimateOptions, EstimateReport, TargetSelection, estimate};
use ksmith_host::memory::salt::FingerprintSalt;
use ksmith_lab::{MemoryGuest, MemoryPart};

const PAGE: u64 = 4096;

fn options(guests: &[MemoryGuest], mode: EstimateMode) -> EstimateOptions {
    let pids = guests.iter().map(MemoryGuest::pid).collect();
    let mut options = EstimateOptions::new(TargetSelection { pids, ..TargetSelection::default() });
    options.mode = mode;
    options.threads = 2;
    options
}

fn run_estimate(guests: &[MemoryGuest], mode: EstimateMode) -> EstimateReport {
    estimate(&options(guests, mode)).unwrap()
}

fn ksmith(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ksmith")).args(arguments).output().unwrap()
}

/// Bytes that KSM saves now.
fn saved() -> f64 {
    ((number("pages_sharing") + zero_pages()) * PAGE) as f64
}

/// A Python that runs `script` until its input ends, and the line that it has said. `None`, said loudly, where there is
/// none.
fn python(script: &str, adjust: impl FnOnce(&mut Command)) -> Option<(Child, String)> {
    let mut command = Command::new("python3");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    adjust(&mut command);
    let Ok(mut child) = command.spawn() else {
        skipped("python3 is not installed");
        return None;
    };
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Some((child, line))
}

fn rss(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Guests that share a lot, a little, with themselves, nothing, or mostly zeros.
fn scenarios() -> Vec<(&'static str, Vec<Vec<MemoryPart>>)> {
    let equal = |seed, pages| MemoryPart::Equal { seed, pages };
    let (zero, unique) = (|pages| MemoryPart::Zero { pages }, |pages| MemoryPart::Unique { pages });
    vec![
        ("clones", vec![vec![equal(1, 8192), unique(512)]; 3]),
        ("half equal, some zero", vec![vec![equal(1, 4096), zero(1024), unique(3072)]; 2]),
        ("within one guest", vec![vec![equal(2, 4096), equal(2, 4096), unique(1024)]]),
        ("a chain of four", (0..4).map(|i| vec![equal(i, 2048), equal(i + 1, 2048), unique(1024)]).collect()),
        ("nothing in common", vec![vec![unique(4096)]; 2]),
        ("mostly zero", vec![vec![zero(8192), unique(512)]; 2]),
    ]
}

#[test]
fn what_clean_passes_merge_is_what_exact_said() {
    let Some(_lock) = KernelLock::acquire() else { return };
    // Without any mergeable memory ksmd makes no passes.
    let _bait = guest(&[MemoryPart::Unique { pages: 1 }]);
    for use_zero_pages in [false, true] {
        for (name, parts) in scenarios() {
            // Without zero pages in it a scenario is the same again.
            if use_zero_pages && !parts.concat().iter().any(|part| matches!(part, MemoryPart::Zero { .. })) {
                continue;
            }
            write("run", "2");
            write("use_zero_pages", if use_zero_pages { "1" } else { "0" });
            // What strangers on this host save among themselves.
            clean_passes(3);
            let strangers = saved();
            let guests: Vec<MemoryGuest> = parts.iter().map(|parts| guest(parts)).collect();
            let rules = MergeRules { max_page_sharing: number("max_page_sharing"), use_zero_pages };
            // A 95 % interval of fresh draws misses one time in twenty: the salt is fixed, and so are the draws.
            let salt = Some(FingerprintSalt::from_seed(1));
            let with_rules =
                |mode| estimate(&EstimateOptions { rules, salt: salt.clone(), ..options(&guests, mode) }).unwrap();
            let (exact, sketch) = (with_rules(EstimateMode::Exact), with_rules(EstimateMode::Sketch));
            let sample = with_rules(EstimateMode::Sample(0.05));
            clean_passes(3);
            let merged = saved() - strangers;
            let present = exact.total.present_bytes as f64;
            let expected = exact.total.expected_saved_bytes as f64;
            println!("{name}, use_zero_pages={use_zero_pages}: {expected} expected, {merged} merged of {present}");
            // Of what is merged, or of all if that is next to nothing.
            assert!((expected - merged).abs() <= 0.02 * merged.max(0.02 * present), "{name}: {expected} {merged}");
            let (low, high) = (sketch.total.low_bytes as f64, sketch.total.high_bytes as f64);
            assert!(
                low <= merged * 1.02 && merged <= high * 1.02 + 0.0004 * present,
                "{name}: {low} {high} {merged}"
            );
            let (low, high) = (sample.total.low_bytes as f64, sample.total.high_bytes as f64);
            assert!(low <= merged * 1.02 && merged <= high * 1.02, "{name}: {low} {high} {merged}");
        }
    }
}

#[test]
fn merged_guests_stay_merged_and_are_estimated_alike() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let parts = [
        MemoryPart::Equal { seed: 9, pages: 4096 },
        MemoryPart::Zero { pages: 1024 },
        MemoryPart::Unique { pages: 512 },
    ];
    write("use_zero_pages", "1");
    // Without any mergeable memory ksmd makes no passes.
    let _bait = guest(&[MemoryPart::Unique { pages: 1 }]);
    clean_passes(3);
    let strangers = (number("pages_sharing"), zero_pages());
    let guests = [guest(&parts), guest(&parts)];
    let rules = MergeRules { use_zero_pages: true, ..MergeRules::default() };
    let with_rules = |mode| estimate(&EstimateOptions { rules, ..options(&guests, mode) }).unwrap();
    let before = with_rules(EstimateMode::Exact);
    passes_until("the guests are merged", || {
        number("pages_sharing") >= strangers.0 + 4096 && zero_pages() >= strangers.1 + 2048
    });
    let figures = || {
        let rss: Vec<u64> = guests.iter().map(|guest| rss(guest.pid())).collect();
        (vmstat("cow_ksm"), number("pages_sharing"), number("pages_shared"), zero_pages(), rss)
    };
    let merged = figures();
    assert_eq!((merged.1 - strangers.0, merged.3 - strangers.1), (4096, 2048));
    for mode in [EstimateMode::Exact, EstimateMode::Sketch, EstimateMode::Sample(0.2)] {
        // With ksmd at work as well as without.
        for run in ["0", "1"] {
            write("run", run);
            let report =
                estimate(&EstimateOptions { again: Some(Duration::ZERO), rules, ..options(&guests, mode) })
                    .unwrap();
            assert_eq!(report.total.merged_bytes, (2 * 4096 + 2048) * PAGE, "{mode:?}");
            let (now, then) = (report.total.expected_saved_bytes as f64, before.total.expected_saved_bytes as f64);
            if !matches!(mode, EstimateMode::Sample(_)) {
                assert!((now - then).abs() <= 0.01 * then, "{mode:?}: {now} after merging, {then} before");
                assert_eq!(report.total.zero_bytes, 2048 * PAGE);
            }
            // Never less than is there, and no memory that is not marked: 2 x 5632 pages.
            assert_eq!(report.total.present_bytes, before.total.present_bytes, "{mode:?}");
        }
    }
    assert_eq!(figures(), merged, "something was un-merged or faulted in");
}

/// A mapping that was never touched, and one that was only read: reading them would fill them, or map zero pages.
#[test]
fn what_is_not_present_stays_so_and_does_not_count() {
    let _ksm_waits = hold_off_ksm();
    let size = 64 << 20;
    let script = format!(
        "import mmap,sys\nm=mmap.mmap(-1,{size},flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS)\n\
         r=mmap.mmap(-1,{size},flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS)\n\
         s=sum(r[i] for i in range(0,{size},4096))\nm[0:4096]=b'x'*4096\nprint('ready',flush=True)\nsys.stdin.read()\n"
    );
    let Some((mut child, _)) = python(&script, |_| ()) else { return };
    let pid = child.id();
    let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    wait_until("Python waits for its input", || stat().contains(") S "));
    let before = rss(pid);
    for mode in [EstimateMode::Exact, EstimateMode::Sketch, EstimateMode::Sample(0.5)] {
        let mut options = EstimateOptions::new(TargetSelection { pids: vec![pid], ..TargetSelection::default() });
        options.mode = mode;
        options.again = Some(Duration::ZERO);
        let report = estimate(&options).unwrap();
        assert!(!report.total.is_mergeable);
        assert!(
            report.verdict.contains("opted in") || matches!(mode, EstimateMode::Sample(_)),
            "{mode:?}: {}",
            report.verdict
        );
        // A Python with next to nothing has some 4 MiB of its own.
        assert!(report.total.present_bytes < 24 << 20, "{mode:?}: {}", report.total.present_bytes);
        assert!(report.total.zero_bytes < 8 << 20, "{mode:?}: {}", report.total.zero_bytes);
    }
    assert_eq!(rss(pid), before);
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn changing_pages_are_found_and_do_not_count_as_saved() {
    let _ksm_waits = hold_off_ksm();
    let churn = MemoryPart::Churn { pages: 1024, every: Duration::from_millis(1) };
    let guests = [
        guest(&[MemoryPart::Equal { seed: 4, pages: 2048 }, churn]),
        guest(&[MemoryPart::Equal { seed: 4, pages: 2048 }]),
    ];
    for mode in [EstimateMode::Exact, EstimateMode::Sketch, EstimateMode::Sample(0.5)] {
        let again = Some(Duration::from_millis(700));
        let report = estimate(&EstimateOptions { again, ..options(&guests, mode) }).unwrap();
        let changing = report.guests[0].changing_bytes.unwrap() as f64 / PAGE as f64;
        assert!((changing - 1024.0).abs() < 150.0, "{mode:?}: {changing}");
        assert!(report.guests[1].changing_bytes.unwrap() < 80 * PAGE, "{mode:?}");
        let truth = (2048 * PAGE) as f64;
        let (low, high) = (report.total.low_bytes as f64, report.total.high_bytes as f64);
        assert!(low <= truth * 1.02 && truth <= high * 1.02, "{mode:?}: {low} {high}");
    }
    assert_eq!(run_estimate(&guests, EstimateMode::Exact).total.changing_bytes, None, "one look can't tell");
}

/// A parent and two children that never wrote to what they inherited: one frame each, nothing to save.
#[test]
fn what_is_one_frame_since_a_fork_is_not_saved_again() {
    let _ksm_waits = hold_off_ksm();
    let script = "import os,sys\nb=os.urandom(32<<20)\nc=[]\nfor i in range(2):\n  p=os.fork()\n  \
                  if p==0: sys.stdin.read();os._exit(0)\n  c.append(p)\nprint(os.getpid(),*c,flush=True)\nsys.stdin.read()\n";
    let Some((mut child, line)) = python(script, |_| ()) else { return };
    let pids: Vec<u32> = line.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    let twice = Some(Duration::from_millis(100));
    let looks = [EstimateMode::Exact, EstimateMode::Sketch, EstimateMode::Sample(0.5)]
        .into_iter()
        .flat_map(|mode| [(mode, None), (mode, twice)]);
    for (mode, again) in looks {
        let mut options =
            EstimateOptions::new(TargetSelection { pids: pids.clone(), ..TargetSelection::default() });
        options.mode = mode;
        options.again = again;
        let report = estimate(&options).unwrap();
        let total = &report.total;
        assert_eq!(total.changing_bytes.is_some(), again.is_some());
        assert!(total.changing_bytes < Some(2 << 20), "{mode:?}: {:?} of them change", total.changing_bytes);
        assert!(total.ineligible["forked"] > 60 << 20, "{mode:?}: {:?}", total.ineligible);
        assert!((30 << 20..48 << 20).contains(&total.present_bytes), "{mode:?}: {}", total.present_bytes);
        assert!(total.low_bytes < 2 << 20, "{mode:?}: {}", total.low_bytes);
        if !matches!(mode, EstimateMode::Sample(_)) {
            assert!(total.expected_saved_bytes < 4 << 20, "{mode:?}: {}", total.expected_saved_bytes);
        }
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn pairs_are_told_apart() {
    let _ksm_waits = hold_off_ksm();
    let equal = |seed| [MemoryPart::Equal { seed, pages: 1024 }, MemoryPart::Unique { pages: 256 }];
    let guests = [guest(&equal(1)), guest(&equal(1)), guest(&equal(2))];
    let report = estimate(&EstimateOptions { wants_pairs: true, ..options(&guests, EstimateMode::Exact) }).unwrap();
    let shared = report.matrix.unwrap().shared_bytes;
    let pages = |a: usize, b: usize| shared[a][b] / PAGE;
    assert_eq!((pages(0, 1), pages(1, 0)), (1024, 1024));
    assert!(pages(0, 2) < 16 && pages(1, 2) < 16, "a few pages of the allocator at most");
}

#[test]
fn a_guest_that_is_killed_half_way_ends_cleanly() {
    let _ksm_waits = hold_off_ksm();
    let parts = [MemoryPart::Equal { seed: 1, pages: 4096 }];
    let (staying, leaving) = (guest(&parts), guest(&parts));
    let pid = leaving.pid();
    let guests = [staying, leaving];
    // Slow enough that the end comes in the middle: 32 MiB at 16 MiB/s.
    let mut options = options(&guests, EstimateMode::Exact);
    options.max_rate = Some(16 << 20);
    let [staying, leaving] = guests;
    let report = std::thread::scope(|scope| {
        let reader = scope.spawn(|| estimate(&options).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        drop(leaving);
        reader.join().unwrap()
    });
    assert_eq!(report.skipped.iter().map(|skipped| skipped.pid).collect::<Vec<_>>(), [pid]);
    assert!(report.skipped[0].reason.contains("ended"));
    let stayed = report.guests.iter().find(|guest| guest.pid == Some(staying.pid())).unwrap();
    assert_eq!(stayed.present_bytes, 4096 * PAGE);
    assert_eq!(report.total.equal_across_bytes, 0, "an ended guest's pages are equal to no other");
}

#[test]
fn the_rate_is_kept() {
    let _ksm_waits = hold_off_ksm();
    let guests = [guest(&[MemoryPart::Unique { pages: 2048 }])];
    let mut options = options(&guests, EstimateMode::Sketch);
    options.max_rate = Some(16 << 20);
    // 8 MiB at 16 MiB/s; the last piece need not be waited for.
    assert!(estimate(&options).unwrap().seconds > 0.4);
}

#[test]
fn processes_that_cannot_be_read_are_named_and_the_rest_goes_on() {
    let _ksm_waits = hold_off_ksm();
    let guests = [guest(&[MemoryPart::Equal { seed: 1, pages: 512 }])];
    let pid = guests[0].pid().to_string();
    let output = ksmith(&["estimate", "--json", "2", "4194303", &pid]);
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["guests"].as_array().unwrap().len(), 1);
    let reasons: Vec<&str> =
        json["skipped"].as_array().unwrap().iter().map(|it| it["reason"].as_str().unwrap()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("kernel thread")), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("no such process")), "{reasons:?}");
    let output = ksmith(&["estimate", "4194303"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such process"));
}

#[test]
fn json_has_the_promised_keys() {
    let _ksm_waits = hold_off_ksm();
    let guests = [guest(&[MemoryPart::Equal { seed: 1, pages: 512 }])];
    let output = ksmith(&["estimate", "--json", "--exact", &guests[0].pid().to_string()]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in ["mode", "read_bytes", "seconds", "cpu_seconds", "verdict"] {
        assert!(!json[key].is_null(), "{key}");
    }
    for part in [&json["guests"][0], &json["total"]] {
        for key in [
            "name",
            "pid",
            "present_bytes",
            "zero_bytes",
            "equal_within_bytes",
            "equal_across_bytes",
            "merged_bytes",
            "changing_bytes",
            "ineligible",
            "expected_saved_bytes",
            "low_bytes",
            "high_bytes",
            "metadata_bytes",
            "net_profit_bytes",
            "ksmd_cpu_seconds",
        ] {
            assert!(part.get(key).is_some(), "{key}");
        }
    }
    assert_eq!(json["guests"][0]["present_bytes"], 512 * PAGE);
    assert_eq!(json["mode"], "exact");
}

/// One's own processes can be estimated without any privilege, though the kernel hides their frames.
#[test]
fn own_processes_need_no_privilege() {
    let _ksm_waits = hold_off_ksm();
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can become another user");
    }
    let (_directory, program) = program_for_all();
    let script = "import os,sys,mmap\nm=[mmap.mmap(-1,8<<20,flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS) for i in range(3)]\n\
                  r=os.urandom(8<<20)\nm[0][:]=bytes(8<<20)\nm[1][:]=r\nm[2][:]=r\nprint('ready',flush=True)\nsys.stdin.read()\n";
    let unprivileged = |command: &mut Command| {
        command.uid(65_534).gid(65_534);
    };
    let Some((mut child, _)) = python(script, unprivileged) else { return };
    let arguments = ["estimate", "--exact", "--json", &child.id().to_string()];
    let output = Command::new(&program).args(arguments).uid(65_534).gid(65_534).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mib = |key: &str| json["total"][key].as_u64().unwrap() >> 20;
    assert!((8..12).contains(&mib("zero_bytes")), "{json}");
    assert!((7..10).contains(&mib("equal_within_bytes")), "{json}");
    assert!((32..48).contains(&mib("present_bytes")), "{json}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// A copy of the program that any user can run: the build's directory may be out of reach.
fn program_for_all() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("ksmith");
    copy_program(Path::new(env!("CARGO_BIN_EXE_ksmith")), &program);
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(directory.path(), mode).unwrap();
    (directory, program)
}

#[test]
fn without_privilege_it_says_so_and_ends_with_5() {
    let _ksm_waits = hold_off_ksm();
    let guests = [guest(&[MemoryPart::Equal { seed: 1, pages: 16 }])];
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can become another user");
    }
    let (_directory, program) = program_for_all();
    let pid = guests[0].pid().to_string();
    let output = Command::new(&program).args(["estimate", &pid]).uid(65_534).gid(65_534).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("root"));
    let output = Command::new(&program).args(["estimate", "--all"]).uid(65_534).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
}
