//! Folding of a process with known memory in huge pages of the live kernel.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::memory::error::UnreadableProcess;
use crate::root::Root;

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
const LENGTH: usize = 8 * HUGE;
/// Source: include/uapi/asm-generic/mman-common.h. Memory that only this advice has put together is left alone by
/// khugepaged where huge pages are given by request, and stays as a test has made it.
const MADV_COLLAPSE: u32 = 25;

/// A process that holds `LENGTH` bytes in huge pages.
struct HugePageHolder {
    child: Child,
    address: u64,
}

impl HugePageHolder {
    /// Starts a process. `zeros` is a condition on a page's `number` in Python, and `then` runs last, with the memory
    /// as `m` at `address`. Returns `None` if the kernel has no huge pages for it.
    fn start(zeros: &str, then: &str) -> Option<Self> {
        Self::start_in(true, zeros, then).filter(|holder| holder.huge_bytes() == LENGTH as u64)
    }

    /// Starts a process with huge pages or with small ones.
    fn start_in(huge: bool, zeros: &str, then: &str) -> Option<Self> {
        let small = if huge { "False" } else { "True" };
        let program = format!(
            "import ctypes,mmap,os,sys\n\
             small = {small}\n\
             m = mmap.mmap(-1, {LENGTH} + {HUGE}, flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS)\n\
             start = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
             skipped = -start % {HUGE}\n\
             address = start + skipped\n\
             for number in range({LENGTH} // {PAGE}):\n \
              at = skipped + number * {PAGE}\n \
              m[at:at+{PAGE}] = bytes({PAGE}) if {zeros} else bytes([number % 255 + 1]) * {PAGE}\n\
             try: small or m.madvise({MADV_COLLAPSE}, skipped, {LENGTH})\n\
             except OSError: pass\n\
             {then}\n\
             print(address, flush=True)\n\
             sys.stdin.read()\n"
        );
        let mut command = Command::new("python3");
        command.args(["-c", &program]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Some(Self { address: line.trim().parse().unwrap(), child })
    }

    fn target(&self) -> FoldTarget {
        FoldTarget::open(self.child.id()).unwrap()
    }

    /// Returns the bytes of its memory that are in huge pages.
    fn huge_bytes(&self) -> u64 {
        let (start, end) = (self.address, self.address + LENGTH as u64);
        let Ok(memory) = self.target().find_anonymous() else { return 0 };
        let parts = memory.huge.iter().map(|huge| huge.start.max(start)..huge.end.min(end));
        parts.filter(|part| part.start < part.end).map(|part| part.end - part.start).sum()
    }

    /// Returns its current memory.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH];
        File::open(format!("/proc/{}/mem", self.child.id()))
            .unwrap()
            .read_exact_at(&mut bytes, self.address)
            .unwrap();
        bytes
    }
}

impl Drop for HugePageHolder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reports that a test ends without having tested anything. By a plain write: the test harness swallows what `eprintln!`
/// says in a test that passes. `make test` counts these lines.
#[allow(clippy::disallowed_methods, reason = "a test's own words")]
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED, nothing was tested: {why}");
}

/// Folds a process; `None` if this user may not.
fn fold(holder: &HugePageHolder, settings: &FoldSettings) -> Option<FoldTally> {
    match holder.target().fold(settings) {
        Err(FoldError::Denied) => None,
        outcome => Some(outcome.unwrap()),
    }
}

const NO_HUGE_PAGES: &str = "the kernel had no huge pages for it";
const NO_RIGHT: &str = "folding needs CAP_SYS_NICE";

#[test]
fn zeros_of_huge_pages_come_free_and_no_byte_differs() {
    if let Some(why) = fold_hindrance(&Root::host()) {
        return skip(&why.to_string());
    }
    // Half of the huge pages are half zero, in runs of 64; the others hold 63 zero pages each, one too few.
    let zeros = "(number // 64 % 2 == 0 if number // 512 % 2 == 0 else number % 512 < 63)";
    let Some(holder) = HugePageHolder::start(zeros, "") else { return skip(NO_HUGE_PAGES) };
    let before = holder.bytes();
    let all = LENGTH as u64;
    let Some(dry) = fold(&holder, &FoldSettings { is_dry_run: true, ..FoldSettings::default() }) else {
        return skip(NO_RIGHT);
    };
    assert_eq!((dry.freed_bytes, dry.split_bytes), (0, 0));
    assert!(dry.foldable_bytes >= all / 2 && dry.zero_bytes >= all / 4 && dry.left.few_zeros >= all / 2, "{dry:?}");
    assert_eq!(holder.huge_bytes(), all);
    let zero_mapped = holder.target().zero_mapped_bytes().unwrap();
    let Some(tally) = fold(&holder, &FoldSettings { threads: 2, ..FoldSettings::default() }) else {
        return skip(NO_RIGHT);
    };
    assert!(tally.freed_bytes >= all / 4 && tally.split_bytes >= all / 2, "{tally:?}");
    assert_eq!(holder.huge_bytes(), all / 2, "those with too few zeros stay whole");
    assert!(holder.target().zero_mapped_bytes().unwrap() >= zero_mapped + all / 4);
    assert!(holder.bytes() == before, "a byte differs");
}

#[test]
fn small_pages_are_put_together_and_folded_where_that_is_asked_for() {
    if let Some(why) = fold_hindrance(&Root::host()) {
        return skip(&why.to_string());
    }
    // The last quarter has too few zeros, and stays in small pages.
    let zeros = format!("(number % 2 == 0 if number < {} else number % 512 < 63)", LENGTH / PAGE * 3 / 4);
    let Some(holder) = HugePageHolder::start_in(false, &zeros, "") else { return skip(NO_HUGE_PAGES) };
    let (before, all) = (holder.bytes(), LENGTH as u64);
    if holder.huge_bytes() > 0 {
        return skip("this kernel gives huge pages unasked");
    }
    let Some(tally) = fold(&holder, &FoldSettings { collapses: true, ..FoldSettings::default() }) else {
        return skip(NO_RIGHT);
    };
    if tally.collapsed_bytes == 0 {
        return skip(NO_HUGE_PAGES);
    }
    assert!(tally.collapsed_bytes >= all * 3 / 4 && tally.freed_bytes >= all * 3 / 8, "{tally:?}");
    assert!(holder.huge_bytes() == 0 && tally.left.small >= all / 4, "{tally:?}");
    assert!(holder.bytes() == before, "a byte differs");
}

#[test]
fn locked_and_forked_huge_pages_are_left_and_named() {
    if let Some(why) = fold_hindrance(&Root::host()) {
        return skip(&why.to_string());
    }
    let quarter = LENGTH / 4;
    let then = format!(
        "ctypes.CDLL(None).mlock(ctypes.c_void_p(address), {quarter}) == 0 or sys.exit('mlock')\n\
         read, write = os.pipe()\n\
         if os.fork() == 0: os.close(write); os.read(read, 1); os._exit(0)\n\
         os.close(read)\n\
         half = skipped + {LENGTH} // 2\n\
         m[half:skipped+{LENGTH}] = m[half:skipped+{LENGTH}]\n\
         m.madvise({MADV_COLLAPSE}, half, {LENGTH} // 2)"
    );
    let Some(holder) = HugePageHolder::start("number % 2 == 0", &then) else { return skip(NO_HUGE_PAGES) };
    let Some(tally) = fold(&holder, &FoldSettings::default()) else { return skip(NO_RIGHT) };
    let quarter = quarter as u64;
    assert!(tally.left.locked == quarter && tally.left.shared >= quarter, "{tally:?}");
    assert!(tally.freed_bytes >= quarter, "what was written to since the fork comes free: {tally:?}");
}

#[test]
fn a_sample_says_what_a_pass_would_free() {
    let Some(holder) = HugePageHolder::start("number % 4 == 0", "") else { return skip(NO_HUGE_PAGES) };
    let sample = holder.target().sample(4096, &FoldSettings::default()).unwrap();
    assert!(sample.zero_bytes >= LENGTH as u64 / 4, "{sample:?}");
    assert_eq!(sample.sampled * sample.huge_page_size, sample.huge_bytes);
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    assert_eq!(FoldTarget::open(u32::MAX).unwrap_err(), UnreadableProcess::NoSuchProcess);
}

/// Splits every huge page of the holder, whatever it holds. Returns false if this user may not.
fn split_all(holder: &HugePageHolder) -> bool {
    let addresses: Vec<u64> =
        (0..(LENGTH / HUGE) as u64).map(|number| holder.address + number * HUGE as u64).collect();
    match split::split(&holder.target().pidfd, &addresses, PAGE, |_| ()) {
        Err(FoldError::Denied) => false,
        outcome => {
            outcome.unwrap();
            assert_eq!(holder.huge_bytes(), 0, "all are split");
            true
        }
    }
}

#[test]
fn split_huge_pages_are_put_together_and_no_byte_differs() {
    if !frees_zeros(&Root::host()) {
        return skip("this kernel keeps the zeros of split huge pages");
    }
    // Of 512 pages 63 are zero: fewer than an eighth.
    let Some(holder) = HugePageHolder::start("number % 512 < 63", "") else { return skip(NO_HUGE_PAGES) };
    let before = holder.bytes();
    if !split_all(&holder) {
        return skip(NO_RIGHT);
    }
    let short = holder.target().collapse_small(&Root::at("/nonexistent"), 125, Duration::from_secs(60));
    assert!(matches!(short, Err(FoldError::NoHeadroom { .. })), "{short:?}");
    let none = holder.target().collapse_small(&Root::host(), 125, Duration::ZERO).unwrap();
    assert_eq!((none.collapsed_bytes, none.is_done, holder.huge_bytes()), (0, false, 0));
    let tally = holder.target().collapse_small(&Root::host(), 125, Duration::from_secs(60)).unwrap();
    if tally.refused_bytes > 0 && holder.huge_bytes() < LENGTH as u64 {
        return skip(NO_HUGE_PAGES);
    }
    assert!(tally.is_done && tally.collapsed_bytes >= LENGTH as u64, "{tally:?}");
    assert_eq!(holder.huge_bytes(), LENGTH as u64);
    assert!(holder.bytes() == before);
}

#[test]
fn folded_memory_and_memory_that_a_fork_shares_stay_in_small_pages() {
    if !frees_zeros(&Root::host()) {
        return skip("this kernel keeps the zeros of split huge pages");
    }
    for (zeros, then) in [("number % 512 < 64", ""), ("False", "os.fork() or sys.stdin.read()")] {
        let holder = if then.is_empty() {
            let Some(holder) = HugePageHolder::start(zeros, then) else { return skip(NO_HUGE_PAGES) };
            if !split_all(&holder) {
                return skip(NO_RIGHT);
            }
            holder
        } else {
            let Some(holder) = HugePageHolder::start_in(false, zeros, then) else { return skip(NO_HUGE_PAGES) };
            holder
        };
        if let Err(FoldError::Denied) = holder.target().collapse_small(&Root::host(), 125, Duration::from_secs(60))
        {
            return skip(NO_RIGHT);
        }
        assert_eq!(holder.huge_bytes(), 0, "{zeros} {then}");
    }
}
