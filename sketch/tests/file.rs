//! Tests of complete files: captured from processes with known memory, and read back column by column.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ksmith_core::balance::BalanceConfig;
use ksmith_core::kernel::{HostReadings, Meminfo};
use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;
use ksmith_host::memory::process::OpenProcess;
use ksmith_host::root::Root;
use ksmith_sketch::{
    CaptureOptions, FleetKey, HostFacts, RateRule, RotationOptions, RotationTurn, SamplingRate, SketchClock,
    SketchRotation, SketchSubject, capture,
};
use parquet::basic::{Compression, LogicalType, TimeUnit};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

/// A process with known memory: `contents` pages that depend only on the seed and their number, each `copies` times,
/// and `zero` zero pages. For a line at its input it rewrites the first half of the contents.
struct PatternProcess(Child);

const SCRIPT: &str = r#"
import ctypes, mmap, sys, threading, time
seed, contents, copies, zero, offset = map(int, sys.argv[1:6])
pages = contents * copies + zero
memory = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def page(number, version):
    word = (number * 0x9e3779b97f4a7c15 + seed * 0xbf58476d1ce4e5b9 + version * 0x94d049bb133111eb + 1) % 2**64
    return word.to_bytes(8, 'little') * 512
at = 0
for number in range(contents):
    for copy in range(copies):
        memory[at:at + 4096] = page(number + offset, 0)
        at += 4096
for number in range(zero):
    memory[at:at + 4096] = bytes(4096)
    at += 4096
libc = ctypes.CDLL(None, use_errno=True)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(pages * 4096), 14)  # no huge pages
print('ready', flush=True)
version = 0
for line in sys.stdin:
    # Half of the contents change.
    version += 1
    for number in range(contents // 2):
        at = number * copies * 4096
        memory[at:at + 4096 * copies] = page(number + offset, version) * copies
    print('changed', flush=True)
"#;

impl PatternProcess {
    fn start([seed, contents, copies, zero, offset]: [u64; 5]) -> Self {
        let numbers = [seed, contents, copies, zero, offset].map(|number| number.to_string());
        let mut child = Command::new("python3")
            .args(["-c", SCRIPT])
            .args(numbers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn subject(&self) -> SketchSubject {
        SketchSubject::from_process(&OpenProcess::open(self.0.id()).unwrap(), &BalanceConfig::default())
    }
}

impl Drop for PatternProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn key() -> FleetKey {
    FleetKey::from_secret(b"a secret of the tests")
}

fn facts(host: &str) -> HostFacts {
    HostFacts::read(&Root::host(), &Sample::default(), Some(host), Some(1 << 30), 1_795_000_000_000)
}

/// The contents of a sketch file.
struct SketchFile {
    metadata: BTreeMap<String, String>,
    /// Pages, zero pages and changing fraction, by guest.
    guests: BTreeMap<String, (i64, i64, Option<f64>)>,
    /// Copies and steady copies, by guest and fingerprint.
    contents: BTreeMap<String, BTreeMap<i64, (i32, Option<i32>)>>,
    /// Copies and steady copies of the heavy contents, by guest.
    heavy: BTreeMap<String, Vec<(i32, Option<i32>)>>,
}

fn read(path: &Path) -> SketchFile {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let file = reader.metadata();
    let pairs = file.file_metadata().key_value_metadata().unwrap();
    let metadata = pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone().unwrap_or_default())).collect();
    let mut read =
        SketchFile { metadata, guests: BTreeMap::new(), contents: BTreeMap::new(), heavy: BTreeMap::new() };
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let guest = row.get_string(3).unwrap().clone();
        assert_eq!((row.get_string(0).unwrap().as_str(), row.get_string(7).unwrap().as_str()), ("h1", "silver"));
        if let Ok(fingerprint) = row.get_long(12) {
            let before = read.contents.entry(guest).or_default();
            assert!(before.keys().next_back().is_none_or(|last| *last < fingerprint), "in rising order");
            before.insert(fingerprint, (row.get_int(13).unwrap(), row.get_int(14).ok()));
        } else if let Ok(copies) = row.get_int(13) {
            assert!(read.guests.contains_key(&guest), "the guest's row comes first");
            read.heavy.entry(guest).or_default().push((copies, row.get_int(14).ok()));
        } else {
            assert!(row.get_int(14).is_err());
            let figures = (row.get_long(8).unwrap(), row.get_long(9).unwrap(), row.get_double(10).ok());
            assert_eq!(read.guests.insert(guest, figures), None, "one row for each guest");
        }
    }
    read
}

fn options(holders: &[&PatternProcess], rate: RateRule, again: Option<Duration>) -> CaptureOptions {
    CaptureOptions { subjects: holders.iter().map(|holder| holder.subject()).collect(), rate, again }
}

fn write(options: &CaptureOptions, path: &Path) -> ksmith_sketch::SketchSummary {
    capture(options, &key()).unwrap().write(path, facts("h1"), &key()).unwrap()
}

fn stated(bits: u32) -> RateRule {
    RateRule::Stated(SamplingRate::from_bits(bits))
}

#[test]
fn columns_are_those_of_the_reference() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.parquet");
    let summary = write(&options(&[], stated(6), None), &path);
    assert_eq!((summary.guests, summary.contents), (0, 0));
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/internals/sketch-files.md"))
        .unwrap();
    let listed: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let columns: Vec<&str> = schema.columns().iter().map(|column| column.name()).collect();
    assert_eq!(listed.iter().filter(|name| !name.contains('.')).copied().collect::<Vec<_>>(), columns);
    let keys: Vec<String> = read(&path).metadata.into_keys().collect();
    let mut told: Vec<&str> = listed.into_iter().filter(|name| name.contains('.')).collect();
    told.sort_unstable();
    let always: Vec<&str> = told.iter().copied().filter(|name| *name != "ksmith.next_key_id").collect();
    assert_eq!((keys, always.len()), (always.iter().map(ToString::to_string).collect(), told.len() - 1));
    let time = schema.column(2).logical_type_ref().cloned();
    assert!(
        matches!(time, Some(LogicalType::Timestamp(stamp)) if stamp.is_adjusted_to_u_t_c && stamp.unit == TimeUnit::MILLIS)
    );
    assert_eq!(reader.metadata().row_group(0).column(0).compression(), Compression::SNAPPY);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_device_a_pipe_and_a_directory_are_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (pipe, link) = (directory.path().join("pipe"), directory.path().join("link"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink(&pipe, &link).unwrap();
    for path in [&pipe, &link, &directory.path().to_owned(), &Path::new("/dev/ksmith.parquet").to_owned()] {
        let found = capture(&options(&[], stated(6), None), &key()).unwrap();
        let error = found.write(path, facts("h1"), &key()).unwrap_err();
        assert!(error.to_string().ends_with("it is not a regular file: name another"), "{error}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    // A link that leads to a file, or to none yet, is replaced: it may lie in a directory of many hosts.
    let file = directory.path().join("file");
    for _ in 0..2 {
        std::os::unix::fs::symlink(&file, directory.path().join("h1.parquet")).unwrap();
        write(&options(&[], stated(6), None), &directory.path().join("h1.parquet"));
        assert!(fs::symlink_metadata(directory.path().join("h1.parquet")).unwrap().is_file() && !file.exists());
        fs::remove_file(directory.path().join("h1.parquet")).unwrap();
    }
}

#[test]
fn what_shared_memory_a_host_has_and_what_a_guest_has_in_swap_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h1.parquet");
    let holder = PatternProcess::start([1, 50, 1, 0, 0]);
    let memory = Meminfo { shmem: Some(5 << 20), ..Meminfo::default() };
    let host = HostReadings { memory: Reading::Value(memory), ..HostReadings::default() };
    let sample = Sample { host, ..Sample::default() };
    let facts = HostFacts::read(&Root::host(), &sample, Some("h1"), None, 1_795_000_000_000);
    capture(&options(&[&holder], stated(0), None), &key()).unwrap().write(&path, facts, &key()).unwrap();
    let metadata = read(&path).metadata;
    assert!(metadata["ksmith.host"].contains("\"shmem_bytes\":5242880"), "{}", metadata["ksmith.host"]);
    // It has just begun, and so has nothing in swap or nearly nothing.
    let swapped = metadata["ksmith.guests"].split("\"swap_bytes\":").nth(1).unwrap();
    assert!(swapped.starts_with(|first: char| first.is_ascii_digit()), "{swapped}");
}

#[test]
fn at_rate_1_a_file_is_exact() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h1.parquet");
    // 600 contents twice and 100 zero pages; 400 once, of which 300 are the first one's.
    let holders = [PatternProcess::start([1, 600, 2, 100, 0]), PatternProcess::start([1, 400, 1, 0, 300])];
    let (one, other) = (holders[0].subject(), holders[1].subject());
    write(&options(&[&holders[0], &holders[1]], stated(0), None), &path);
    let found = read(&path);
    let id =
        |subject: &SketchSubject| format!("process/python3/{}.{}", subject.pid, subject.processes[0].start_ticks);
    let (one, other) = (id(&one), id(&other));
    // An interpreter has memory of its own besides.
    let (pages, zero, changing) = found.guests[&one];
    assert!(pages > 1300 && zero >= 100 && changing.is_none(), "{pages} {zero}");
    let copies: i64 = found.contents[&one].values().map(|(copies, _)| i64::from(*copies)).sum();
    assert_eq!(copies + zero, pages, "each page is a copy of a content or a zero page");
    let common = |of: &dyn Fn(i32, i32) -> bool| {
        let other = &found.contents[&other];
        let both = found.contents[&one].iter().filter_map(|(content, (a, _))| Some((*a, other.get(content)?.0)));
        both.filter(|(a, b)| of(*a, *b)).count()
    };
    assert_eq!(common(&|a, b| a == 2 && b == 1), 300);
    assert!(found.contents[&one].values().all(|(_, steady)| steady.is_none()));
}

#[test]
fn contents_with_over_eight_copies_are_counted_at_any_rate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h1.parquet");
    // 40 contents with 30 copies each, of which a sample at 1/2^20 has none, and 2000 with one.
    let holders = [PatternProcess::start([1, 40, 30, 50, 0]), PatternProcess::start([2, 2000, 1, 50, 0])];
    write(&options(&[&holders[0], &holders[1]], stated(20), Some(Duration::ZERO)), &path);
    let found = read(&path);
    assert_eq!(found.metadata["ksmith.format"], "2");
    let of_pattern = |contents: &[(i32, Option<i32>)]| contents.iter().filter(|one| one.0 == 30).count();
    let counted: Vec<usize> = found.heavy.values().map(|contents| of_pattern(contents)).collect();
    assert!(counted.iter().sum::<usize>() == 40 && counted.contains(&40), "{:?}", found.heavy);
    assert!(found.heavy.values().flatten().all(|(copies, steady)| *copies > 8 && steady.is_some()));
    for (guest, contents) in &found.heavy {
        assert!(contents.is_sorted_by_key(|one| -one.0), "{guest}");
        let said = format!("\"heavy\":{}", contents.len());
        assert!(found.metadata["ksmith.guests"].contains(&said), "{said}");
    }
}

#[test]
fn a_lower_rate_keeps_the_same_contents_and_other_keys_others() {
    let directory = tempfile::tempdir().unwrap();
    let holder = PatternProcess::start([5, 4000, 1, 0, 0]);
    let path = |name: &str| directory.path().join(name);
    write(&options(&[&holder], stated(1), None), &path("a"));
    write(&options(&[&holder], stated(4), None), &path("b"));
    let (high, low) = (read(&path("a")), read(&path("b")));
    let only = |read: &SketchFile| read.contents.values().next().unwrap().clone();
    let (high, low) = (only(&high), only(&low));
    assert!(low.len() > 200 && high.len() > 1800, "{} {}", low.len(), high.len());
    // The rule for readers that the reference gives.
    let limit = 1_i64 << 60;
    let kept: Vec<i64> = high.keys().copied().filter(|content| (0..limit).contains(content)).collect();
    // The interpreter itself may have changed a page of its own between the two.
    let differing = kept.iter().filter(|content| !low.contains_key(content)).count();
    assert!(differing <= 2 && low.len().abs_diff(kept.len()) <= 4, "{differing} of {}", kept.len());
    let other = FleetKey::from_secret(b"another secret of the tests");
    let found = capture(&options(&[&holder], stated(1), None), &other).unwrap();
    found.write(&path("c"), facts("h1"), &other).unwrap();
    let foreign = read(&path("c"));
    assert!(only(&foreign).keys().all(|content| !high.contains_key(content)));
    assert_ne!(foreign.metadata["ksmith.key_id"], read(&path("a")).metadata["ksmith.key_id"]);
}

#[test]
fn what_changes_between_the_looks_is_not_steady() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h1.parquet");
    let mut holder = PatternProcess::start([9, 4000, 1, 0, 0]);
    let mut rotation = SketchRotation::new(
        key(),
        RotationOptions {
            rate: stated(0),
            again: Some(Duration::from_secs(100)),
            every: Duration::from_secs(1000),
        },
    );
    rotation.guests(vec![holder.subject()]);
    let clock = SketchClock::start();
    let mut now = clock.now();
    // Time passes only here.
    while !matches!(rotation.turn(now), RotationTurn::Idle(_)) {}
    assert_eq!(rotation.sketched(), 0, "it waits for the second look");
    holder.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let mut line = String::new();
    BufReader::new(holder.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    now.at += Duration::from_secs(101);
    while rotation.turn(now) != RotationTurn::Round {}
    assert_eq!((rotation.sketched(), rotation.known()), (1, 1));
    rotation.write(&path, facts("h1"), Some("5a")).unwrap();
    assert_eq!(read(&path).metadata.get("ksmith.next_key_id").map(String::as_str), Some("5a"));
    rotation.write(&path, facts("h1"), None).unwrap();
    let found = read(&path);
    let (pages, _, changing) = *found.guests.values().next().unwrap();
    let contents = found.contents.values().next().unwrap();
    let steady: i64 = contents.values().map(|(_, steady)| i64::from(steady.unwrap())).sum();
    let copies: i64 = contents.values().map(|(copies, _)| i64::from(*copies)).sum();
    // 2000 pages changed, and a few of the interpreter's.
    assert!((2000..2600).contains(&(copies - steady)), "{copies} {steady} of {pages}");
    assert!((changing.unwrap() - (copies - steady) as f64 / copies as f64).abs() < 1e-12);
    let RotationTurn::Idle(next) = rotation.turn(now) else { panic!("a round begins too soon") };
    assert!(next > now.at && next <= now.at + Duration::from_secs(1000));
    now.at = next;
    assert_eq!(rotation.turn(now), RotationTurn::Worked);
    assert_eq!(rotation.turn(now), RotationTurn::Opened);
}

#[test]
fn a_guest_that_ends_is_forgotten_and_one_that_was_not_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h1.parquet");
    let (first, second) = (PatternProcess::start([1, 500, 1, 0, 0]), PatternProcess::start([2, 500, 1, 0, 0]));
    let mut rotation = SketchRotation::new(
        key(),
        RotationOptions { rate: stated(0), again: None, every: Duration::from_secs(1000) },
    );
    rotation.guests(vec![first.subject(), second.subject()]);
    let now = SketchClock::start().now();
    while rotation.sketched() == 0 {
        rotation.turn(now);
    }
    rotation.write(&path, facts("h1"), None).unwrap();
    let found = read(&path);
    assert_eq!((found.guests.len(), found.metadata["ksmith.complete"].as_str()), (1, "false"));
    assert!(found.metadata["ksmith.host"].contains("it has not been read yet"));
    // The first one ends while the second one is read.
    let left = second.subject();
    drop(first);
    rotation.guests(vec![left]);
    while rotation.turn(now) != RotationTurn::Round {}
    rotation.write(&path, facts("h1"), None).unwrap();
    let found = read(&path);
    assert_eq!((found.guests.len(), found.metadata["ksmith.complete"].as_str()), (1, "true"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside the file");
}

/// A script of a process with only shared memory, except for the interpreter's own.
const SHARED: &str = "
import ctypes, mmap, sys
if sys.argv[1:]: ctypes.CDLL(None).prctl(15, sys.argv[1].encode())  # PR_SET_NAME
memory = mmap.mmap(-1, 64 << 20)
for at in range(0, len(memory), 4096): memory[at] = 1
print('ready', flush=True)
input()
";

/// Starts that script. It may take another program's name.
fn shared(name: &[&str]) -> PatternProcess {
    let mut command = Command::new("python3");
    command.args(["-c", SHARED]).args(name);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is installed");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    PatternProcess(child)
}

#[test]
fn a_virtual_machine_with_shared_memory_is_left_out_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h1.parquet");
    let (machine, process, private) =
        (shared(&["qemu-system-x86"]), shared(&[]), PatternProcess::start([1, 50, 1, 0, 0]));
    let summary = write(&options(&[&machine, &process, &private], stated(0), None), &path);
    // Of a process the private part may merge, so it stays.
    assert_eq!(summary.guests, 2);
    let [skipped] = &summary.skipped[..] else { panic!("{:?}", summary.skipped) };
    assert!(skipped.guest.contains(&format!("(pid {})", machine.0.id())), "{skipped:?}");
    assert!(
        skipped.why.starts_with("KSM can't merge its memory") && skipped.why.ends_with("in shared mappings"),
        "{skipped:?}"
    );
    let found = read(&path);
    assert_eq!(found.guests.len(), 2);
    assert_eq!(found.metadata["ksmith.complete"], "false");
    assert!(found.metadata["ksmith.host"].contains(&skipped.why), "{}", found.metadata["ksmith.host"]);
    let mut rotation = SketchRotation::new(
        key(),
        RotationOptions { rate: stated(0), again: None, every: Duration::from_secs(1000) },
    );
    rotation.guests(vec![machine.subject(), private.subject()]);
    let clock = SketchClock::start();
    while rotation.turn(clock.now()) != RotationTurn::Round {}
    rotation.write(&path, facts("h1"), None).unwrap();
    assert!(read(&path).metadata["ksmith.host"].contains("in shared mappings"));
}

/// A script that executes the given program without huge pages. The kernel frees zero pages of a huge page that is
/// mostly zero.
const WITHOUT_HUGE_PAGES: &str = "
import ctypes, os, sys
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE
os.execvp(sys.argv[1], sys.argv[1:])
";

/// Starts a QEMU machine with this memory backend, which never starts its processor. It offers nothing to KSM,
/// including its firmware: meanwhile tests of other crates start ksmd, or refuse a host with KSM in use.
fn machine(backend: &str) -> Option<PatternProcess> {
    const QEMU: &str = "qemu-system-x86_64";
    Command::new(QEMU).arg("--version").output().ok()?;
    let mut command = Command::new("python3");
    command.args(["-c", WITHOUT_HUGE_PAGES, QEMU]);
    command.args(["-accel", "tcg", "-S", "-nodefaults", "-display", "none", "-m", "64", "-name", "guest=machine"]);
    command.args(["-object", &format!("{backend},id=ram,size=64M,prealloc=on,merge=off")]);
    command.args(["-machine", "pc,mem-merge=off,memory-backend=ram", "-monitor", "stdio"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is installed");
    // The monitor says a line before the memory is there, and answers once the machine is.
    child.stdin.as_mut().unwrap().write_all(b"info status\n").unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    while !lines.next().expect("the machine has ended").unwrap().contains("VM status") {}
    drop(lines);
    Some(PatternProcess(child))
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test's own words")]
fn a_machine_of_qemu_is_sketched_only_if_its_memory_is_private() {
    let (Some(shared), Some(private)) = (machine("memory-backend-memfd,share=on"), machine("memory-backend-ram"))
    else {
        // The test harness swallows what `eprintln!` says in a test that passes, and `make test` counts these lines.
        let _ = writeln!(std::io::stderr(), "SKIPPED, nothing was tested: qemu-system-x86_64 is not installed");
        return;
    };
    let found = capture(&options(&[&shared, &private], stated(6), None), &key()).unwrap();
    let [sketched] = &found.guests[..] else { panic!("{:?}", found.skipped) };
    assert_eq!(sketched.subject.pid, private.0.id());
    assert!(sketched.sketch.pages >= 64 << 8, "its RAM was read: {} pages", sketched.sketch.pages);
    let [skipped] = &found.skipped[..] else { panic!("{:?}", found.skipped) };
    assert_eq!(skipped.guest, format!("machine (pid {})", shared.0.id()));
    assert!(skipped.why.ends_with("in shared mappings"), "{skipped:?}");
}

#[test]
fn the_largest_guest_has_about_as_many_contents_as_were_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h1.parquet");
    let holders = [PatternProcess::start([1, 9000, 1, 0, 0]), PatternProcess::start([2, 500, 1, 0, 0])];
    let summary = write(&options(&[&holders[0], &holders[1]], RateRule::PerGuest(1024), None), &path);
    let found = read(&path);
    let most = found.contents.values().map(BTreeMap::len).max().unwrap();
    assert!((400..=1120).contains(&most), "{most} at {}", summary.rate);
    assert!(summary.bytes < 64 << 10, "{}", summary.bytes);
}

#[test]
fn a_place_that_can_not_be_written_is_an_error_and_leaves_the_file_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h1.parquet");
    fs::write(&path, "the file before").unwrap();
    let found = || capture(&options(&[], stated(0), None), &key()).unwrap();
    let error = found().write(&directory.path().join("none/h1.parquet"), facts("h1"), &key()).unwrap_err();
    assert!(error.to_string().contains("none/h1.parquet"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "the file before");
    found().write(&path, facts("h1"), &key()).unwrap();
    assert_eq!(&fs::read(&path).unwrap()[..4], b"PAR1");
    // A directory is in the place of the file.
    fs::create_dir(directory.path().join("h2.parquet")).unwrap();
    assert!(found().write(&directory.path().join("h2.parquet"), facts("h1"), &key()).is_err());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "no part of a file is left");
}
