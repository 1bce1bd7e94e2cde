//! `ksmith estimate` on real virtual machines: two QEMUs that boot Linux, without KVM.
//!
//! Needs `qemu-system-x86_64`, a static `busybox`, and a kernel: `KSMITH_TEST_KERNEL=path`, that of `make target/guest-kernel` or
//! one in /boot.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::linux::APPEND;
use crate::support::{KernelLock, clean_passes, guest_kernel, number, skipped};
use ksmith_core::kernel::ProcessMapping;
use ksmith_core::sketch::MergeRules;
use ksmith_host::estimate::{EstimateMode, EstimateOptions, TargetSelection, estimate};
use ksmith_host::memory::salt::FingerprintSalt;

const PAGE: u64 = 4096;

/// Ends with the test.
struct EstimatedVm(Child);

impl Drop for EstimatedVm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that fills page cache with the same text in each guest, a little of its own, and then rests.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mkdir -p /proc /t
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t tmpfs tmpfs /t
/bin/busybox seq 1 1500000 > /t/same
/bin/busybox cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/uuid > /t/own
/bin/busybox dd if=/dev/urandom of=/t/random bs=1M count=4 2>/dev/null
echo guest ready
/bin/busybox sleep 1000
";

#[test]
fn what_clean_passes_merge_in_vms_is_what_exact_said() {
    let (Some(kernel), Some(busybox)) = (kernel(), busybox()) else {
        return skipped("it takes a kernel (make target/guest-kernel) and a busybox");
    };
    let directory = tempfile::tempdir().unwrap();
    let initrd = directory.path().join("initrd");
    fs::write(&initrd, archive(&[("bin", None), ("bin/busybox", Some(&busybox)), ("init", Some(INIT.as_bytes()))]))
        .unwrap();
    let Some(lock) = KernelLock::acquire() else { return };
    let mut vms = Vec::new();
    for name in ["one", "two"] {
        match boot(name, &kernel, &initrd) {
            Ok(vm) => vms.push(vm),
            Err(why) => return skipped(&format!("qemu-system-x86_64: {why}")),
        }
    }
    for vm in &mut vms {
        let console = BufReader::new(vm.0.stdout.take().unwrap());
        let mut lines = console.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("guest ready")), "the guest did not boot");
    }
    let pids: Vec<u32> = vms.iter().map(|vm| vm.0.id()).collect();
    let mut options = EstimateOptions::new(TargetSelection { pids: pids.clone(), ..TargetSelection::default() });
    options.rules = MergeRules { max_page_sharing: number("max_page_sharing"), use_zero_pages: false };
    options.again = Some(Duration::from_secs(1));
    // A 95 % interval of fresh draws misses one time in twenty: the salt is fixed, and so are the draws.
    options.salt = Some(FingerprintSalt::from_seed(1));
    let mut look = |mode| {
        options.mode = mode;
        estimate(&options).unwrap()
    };
    let (exact, sketch, sample) =
        (look(EstimateMode::Exact), look(EstimateMode::Sketch), look(EstimateMode::Sample(0.05)));
    let anonymous = |pids: &[u32]| pids.iter().map(|&pid| anonymous_bytes(pid)).sum::<u64>();
    let before = anonymous(&pids);
    let passes = settle();
    // QEMU's memory is in huge pages. Where ksmd splits one, the kernel (6.12 and later) puts its zero pages on its
    // own zero page at once: they are saved without being counted among KSM's, and leave the anonymous memory.
    let (sharing, gone) = (number("pages_sharing") * PAGE, before.saturating_sub(anonymous(&pids)));
    let merged = (sharing + gone) as f64;
    println!("{sharing} counted as sharing, {gone} on the zero page, {} pages volatile", number("pages_volatile"));
    let expected = exact.total.expected_saved_bytes as f64;
    println!(
        "{expected} expected, {merged} merged in {passes} passes of {}; {}",
        exact.total.present_bytes, exact.verdict
    );
    assert_eq!(exact.guests.iter().map(|guest| guest.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert!(merged > (10 << 20) as f64, "both hold the same text");
    assert!((expected - merged).abs() <= 0.02 * merged, "{expected} expected, {merged} merged");
    for report in [sketch, sample] {
        let (low, high) = (report.total.low_bytes as f64, report.total.high_bytes as f64);
        println!("{}: between {low} and {high}", report.mode);
        assert!(low <= merged * 1.02 && merged <= high * 1.02, "{}: {low} {high} {merged}", report.mode);
        // A QEMU has about as much memory of its own as these small guests: the guests' alone is mergeable.
        let (counted, present) = (report.total.present_bytes, exact.total.present_bytes);
        assert!(counted.abs_diff(present) <= present / 100, "{}: {counted} of {present}", report.mode);
    }
    drop(vms);
    drop(lock);
}

/// Runs clean passes of ksmd until two more save next to nothing: splitting huge pages takes it a few. Gives
/// their number.
fn settle() -> u64 {
    let mut before = 0;
    for passes in (2..=20).step_by(2) {
        clean_passes(2);
        let now = number("pages_sharing");
        // Volatile pages were not visited twice yet.
        let is_settled = number("pages_volatile") <= now / 100;
        if is_settled && now - now.min(before) <= now / 1000 {
            return passes;
        }
        before = now;
    }
    panic!("merging does not come to an end");
}

fn boot(name: &str, kernel: &Path, initrd: &Path) -> std::io::Result<EstimatedVm> {
    Command::new("qemu-system-x86_64")
        .args(["-name", name, "-accel", "tcg", "-m", "112", "-display", "none", "-serial", "stdio", "-no-reboot"])
        .args(["-monitor", "none", "-nic", "none", "-append", APPEND])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map(EstimatedVm)
}

fn kernel() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("KSMITH_TEST_KERNEL") {
        return Some(PathBuf::from(path));
    }
    [guest_kernel().join("boot"), PathBuf::from("/boot")].iter().find_map(|directory| {
        let mut kernels: Vec<PathBuf> = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).collect();
        kernels.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")));
        kernels.sort();
        kernels.pop()
    })
}

fn busybox() -> Option<Vec<u8>> {
    fs::read("/bin/busybox").or_else(|_| fs::read("/usr/bin/busybox")).ok()
}

/// Anonymous bytes of the guest's RAM, which QEMU marks mergeable; its own heap does not count.
fn anonymous_bytes(pid: u32) -> u64 {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mappings = ProcessMapping::parse_all(&smaps).unwrap();
    let ram = mappings.iter().filter(|mapping| mapping.is_mergeable() == Some(true));
    ram.filter_map(|mapping| mapping.figures.as_ref()).map(|figures| figures.anonymous).sum()
}

/// An initial RAM disk: a cpio archive of the "newc" kind (Documentation/driver-api/early-userspace/
/// buffer-format.rst). Without contents an entry is a directory.
fn archive(entries: &[(&str, Option<&[u8]>)]) -> Vec<u8> {
    let mut archive = Vec::new();
    let end = [("TRAILER!!!", Some(&[][..]))];
    for (number, (name, contents)) in entries.iter().chain(&end).enumerate() {
        let mode = if contents.is_some() { 0o100_755 } else { 0o040_755 };
        let contents = contents.unwrap_or_default();
        let fields = [number + 1, mode, 0, 0, 1, 0, contents.len(), 0, 0, 0, 0, name.len() + 1, 0];
        archive.extend(b"070701");
        archive.extend(fields.iter().flat_map(|field| format!("{field:08X}").into_bytes()));
        archive.extend(name.as_bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend(contents);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
    archive
}
