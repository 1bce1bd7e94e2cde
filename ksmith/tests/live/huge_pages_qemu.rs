//! Two virtual machines on huge pages, as QEMU's memory is by default: what is said to be saved and exposed is what the host
//! has gained, and what it needs once every page is written to.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use ksmith_core::kernel::{ProcessMapping, SmapsRollup};
use rustix::process::{Pid, Signal, kill_process};

use crate::huge_pages::config;
use crate::support::linux::{LinuxGuest, LinuxKit};
use crate::support::pool::CgroupPool;
use crate::support::program::{RunningProgram, config_file, status};
use crate::support::{KernelLock, number, skipped, wait_until, wait_within};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Memory of each guest, in MiB.
const GUEST: u64 = 256;

/// Zeros that each guest writes into a file, in MiB. Splits of its huge pages free them.
const ZEROS: u64 = 48;

/// The longest that a guest may take, which is emulated.
const PATIENCE: Duration = Duration::from_secs(240);

fn sums(guest: &LinuxGuest) -> SmapsRollup {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", guest.pid())).unwrap();
    SmapsRollup::parse(&text).unwrap()
}

fn said(key: &str) -> u64 {
    status().and_then(|status| status[key].as_u64()).unwrap_or(0)
}

/// True if two figures differ by no more than a twentieth, and what two QEMUs get and return by themselves.
fn are_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= one.max(other) / 20 + 2 * MIB
}

/// Prints a figure beside what the cgroup is charged less, and what the host has free more. Other programs of the host change the
/// last, so that it decides nothing.
fn print_figure(name: &str, said: u64, charged: u64, free: i64) {
    let mib = |bytes: i64| bytes / MIB.cast_signed();
    eprintln!(
        "{name}: {} MiB said, {} by charges, {} by the host's free memory",
        said / MIB,
        charged / MIB,
        mib(free)
    );
}

/// The host's free memory, and what it could free of its files.
fn free_memory() -> i64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<i64>().unwrap() << 10
}

/// Writes to every page that a guest's memory has: its own content, while the guest is stopped.
fn write_to_all(guest: &LinuxGuest) {
    let pid = Pid::from_raw(guest.pid().cast_signed()).unwrap();
    let open =
        |file: &str, write| File::options().read(true).write(write).open(format!("/proc/{}/{file}", guest.pid()));
    let (memory, pagemap) = (open("mem", true).unwrap(), open("pagemap", false).unwrap());
    kill_process(pid, Signal::STOP).unwrap();
    wait_until("the guest is stopped", || {
        fs::read_to_string(format!("/proc/{}/stat", guest.pid())).unwrap().contains(") T ")
    });
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", guest.pid())).unwrap();
    let mappings = ProcessMapping::parse_all(&smaps).unwrap();
    for mapping in mappings.iter().filter(|mapping| mapping.is_mergeable() == Some(true)) {
        for page in mapping.start / PAGE..mapping.end / PAGE {
            let (mut entry, mut content) = ([0; 8], [0]);
            pagemap.read_exact_at(&mut entry, page * 8).unwrap();
            // The highest bit: the page is present.
            if entry[7] & 0x80 != 0 {
                memory.read_exact_at(&mut content, page * PAGE).unwrap();
                memory.write_all_at(&content, page * PAGE).unwrap();
            }
        }
    }
    kill_process(pid, Signal::CONT).unwrap();
}

/// Two guests under a daemon.
struct TwoGuests {
    guests: [LinuxGuest; 2],
    pool: CgroupPool,
    daemon: RunningProgram,
    config: String,
}

impl TwoGuests {
    /// Has ksmd run, or park.
    fn set_run(&self, run: u64) {
        let text = fs::read_to_string(&self.config).unwrap();
        fs::write(&self.config, text.replace(&format!("run = {}", 1 - run), &format!("run = {run}"))).unwrap();
        self.daemon.signal(Signal::HUP);
        wait_until("ksmd follows", || number("run") == run);
    }

    /// Merges, has everything written to, and compares what is said of the guests with the pages that they are charged for: what
    /// they no longer are is free on the host. Nothing else on the host changes these figures.
    fn play_round(&self) {
        let (before, free, passes) = (self.pool.used_bytes(), free_memory(), number("full_scans"));
        let freed = || before.saturating_sub(self.pool.used_bytes());
        self.set_run(1);
        wait_within(PATIENCE, "the zeros are free", || {
            number("full_scans") >= passes + 4 && freed() >= 2 * ZEROS * MIB
        });
        self.set_run(0);
        wait_within(PATIENCE, "what is said to be saved is what the guests have freed", || {
            are_near(said("saved_bytes"), freed())
        });
        print_figure("saved", said("saved_bytes"), freed(), free_memory() - free);

        let (held, free, exposed) = (self.pool.used_bytes(), free_memory(), said("exposure_bytes"));
        self.guests.iter().for_each(write_to_all);
        let needed = self.pool.used_bytes().saturating_sub(held);
        print_figure("exposed", exposed, needed, free - free_memory());
        assert!(are_near(exposed, needed), "{exposed} bytes are exposed, {needed} needed");
        wait_within(PATIENCE, "nothing is exposed any more", || are_near(said("exposure_bytes"), 0));
    }
}

#[test]
fn what_two_virtual_machines_save_and_may_need_again_is_said_as_it_is() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let place = tempfile::tempdir().unwrap();
    let Some(kit) = LinuxKit::make(place.path(), &[]) else { return };
    let Some(pool) = CgroupPool::make(4 * GUEST * MIB) else { return };
    let start = |name| kit.start(name, GUEST, Some(&pool), &["-machine", "pc,mem-merge=on"]);
    let mut guests = [start("one"), start("two")];
    for guest in &mut guests {
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        assert!(guest.leak("own", 16, PATIENCE), "{}", guest.console());
        let zeros = format!("dd if=/dev/zero of=/leak/zeros bs=1M count={ZEROS} 2> /dev/null");
        assert!(guest.run(&zeros, PATIENCE).is_some(), "{}", guest.console());
    }
    if sums(&guests[0]).ksm.is_none() {
        return skipped("smaps_rollup shows merged memory from Linux 6.7 on");
    }
    let huge: u64 = guests.iter().map(|guest| sums(guest).anon_huge.unwrap()).sum();
    if huge < 64 * MIB {
        return skipped("the kernel gave QEMU no huge pages");
    }
    // A page that was only read maps the kernel's huge zero page, and takes memory once it is written to.
    guests.iter().for_each(write_to_all);
    let (_file, config) = config_file(&config(true, 0));
    let mut daemon = RunningProgram::start(&["daemon", "--config", &config]);
    daemon.wait_ready();
    let mut two = TwoGuests { guests, pool, daemon, config };
    // In the second round all is in small pages, as far as nothing has put it together.
    two.play_round();
    two.play_round();
    for guest in &mut two.guests {
        let told = guest.run("tr -d '\\0' < /leak/zeros | wc -c", PATIENCE).unwrap();
        assert!(told.lines().any(|line| line.trim() == "0"), "all is zeros as before: {told}");
    }
    let TwoGuests { daemon, guests, pool, .. } = two;
    daemon.end();
    drop((guests, pool));
}
