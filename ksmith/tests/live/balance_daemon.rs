//! The daemon balances real guests in a pool with a limit.

use crate::support;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::support::image::{ImageGuest, UmlImage};
use crate::support::linux::{LinuxGuest, LinuxKit};
use crate::support::own::on_own_host;
use crate::support::pool::{CgroupPool, SwapArea, hold_off_swap};
use crate::support::program::{RunningProgram, ksmith};
use crate::support::{KernelLock, UNDO, number, vmstat, wait_until, wait_within};
use ksmith_core::kernel::Meminfo;
use ksmith_host::guests::Mconsole;
use ksmith_host::root::Root;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// 64 pages: what a kernel may write to swap for reasons of its own. The leak is 700 times as much.
const TOLERATED_SWAP: u64 = 64 * 4096;
const LEAK_MIB: u64 = 180;
const GIB: u64 = 1 << 30;

/// Freed memory goes back to the host at once, so that what a guest has taken and freed is not in the way.
const BALLOON: [&str; 2] = ["-device", "virtio-balloon-pci,free-page-reporting=on"];

/// A daemon that lets KSM be and balances the pool.
fn config(pool: &CgroupPool, more: &str) -> String {
    format!(
        "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = {{ run = 0 }}\n[balance]\nenabled = true\n\
         pool = \"{}\"\ncooldown_seconds = 0.5\ncalm_seconds = 3\n{more}",
        pool.name()
    )
}

/// The guests as `ksmith balance` shows them, by name.
fn guests() -> BTreeMap<String, Value> {
    let (code, out, err) = ksmith(&["balance", "--json"]);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let rows = report["guests"].as_array().unwrap();
    rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), row.clone())).collect()
}

fn given(guests: &BTreeMap<String, Value>, name: &str) -> u64 {
    guests.get(name).map_or(0, |row| row["given_bytes"].as_u64().unwrap())
}

fn entries() -> Vec<Value> {
    let Ok(text) = std::fs::read(UNDO) else { return Vec::new() };
    let store: Value = serde_json::from_slice(&text).unwrap();
    let entries = store["entries"].as_array().unwrap().iter();
    entries.filter(|entry| entry["entry"] == "guest_memory").cloned().collect()
}

#[test]
fn a_leaking_guest_squeezes_idle_ones_and_nothing_is_swapped() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(kit) = LinuxKit::make(directory.path(), &[]) else { return };
        let Some(pool) = CgroupPool::make(8 * GIB) else { return };
        pool.drop_cache_first();
        let mut idle: Vec<LinuxGuest> = ["gold", "silver", "bronze"]
            .iter()
            .map(|name| kit.start(name, 192, Some(&pool), &["-device", "virtio-balloon-pci"]))
            .collect();
        let mut leaker = kit.start("leaker", 384, Some(&pool), &BALLOON);
        assert!(leaker.boot(PATIENCE), "{}", leaker.console());
        for guest in &mut idle {
            assert!(guest.boot(PATIENCE) && guest.touch(100, PATIENCE), "{}", guest.console());
        }
        let Some(_swap) = SwapArea::on(GIB) else { return };
        let swapped = pool.swapped_bytes();
        let rules: String = ["gold", "silver", "bronze"]
            .iter()
            .map(|name| format!("[[balance.rule]]\nname = \"{name}\"\nclass = \"{name}\"\n"))
            .collect();
        let rules = rules + "[[balance.rule]]\nname = \"leaker\"\nclass = \"gold\"\n";
        // Steps as large as in an emergency, or giving back takes a minute.
        let mut daemon = RunningProgram::daemon(&config(&pool, &format!("step_percent = 15\n{rules}")), &[]);
        wait_until("all guests tell", || {
            let seen = guests();
            seen.len() == 4 && seen.values().all(|row| row["inside"]["available_bytes"].is_u64())
        });
        // The leak is three times what is free.
        let limit = pool.used_without_cache() + 64 * MIB;
        assert!(pool.limit(limit));
        let (mut leaked, mut most_swapped) = (0, swapped);
        while leaked < LEAK_MIB {
            // The leak waits for the daemon, which may get little of a busy machine.
            wait_until("memory was taken for the next step", || pool.used_without_cache() + 32 * MIB <= limit);
            assert!(leaker.leak(&leaked.to_string(), 6, PATIENCE), "{}", leaker.console());
            leaked += 6;
            most_swapped = most_swapped.max(pool.swapped_bytes());
        }
        assert_eq!(pool.oom_kills(), 0, "{}", daemon.log());
        assert!(most_swapped <= swapped + TOLERATED_SWAP, "{} bytes: {}", most_swapped - swapped, daemon.log());
        let log = daemon.log();
        lower_classes_gave_first(&log);
        let seen = guests();
        assert!(given(&seen, "bronze") < 160 * MIB, "{seen:?}");
        for guest in idle.iter_mut().chain([&mut leaker]) {
            assert!(!guest.has_killed(PATIENCE), "{}: {}: {}", guest.name, guest.console(), daemon.log());
        }
        // The leak ends with the leaker, and all get theirs back: in small steps, one after the other.
        drop(leaker);
        wait_within(4 * PATIENCE, "all guests have all their memory again", || {
            let seen = guests();
            ["gold", "silver", "bronze"].iter().all(|name| given(&seen, name) == 192 * MIB)
        });
        eprintln!("still in the ledger: {:?}", entries());
        wait_until("nothing is recorded as taken", || entries().is_empty());
        assert!(pool.swapped_bytes() <= swapped + TOLERATED_SWAP);
        wait_ended(&mut daemon);
    });
}

/// Checks each take in the log: before a guest is asked, those of lower classes have given what they can, or are late.
fn lower_classes_gave_first(log: &str) {
    let classes = ["bronze", "silver", "gold"];
    // What each had to spare after its last take, in MiB.
    let mut spare = [None::<f64>; 3];
    let mut highest = 0;
    for line in log.lines() {
        let Some(class) = classes.iter().position(|name| line.contains(&format!("{name}: memory "))) else {
            continue;
        };
        let Some((taken, causes)) = line.split_once(" to spare") else { continue };
        let causes = causes.split_once("lower classes nothing (").map_or("", |(_, causes)| causes);
        let count = |cause: &str| -> usize {
            let parts = causes.split([',', ')']).filter_map(|part| part.trim().strip_suffix(cause));
            parts.map(|number| number.trim().parse::<usize>().unwrap()).sum()
        };
        let (at_floor, late) =
            (count("at the floor"), count("still giving") + count("in trouble") + count("silent"));
        assert_eq!(at_floor + late, class, "{line}: {log}");
        if late == 0 {
            // The reserve is 16 MiB. A guest's own figure moves by some MiB with its page cache.
            let has_given = |spare: &Option<f64>| spare.is_some_and(|spare| spare < 32.0);
            assert!(spare[..class].iter().all(has_given), "{spare:?} before {line}: {log}");
        }
        let number = |text: &str| text.split_whitespace().next().unwrap().parse::<f64>().unwrap();
        let (_, amounts) = taken.split_once("memory ").unwrap();
        let (from, to) = amounts.split_once(" -> ").unwrap();
        let (_, had) = taken.rsplit_once(" has ").unwrap();
        spare[class] = Some(number(had) - (number(from) - number(to)));
        highest = highest.max(class);
    }
    eprintln!("to spare at last: {spare:?} MiB");
    assert!(highest > 0, "no class but the lowest was asked: {log}");
}

fn wait_ended(daemon: &mut RunningProgram) {
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
}

/// Returns the memory that a user-mode Linux has allocated and not accounted for: the memory taken from it, by its own
/// figures.
fn allocated(guest: &ImageGuest) -> u64 {
    let console = Mconsole::find_by_pid(&Root::host(), guest.pid()).unwrap();
    let text = console.send_command_within("proc meminfo", PATIENCE).unwrap();
    Meminfo::parse(&text).unwrap().unaccounted().unwrap()
}

/// Restores until all guests have all their memory: a guest on a busy host may be slow to answer, which `ksmith restore` says
/// by its exit code. What it has said.
fn restore() -> String {
    let mut said = String::new();
    wait_until("all guests have all their memory again", || {
        let (code, out, err) = ksmith(&["restore"]);
        said.push_str(&out);
        said.push_str(&err);
        code == 0
    });
    said
}

/// Makes PIDs wrap around after so many: most of what the next guest starts gets a lower one than the guest
/// itself, as on any host after a while. A program that takes the lowest for the guest finds no console.
fn pids_begin_anew(after: u32) {
    let end = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let last = end.trim().parse::<u32>().unwrap() - after;
    if std::fs::write("/proc/sys/kernel/ns_last_pid", last.to_string()).is_err() {
        eprintln!("this kernel can't be told the next PID: guests get what comes");
    }
}

/// Guests that have read their image, in a pool that is short of memory.
fn squeezed(directory: &Path, count: usize) -> Option<(CgroupPool, Vec<ImageGuest>)> {
    let image = UmlImage::make(directory, 48)?;
    let pool = CgroupPool::make(8 * GIB)?;
    let start = |number| {
        pids_begin_anew(8 * (number as u32 + 1));
        image.start(&format!("uml{number}"), 128, Some(&pool))
    };
    let mut guests: Vec<ImageGuest> = (0..count).map(start).collect();
    for guest in &mut guests {
        assert!(guest.boot(PATIENCE), "{}", guest.console());
    }
    // Nothing is free but page cache, which is little: the image is in it once.
    assert!(pool.limit(pool.used_without_cache() + 8 * MIB));
    Some((pool, guests))
}

#[test]
fn a_killed_daemon_costs_no_guest_anything() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some((pool, mut guests)) = squeezed(directory.path(), 3) else { return };
        let before: Vec<u64> = guests.iter().map(allocated).collect();
        let text = config(&pool, "low_percent = 30\nhigh_percent = 60\n");
        for _ in 0..3 {
            let daemon = RunningProgram::daemon(&text, &[]);
            wait_until("memory is being taken", || !entries().is_empty());
            daemon.kill();
            // Never less is noted than was taken; a few pages are on their way between lists.
            for (guest, before) in guests.iter().zip(&before) {
                let noted: u64 = entries()
                    .iter()
                    .filter(|entry| entry["process"]["pid"] == guest.pid())
                    .map(|entry| entry["whole_bytes"].as_u64().unwrap() - entry["given_bytes"].as_u64().unwrap())
                    .sum();
                assert!(noted + 4 * MIB >= allocated(guest).saturating_sub(*before), "{} {noted}", guest.name);
            }
        }
        assert!(pool.limit(8 * GIB));
        let said = restore();
        assert!(said.contains("128 MiB again"), "{said}");
        assert!(entries().is_empty(), "{:?}", entries());
        for (guest, before) in guests.iter_mut().zip(&before) {
            assert!(allocated(guest) < before + 4 * MIB, "{}: {before} {}", guest.name, allocated(guest));
            assert!(guest.answers(PATIENCE), "{}", guest.console());
        }
    });
}

#[test]
fn a_guest_that_hangs_and_one_that_ends_do_not_hold_up_the_others() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some((pool, mut umls)) = squeezed(directory.path(), 4) else { return };
        let hung = Pid::from_raw(umls[0].pid() as i32).unwrap();
        let mut daemon = RunningProgram::daemon(&config(&pool, "low_percent = 60\nhigh_percent = 70\n"), &[]);
        wait_until("memory is being taken", || !entries().is_empty());
        kill_process(hung, Signal::STOP).unwrap();
        umls[1].kill();
        let gone = umls[1].pid();
        wait_until("the others give all that they can", || {
            let seen = guests();
            ["uml2", "uml3"].iter().all(|name| {
                // While a step is under way nothing more can be taken: what it has then is no end.
                let stable = seen.get(*name).filter(|row| row["can_take"] == true);
                let least = stable.map_or(0, |row| row["least_bytes"].as_u64().unwrap());
                given(&seen, name) < 100 * MIB && given(&seen, name) <= least + 8 * MIB
            })
        });
        wait_until("nothing is recorded of the ended guest", || {
            entries().iter().all(|entry| entry["process"]["pid"] != gone)
        });
        wait_until("it is in trouble", || guests()["uml0"]["trouble"].is_string());
        kill_process(hung, Signal::CONT).unwrap();
        wait_until("it is asked again in time, or left alone, and lives", || umls[0].answers(PATIENCE));
        assert!(pool.limit(8 * GIB));
        wait_ended(&mut daemon);
        restore();
        assert!(entries().is_empty(), "{:?}", entries());
        for guest in [0, 2, 3] {
            assert!(umls[guest].answers(PATIENCE), "{}", umls[guest].console());
        }
    });
}

/// Guests with `mib` of equal content each, merged, and one idle guest with much to spare, in a pool that has far less
/// left than the merged pages stand for.
fn merged(kit: &LinuxKit, pool: &CgroupPool, mib: u64) -> (Vec<LinuxGuest>, LinuxGuest) {
    let merging = ["-machine", "pc,mem-merge=on", "-device", "virtio-balloon-pci"];
    let mut equal: Vec<LinuxGuest> =
        (0..3).map(|number| kit.start(&format!("equal{number}"), mib + 96, Some(pool), &merging)).collect();
    let mut idle = kit.start("idle", 256, Some(pool), &["-device", "virtio-balloon-pci"]);
    assert!(idle.boot(PATIENCE) && idle.touch(150, PATIENCE), "{}", idle.console());
    for guest in &mut equal {
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        // The same numbers in each guest, no page twice.
        guest.type_line(&format!(
            "awk 'BEGIN {{ for (i = 0; i < {}; i++) printf \"%04095d\\n\", i }}' > /leak/equal; echo filled-$((6 * 7))",
            mib * 256
        ));
    }
    for guest in &equal {
        wait_within(3 * PATIENCE, "it is filled", || guest.console().contains("filled-42"));
    }
    support::passes_until("it is merged", || number("pages_sharing") * 4096 > 2 * mib * MIB * 9 / 10);
    eprintln!("pool {} MiB, {} of them page cache", pool.used_bytes() / MIB, pool.cache_bytes() / MIB);
    // Two thirds of what the wave needs must come from somewhere.
    assert!(pool.limit(pool.used_without_cache() + 2 * mib * MIB / 3));
    (equal, idle)
}

/// All rewrite what they share, at once and as fast as they can: it is over within a second or two.
fn wave(pool: &CgroupPool, equal: &mut [LinuxGuest], mib: u64) {
    for guest in equal.iter_mut() {
        guest.type_line(&format!(
            "dd if=/dev/zero of=/leak/equal bs=1M count={mib} conv=notrunc 2> /dev/null; echo wave-$((6 * 7))"
        ));
    }
    let before = (vmstat("cow_ksm"), number("pages_sharing"), pool.used_bytes() / MIB);
    for guest in equal.iter_mut() {
        wait_until("the wave is over", || guest.console().contains("wave-42") || !guest.is_alive());
    }
    let after = (vmstat("cow_ksm"), number("pages_sharing"), pool.used_bytes() / MIB);
    eprintln!("the wave: cow_ksm, pages_sharing, pool MiB {before:?} -> {after:?}");
}

#[test]
fn a_wave_of_divergence_kills_guests_only_without_ksmith() {
    const EQUAL: u64 = 40;
    let directory = tempfile::tempdir().unwrap();
    let Some(kit) = LinuxKit::make(directory.path(), &[]) else { return };
    let _no_swap = hold_off_swap();
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(pool) = CgroupPool::make(8 * GIB) else { return };
    pool.drop_cache_only();
    let (mut equal, idle) = merged(&kit, &pool, EQUAL);
    wave(&pool, &mut equal, EQUAL);
    assert!(pool.oom_kills() > 0, "the pool was large enough: the test shows nothing");
    drop((equal, idle, pool));
    // Or else their merged pages are counted until the next scan.
    support::write("run", "2");
    support::write("run", "0");

    let Some(pool) = CgroupPool::make(8 * GIB) else { return };
    pool.drop_cache_only();
    let (mut equal, mut idle) = merged(&kit, &pool, EQUAL);
    let daemon = RunningProgram::daemon(&config(&pool, ""), &[]);
    wait_until("the exposure is covered", || {
        let (code, out, err) = ksmith(&["balance", "--json"]);
        assert_eq!(code, 0, "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        report["guests"].as_array().unwrap().len() == 4
            && report["pool"]["exposure_bytes"].as_u64() > Some(EQUAL * MIB)
            && report["pool"]["headroom_bytes"].as_u64() >= report["pool"]["exposure_bytes"].as_u64()
    });
    wave(&pool, &mut equal, EQUAL);
    assert_eq!(pool.oom_kills(), 0, "{}", daemon.log());
    for guest in equal.iter_mut().chain([&mut idle]) {
        assert!(guest.is_alive() && !guest.has_killed(PATIENCE), "{}", guest.console());
    }
}
