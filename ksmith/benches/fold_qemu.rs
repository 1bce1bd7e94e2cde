//! Memory that a guest has freed, and what gives it back to the host: one pass of `ksmith fold`, KSM with `use_zero_pages`, or the
//! guest itself by its balloon's free page reporting. The guest's kernel empties what it frees (`init_on_free=1`).
//!
//! `cargo bench -p ksmith --bench fold_qemu -- [MIB] [REPEAT]`, as root on a host where KSM is not in use, after
//! `make target/guest-kernel`. A guest of twice MIB under QEMU's emulation fills MIB of a file system in memory with random bytes,
//! and removes them. QEMU asks for huge pages by itself. Figures are medians.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]
#![allow(unsafe_code, reason = "the CPU time of children")]
#![allow(missing_docs, reason = "no other crate names these")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fmt;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use ksmith_core::kernel::{PidStat, SmapsRollup};
use ksmith_host::ksmd;
use ksmith_host::root::Root;
use ksmith_lab::measure::Spread;
use support::KernelLock;
use support::linux::{APPEND, LinuxGuest, LinuxKit};

const PATIENCE: Duration = Duration::from_secs(240);

/// The time over which the memory of a guest is measured after it was freed.
const WATCHED: Duration = Duration::from_secs(40);

const MIB: u64 = 1 << 20;

/// A mechanism that gives a guest's free memory back to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReclaimMethod {
    Nothing,
    /// Two clean passes of ksmd, with `use_zero_pages`.
    Ksm,
    /// One pass of `ksmith fold`.
    Fold,
    /// Free page reporting of virtio-balloon.
    Reporting,
}

impl ReclaimMethod {
    const ALL: [Self; 4] = [Self::Nothing, Self::Fold, Self::Ksm, Self::Reporting];
}

impl fmt::Display for ReclaimMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "nothing",
            Self::Ksm => "KSM (`ksmith scan`)",
            Self::Fold => "`ksmith fold`",
            Self::Reporting => "free page reporting",
        })
    }
}

/// The figures of one guest.
#[derive(Debug, Clone, Copy)]
struct ReclaimRun {
    /// QEMU's memory before the guest freed, and at the end, in bytes.
    before: u64,
    after: u64,
    /// Seconds until nine tenths of what was given back had been. `None` where hardly anything was.
    nine_tenths: Option<f64>,
    /// The part of QEMU's memory that was in huge pages before, in bytes.
    huge: u64,
    /// CPU seconds of QEMU, ksmd and ksmith while it was watched.
    qemu_cpu: f64,
    ksmd_cpu: f64,
    ksmith_cpu: f64,
    /// Seconds in which the guest filled and freed as much with zeros afterwards.
    again: f64,
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let (mib, repeat) = (numbers.first().copied().unwrap_or(384), numbers.get(1).copied().unwrap_or(3));
    let Some(lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let Some(kit) = LinuxKit::make(directory.path(), &[]) else { return };
    let mut runs = Vec::new();
    for number in 1..=repeat {
        for way in ReclaimMethod::ALL {
            let run = play(&kit, way, mib);
            eprintln!("{number}/{repeat} {way}: {run:?}");
            runs.push((way, run));
        }
    }
    drop(lock);
    println!(
        "| given back by | before, MiB | of it huge | after | given back | nine tenths after | ksmith's CPU | ksmd's CPU | QEMU's CPU | filled again in |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for way in ReclaimMethod::ALL {
        let of = |figure: &dyn Fn(&ReclaimRun) -> f64| {
            let chosen = runs.iter().filter(|(ran, _)| *ran == way);
            Spread::from_values(chosen.map(|(_, run)| Some(figure(run)))).median.unwrap_or(f64::NAN)
        };
        println!(
            "| {way} | {:.0} | {:.0} | {:.0} | {:.0} % | {:.2} s | {:.2} s | {:.2} s | {:.2} s | {:.2} s |",
            of(&|run| (run.before / MIB) as f64),
            of(&|run| (run.huge / MIB) as f64),
            of(&|run| (run.after / MIB) as f64),
            of(&|run| run.before.saturating_sub(run.after) as f64 / (mib * MIB) as f64 * 100.0),
            of(&|run| run.nine_tenths.unwrap_or(f64::NAN)),
            of(&|run| run.ksmith_cpu),
            of(&|run| run.ksmd_cpu),
            of(&|run| run.qemu_cpu),
            of(&|run| run.again),
        );
    }
}

fn play(kit: &LinuxKit, way: ReclaimMethod, mib: u64) -> ReclaimRun {
    let append = format!("{APPEND} init_on_free=1");
    let mut options = vec!["-append", append.as_str(), "-device"];
    options.push(if way == ReclaimMethod::Reporting {
        "virtio-balloon-pci,free-page-reporting=on"
    } else {
        "virtio-balloon-pci"
    });
    if way == ReclaimMethod::Ksm {
        options.extend(["-machine", "pc,mem-merge=on"]);
        support::write("use_zero_pages", "1");
    }
    let mut guest = kit.start("guest", 2 * mib, None, &options);
    assert!(guest.boot(PATIENCE), "{}", guest.console());
    assert!(guest.leak("filled", mib, PATIENCE), "{}", guest.console());
    let pid = guest.pid();
    let (before, huge, cpu) = (memory(pid), huge_bytes(pid), seconds(pid));
    let (ksmd_cpu, ksmith_cpu) = (ksmd_seconds(), children_seconds());
    assert!(guest.run("rm /leak/filled", PATIENCE).is_some(), "{}", guest.console());
    let freed = Instant::now();
    let pid_word = pid.to_string();
    let arguments = match way {
        ReclaimMethod::Fold => Some(vec!["fold", "--json", &pid_word]),
        ReclaimMethod::Ksm => Some(vec!["scan", "--json"]),
        ReclaimMethod::Nothing | ReclaimMethod::Reporting => None,
    };
    let mut ksmith = arguments.map(|arguments| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ksmith"));
        command.args(arguments).stdout(std::process::Stdio::null()).spawn().unwrap()
    });
    let mut seen = Vec::new();
    while freed.elapsed() < WATCHED {
        seen.push((freed.elapsed().as_secs_f64(), memory(pid)));
        std::thread::sleep(Duration::from_millis(50));
    }
    if let Some(ksmith) = &mut ksmith {
        assert!(ksmith.wait().unwrap().success(), "{way}");
    }
    let after = memory(pid);
    let goal = before.saturating_sub(before.saturating_sub(after) / 10 * 9);
    let is_much = before.saturating_sub(after) > mib * MIB / 20;
    let nine_tenths = seen.iter().find(|(_, bytes)| is_much && *bytes <= goal).map(|(at, _)| *at);
    let (qemu_cpu, ksmd_cpu) = (seconds(pid) - cpu, ksmd_seconds() - ksmd_cpu);
    let ksmith_cpu = children_seconds() - ksmith_cpu;
    let again = Instant::now();
    assert!(guest.touch(mib, PATIENCE), "{}", guest.console());
    let again = again.elapsed().as_secs_f64();
    end(guest);
    ReclaimRun { before, huge, after, nine_tenths, qemu_cpu, ksmd_cpu, ksmith_cpu, again }
}

/// Ends a guest, and leaves KSM as the next one wants it.
fn end(mut guest: LinuxGuest) {
    guest.end();
    support::write("run", "2");
    support::write("run", "0");
    support::write("use_zero_pages", "0");
}

/// PSS and swap of a process in bytes.
fn memory(pid: u32) -> u64 {
    let rollup = SmapsRollup::parse(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap()).unwrap();
    rollup.pss.unwrap() + rollup.swap.unwrap_or(0)
}

/// Returns the bytes of a process's memory that are in huge pages.
fn huge_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The CPU time of all children that have ended, in seconds.
fn children_seconds() -> f64 {
    // SAFETY: a structure of numbers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) }, 0);
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6).sum()
}

/// ksmd's CPU time so far, in seconds.
fn ksmd_seconds() -> f64 {
    ksmd::cpu_ns(&Root::host()).expect("a ksmd") as f64 / 1e9
}

/// The CPU time of a process so far, in seconds.
fn seconds(pid: u32) -> f64 {
    let stat = PidStat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap()).unwrap();
    stat.cpu_ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}
