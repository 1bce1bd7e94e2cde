//! Memory that a guest has freed, and what gives it back to the host: KSM with `use_zero_pages`, folding, or the guest itself by
//! its balloon's free page reporting. With an ordinary kernel in the guest, and with one that empties what it frees
//! (`init_on_free=1`).
//!
//! `cargo bench -p ksmith --bench fold_qemu -- [MIB] [REPEAT]`, as root on a host where KSM is not in use, after
//! `cargo build --release -p ksmith-preload` and `make target/guest-kernel`. A guest of twice MIB under QEMU's emulation
//! fills MIB of a file system in memory with random bytes, and removes them. Figures are medians.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]
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
use support::linux::{APPEND, Linux, LinuxKit};

const PATIENCE: Duration = Duration::from_secs(240);

/// How long the memory of a guest is watched after it was freed.
const WATCHED: Duration = Duration::from_secs(40);

const MIB: u64 = 1 << 20;

/// What gives memory back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Nothing,
    /// Two clean passes of ksmd, with `use_zero_pages`.
    Ksm,
    /// `ksmith run --fold`.
    Fold,
    /// Free page reporting of virtio-balloon.
    Reporting,
}

impl Way {
    const ALL: [Self; 4] = [Self::Nothing, Self::Ksm, Self::Fold, Self::Reporting];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "nothing",
            Self::Ksm => "KSM",
            Self::Fold => "fold",
            Self::Reporting => "free page reporting",
        })
    }
}

/// The figures of one guest.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// QEMU's memory before the guest freed, and at the end, in bytes.
    before: u64,
    after: u64,
    /// Seconds until nine tenths of what was given back had been.
    nine_tenths: f64,
    /// CPU seconds of QEMU and ksmd while it was watched.
    qemu_cpu: f64,
    ksmd_cpu: f64,
    /// Seconds in which the guest filled and freed as much with zeros afterwards.
    again: f64,
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let (mib, repeat) = (numbers.first().copied().unwrap_or(512), numbers.get(1).copied().unwrap_or(3));
    let Some(lock) = KernelLock::take() else { return };
    let directory = tempfile::tempdir().unwrap();
    let Some(kit) = LinuxKit::make(directory.path(), &[]) else { return };
    let mut runs = Vec::new();
    for number in 1..=repeat {
        for empties in [false, true] {
            for way in Way::ALL {
                let run = play(&kit, way, empties, mib);
                eprintln!("{number}/{repeat} {way}, init_on_free={}: {run:?}", u8::from(empties));
                runs.push((way, empties, run));
            }
        }
    }
    drop(lock);
    println!(
        "| freed pages | given back by | before, MiB | after | given back | nine tenths after | QEMU's CPU | ksmd's CPU | filled again in |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for empties in [false, true] {
        for way in Way::ALL {
            let of = |figure: &dyn Fn(&Run) -> f64| {
                let chosen = runs.iter().filter(|(ran, emptied, _)| (*ran, *emptied) == (way, empties));
                Spread::of(chosen.map(|(_, _, run)| Some(figure(run)))).median.unwrap_or(f64::NAN)
            };
            println!(
                "| {} | {way} | {:.0} | {:.0} | {:.0} % | {:.1} s | {:.2} s | {:.2} s | {:.2} s |",
                if empties { "emptied" } else { "as they were" },
                of(&|run| (run.before / MIB) as f64),
                of(&|run| (run.after / MIB) as f64),
                of(&|run| run.before.saturating_sub(run.after) as f64 / (mib * MIB) as f64 * 100.0),
                of(&|run| run.nine_tenths),
                of(&|run| run.qemu_cpu),
                of(&|run| run.ksmd_cpu),
                of(&|run| run.again),
            );
        }
    }
}

fn play(kit: &LinuxKit, way: Way, empties: bool, mib: u64) -> Run {
    let append = format!("{APPEND} init_on_free={}", u8::from(empties));
    let mut options = vec!["-append", append.as_str(), "-device"];
    options.push(if way == Way::Reporting {
        "virtio-balloon-pci,free-page-reporting=on"
    } else {
        "virtio-balloon-pci"
    });
    if way == Way::Ksm {
        options.extend(["-machine", "pc,mem-merge=on"]);
        support::write("use_zero_pages", "1");
    }
    let ksmith =
        [env!("CARGO_BIN_EXE_ksmith"), "run", "-q", "--fold=every=5s", "--ranges", "none", "--scan", "never", "--"];
    let line = if way == Way::Fold { &ksmith[..] } else { &[] };
    let mut guest = kit.start_under(line, "guest", 2 * mib, None, &options);
    assert!(guest.boot(PATIENCE), "{}", guest.console());
    assert!(guest.leak("filled", mib, PATIENCE), "{}", guest.console());
    let pid = guest.qemu_pid();
    let (before, cpu) = (memory(pid), seconds(pid));
    let ksmd_cpu = ksmd_seconds();
    assert!(guest.run("rm /leak/filled", PATIENCE).is_some(), "{}", guest.console());
    let freed = Instant::now();
    let mut scan = (way == Way::Ksm).then(|| {
        Command::new(env!("CARGO_BIN_EXE_ksmith"))
            .args(["scan", "--json"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    });
    let mut seen = Vec::new();
    while freed.elapsed() < WATCHED {
        seen.push((freed.elapsed().as_secs_f64(), memory(pid)));
        std::thread::sleep(Duration::from_millis(200));
    }
    if let Some(scan) = &mut scan {
        assert!(scan.wait().unwrap().success(), "ksmith scan");
    }
    let after = memory(pid);
    let goal = before.saturating_sub(before.saturating_sub(after) / 10 * 9);
    let nine_tenths = seen.iter().find(|(_, bytes)| *bytes <= goal).map_or(f64::NAN, |(at, _)| *at);
    let (qemu_cpu, ksmd_cpu) = (seconds(pid) - cpu, ksmd_seconds() - ksmd_cpu);
    let again = Instant::now();
    assert!(guest.touch(mib, PATIENCE), "{}", guest.console());
    let again = again.elapsed().as_secs_f64();
    end(guest);
    Run { before, after, nine_tenths, qemu_cpu, ksmd_cpu, again }
}

/// Ends a guest, and leaves KSM as the next one wants it.
fn end(mut guest: Linux) {
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

/// ksmd's CPU time so far, in seconds.
fn ksmd_seconds() -> f64 {
    ksmd::cpu_ns(&Root::host()).expect("a ksmd") as f64 / 1e9
}

/// The CPU time of a process so far, in seconds.
fn seconds(pid: u32) -> f64 {
    let stat = PidStat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap()).unwrap();
    stat.cpu_ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}
