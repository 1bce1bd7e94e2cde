//! Tests of the reader on this host, with a process that answers, and with files that never do.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn own(file: &str) -> WantedFile<'_> {
    WantedFile { pid: std::process::id(), file, offset: 0, most: 1 << 20 }
}

fn patience() -> ReadPatience {
    ReadPatience::new(LONG, LONG)
}

/// A process that ends when this is dropped.
struct SleepProcess(std::process::Child);

impl SleepProcess {
    fn start(argument: &str) -> Self {
        let mut command = Command::new("sleep");
        command.arg0(argument).arg("1000").stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for SleepProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn whole(reader: &mut ProcessReader, want: WantedFile<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.each_piece(want, patience(), |piece| {
        bytes.extend_from_slice(piece);
        ControlFlow::Continue(())
    })?;
    Ok(bytes)
}

#[test]
fn it_reads_what_this_process_would_read() {
    let sleeper = SleepProcess::start(&"long".repeat(20_000));
    let pid = sleeper.0.id();
    let mut reader = ProcessReader::default();
    for file in ["comm", "maps", "cmdline", "limits"] {
        let direct = || std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
        // Between fork and exec the files are still the parent's.
        while direct().is_empty() || std::fs::read(format!("/proc/{pid}/comm")).unwrap() != b"sleep\n" {
            std::thread::yield_now();
        }
        let read = whole(&mut reader, WantedFile { pid, ..own(file) }).unwrap();
        assert_eq!(read, direct(), "{file}");
    }
    let part = WantedFile { pid, offset: 4, most: 8, ..own("cmdline") };
    assert_eq!(whole(&mut reader, part).unwrap(), b"longlong");
}

#[test]
fn many_small_files_are_read_in_their_order() {
    let sleepers: Vec<SleepProcess> = (0..3).map(|_| SleepProcess::start("sleep")).collect();
    let pids: Vec<u32> = (0..500).map(|at| sleepers[at % 3].0.id()).collect();
    let wants: Vec<WantedFile<'_>> = pids.iter().map(|pid| WantedFile { pid: *pid, ..own("stat") }).collect();
    let answers = ProcessReader::default().read_all(&wants, patience());
    for (pid, answer) in pids.iter().zip(answers) {
        let text = String::from_utf8(answer.unwrap().unwrap()).unwrap();
        assert!(text.starts_with(&format!("{pid} (")), "{text}");
    }
}

#[test]
fn of_pages_those_are_read_that_are_present() {
    let size = rustix::param::page_size();
    // Too much for memory that was freed to serve again, and its middle is beyond the first huge page.
    let mut memory = vec![0_u8; 64 << 20];
    let first = memory.as_ptr().addr().next_multiple_of(size);
    let at = |page: usize| first - memory.as_ptr().addr() + page * size;
    let (second, fourth) = (at(1), at(3));
    memory[second..second + size].fill(7);
    memory[fourth] = 9;
    let hash = |at: usize| Some(twox_hash::XxHash3_64::oneshot(&memory[at..at + size]));
    let page = |page: usize| (first + page * size) as u64;
    let absent = page((32 << 20) / size);
    // More than one request has.
    let many: Vec<u64> = [page(1), absent, page(3)].into_iter().cycle().take(200).collect();
    let found: Vec<Option<u64>> = [hash(second), None, hash(fourth)].into_iter().cycle().take(200).collect();
    let child = SleepProcess::start("sleep");
    let unmapped = [0, u64::MAX];
    let wants = [
        WantedPages { pid: std::process::id(), addresses: &many },
        WantedPages { pid: child.0.id(), addresses: &unmapped },
        WantedPages { pid: u32::MAX, addresses: &many },
        WantedPages { pid: std::process::id(), addresses: &[] },
        WantedPages { pid: std::process::id(), addresses: &many[1..] },
    ];
    let answers = ProcessReader::default().read_pages(&wants, patience());
    let contents = |answer: &Option<io::Result<Vec<Option<SampledPage>>>>| {
        let pages = answer.as_ref().unwrap().as_ref().ok()?;
        Some(pages.iter().map(|page| page.map(|page| page.content)).collect())
    };
    let answers: Vec<Option<Vec<Option<u64>>>> = answers.iter().map(contents).collect();
    let expected = [Some(found.clone()), Some(vec![None; 2]), None, Some(Vec::new()), Some(found[1..].to_vec())];
    assert_eq!(answers, expected);
}

#[test]
fn an_error_is_the_kernels() {
    let mut reader = ProcessReader::default();
    let absent = reader.read_all(&[own("no-such-file"), own("comm")], patience());
    assert_eq!(absent[0].as_ref().unwrap().as_ref().unwrap_err().raw_os_error(), Some(libc::ENOENT));
    assert!(absent[1].as_ref().unwrap().is_ok(), "the next is read all the same");
    assert!(whole(&mut reader, own("no-such-file")).is_err());
    let path = "x".repeat(200);
    assert!(whole(&mut reader, own(&path)).is_err());
}

#[test]
fn what_is_not_wanted_is_not_read() {
    let mut reader = ProcessReader::default();
    let mut pieces = 0;
    let broken_off = reader.each_piece(own("maps"), patience(), |_| {
        pieces += 1;
        ControlFlow::Break(())
    });
    assert!(broken_off.is_ok() && pieces == 1);
    assert!(!whole(&mut reader, own("comm")).unwrap().is_empty());
}

#[test]
fn a_child_that_was_killed_is_replaced() {
    let mut reader = ProcessReader::default();
    whole(&mut reader, own("comm")).unwrap();
    reader.child.as_ref().unwrap().kill();
    assert!(!whole(&mut reader, own("comm")).unwrap().is_empty());
    reader.child.as_ref().unwrap().kill();
    assert!(reader.read_all(&[own("comm")], patience())[0].as_ref().unwrap().is_ok());
}

#[test]
fn the_child_holds_nothing_of_ours_and_ends_with_us() {
    let mut reader = ProcessReader::default();
    whole(&mut reader, own("comm")).unwrap();
    let pid = reader.child.as_ref().unwrap().pid();
    let held = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert_eq!(held, 3);
    drop(reader);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn without_time_nothing_is_asked() {
    let mut reader = ProcessReader::default();
    let answers = reader.read_all(&[own("comm")], ReadPatience::new(LONG, Duration::ZERO));
    assert!(answers[0].is_none() && reader.child.is_none());
}

/// A process that has memory in small pages, which are all present, and sleeps until this is dropped.
struct LargeProcess(rustix::process::Pid);

impl LargeProcess {
    #[allow(unsafe_code, reason = "system calls, and fork without another program to execute")]
    fn fork(length: usize) -> Self {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping, which nothing else points to, and of which no reference is taken. The child only makes
        // system calls that are safe after a fork, and never returns.
        unsafe {
            let start = mmap_anonymous(std::ptr::null_mut(), length, prot, MapFlags::PRIVATE).unwrap();
            madvise(start, length, Advice::LinuxNoHugepage).unwrap();
            madvise(start, length, Advice::LinuxPopulateWrite).unwrap();
            let pid = libc::fork();
            if pid == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pause();
                libc::_exit(0)
            }
            munmap(start, length).unwrap();
            Self(rustix::process::Pid::from_raw(pid).unwrap())
        }
    }
}

impl Drop for LargeProcess {
    fn drop(&mut self) {
        rustix::process::kill_process(self.0, rustix::process::Signal::KILL).unwrap();
        rustix::process::waitpid(Some(self.0), rustix::process::WaitOptions::empty()).unwrap();
    }
}

#[test]
fn a_walk_over_much_memory_is_waited_for() {
    let process = LargeProcess::fork(512 << 20);
    let want = WantedFile { pid: process.0.as_raw_nonzero().get().unsigned_abs(), ..own("smaps_rollup") };
    let hasty = ReadPatience { walk: LONG, ..ReadPatience::new(Duration::from_micros(100), LONG) };
    let mut reader = ProcessReader::default();
    for _ in 0..10 {
        let mut length = 0;
        let outcome = reader.each_piece(want, hasty, |piece| {
            length += piece.len();
            ControlFlow::Continue(())
        });
        assert!(outcome.is_ok() && length > 100, "{outcome:?} after {length} bytes");
    }
}
