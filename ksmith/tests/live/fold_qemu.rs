//! A virtual machine of QEMU that `ksmith fold` folds each second: what its guest keeps stays, and what it has freed and emptied
//! is given back.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ksmith_core::kernel::SmapsRollup;

use crate::fold_loop::FoldLoop;
use crate::fold_stress::print_outcome;
use crate::fold_stress::restorer::hurry_khugepaged;
use crate::support::linux::{APPEND, LinuxGuest, LinuxKit, module};
use crate::support::{KernelLock, skipped, wait_within};

const PATIENCE: Duration = Duration::from_secs(300);

/// MiB that the guest keeps, that it fills and frees, and that its disk has.
const KEPT: u64 = 12;
const FREED: u64 = 4 * KEPT;
const DISK: usize = 4;

/// Lines of the guest's log that tell of damaged memory.
const FAULTS: &str =
    "BUG|Oops|[Bb]ad page|Bad rss|EXT4-fs error|general protection|unable to handle|corrupt|I/O error|segfault";

#[test]
fn a_virtual_machine_is_folded_while_its_guest_works() {
    play(Duration::ZERO);
}

#[test]
#[ignore = "for make stress: as long as FOLD_QEMU_SECONDS says"]
fn for_long_qemu() {
    let seconds = std::env::var("FOLD_QEMU_SECONDS").map_or(600, |seconds| seconds.parse().unwrap());
    play(Duration::from_secs(seconds));
}

/// PSS in bytes.
fn memory(guest: &LinuxGuest) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", guest.pid())).unwrap();
    SmapsRollup::parse(&text).unwrap().pss.unwrap()
}

/// A disk, half of it zeros in stretches. QEMU reads it past the page cache, straight into the guest's memory.
fn write_disk(path: &Path) {
    let mut bytes = vec![0_u8; DISK << 20];
    let mut state = 88_172_645_463_325_252_u64;
    for (number, word) in bytes.chunks_exact_mut(8).enumerate() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if number >> 12 & 1 == 1 {
            word.copy_from_slice(&state.to_ne_bytes());
        }
    }
    fs::write(path, bytes).unwrap();
}

/// Runs at least four rounds of the guest's work, and as many more as fit into that time.
fn play(long: Duration) {
    let Some(mut folds) = FoldLoop::prepare() else { return };
    let Some(_lock) = KernelLock::acquire() else { return };
    let _khugepaged = hurry_khugepaged();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let driver = module("virtio_blk").map(|path| (path, "/modules/virtio_blk.ko".to_owned()));
    let Some(kit) = LinuxKit::make(directory.path(), &Vec::from_iter(driver.clone())) else { return };
    let disk = directory.path().join("disk");
    write_disk(&disk);
    let drive = format!("file={},format=raw,if=virtio,cache=none", disk.display());
    let append = format!("{APPEND} init_on_free=1");
    let mut options = vec!["-append", append.as_str()];
    if driver.is_some() {
        options.extend(["-drive", &drive]);
    } else {
        skipped("the guest reads no disk");
    }
    let mut guest = kit.start("folded", 192, None, &options);
    let ends = AtomicBool::new(false);
    let pid = guest.pid();
    std::thread::scope(|scope| {
        // Folds while the guest boots, too.
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                folds.pass(&[pid]);
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        let _ender = EndOnDrop(&ends);
        work_in(&mut guest, driver.is_some(), long);
    });
    guest.end();
    print_outcome(&format!("a guest of QEMU: {folds}"));
    assert!(folds.freed_bytes() >= (FREED << 20) / 2, "{folds}");
}

/// Ends the folding thread, also where the work fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Boots the guest and has it fill, free, copy and check memory, round by round.
fn work_in(guest: &mut LinuxGuest, has_disk: bool, long: Duration) {
    assert!(guest.boot(PATIENCE), "{}", guest.console());
    let run = |guest: &mut LinuxGuest, command: &str| {
        let output = guest.run(command, PATIENCE);
        output.unwrap_or_else(|| panic!("{command}: {}", guest.console()))
    };
    assert!(guest.leak("kept", KEPT, PATIENCE), "{}", guest.console());
    // Single bytes among zeros, in pages that are nearly empty.
    run(
        guest,
        "dd if=/dev/zero of=/leak/sparse bs=1M count=4; for at in 1 5000 70001 2000003 4194303; do printf x | dd of=/leak/sparse bs=1 seek=$at conv=notrunc; done 2> /dev/null",
    );
    run(guest, "sha256sum /leak/kept /leak/sparse > /tmp/sum");
    if has_disk {
        let output =
            run(guest, "insmod /modules/virtio_blk.ko && sha256sum /dev/vda >> /tmp/sum && echo disk-$((6 * 7))");
        assert!(output.contains("disk-42"), "{output}");
    }
    let begin = Instant::now();
    let mut rounds = 0;
    while rounds < 4 || begin.elapsed() < long {
        // Copies: random bytes take an emulated guest a second for each MiB.
        run(guest, "cat /leak/kept /leak/kept /leak/kept /leak/kept > /leak/freed");
        let full = memory(guest);
        run(guest, "rm /leak/freed; echo 3 > /proc/sys/vm/drop_caches");
        let output = run(
            guest,
            "sha256sum -c /tmp/sum && cp /leak/kept /leak/copy && cmp /leak/kept /leak/copy && rm /leak/copy && echo same-$((6 * 7))",
        );
        assert!(output.contains("same-42"), "{output}");
        // What was split and filled again is in small pages, and is folded once khugepaged has made huge ones of them.
        if rounds == 0 {
            wait_within(PATIENCE, "what was freed is given back", || memory(guest) + (FREED << 20) / 2 < full);
        }
        rounds += 1;
    }
    let output = run(guest, "sha256sum -c /tmp/sum && echo same-$((7 * 6))");
    assert!(output.contains("same-42"), "{output}");
    let output = run(guest, &format!("dmesg | grep -E '{FAULTS}' || echo clean-$((6 * 7))"));
    assert!(output.contains("clean-42"), "{output}");
}
