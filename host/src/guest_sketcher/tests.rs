use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use ksmith_core::kernel::{KsmStat, PidStat};
use ksmith_core::reading::Reading;
use ksmith_core::sample::HostSketches;

use super::*;
use crate::reader::SUSPECTS;
use crate::root::Root;

const PAGES: u64 = 16384;

/// Starts a process with a memory of numbered pages: those from `first` on.
fn holder(first: u64) -> Child {
    let program = format!(
        "import mmap,sys\n\
         m = mmap.mmap(-1, {PAGES}*4096, flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS)\n\
         for at in range({PAGES}): m[at*4096:at*4096+8] = ({first}+at+1).to_bytes(8,'little')\n\
         print('ready', flush=True)\n\
         sys.stdin.read()\n"
    );
    let mut child = Command::new("python3")
        .args(["-c", &program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn id_of(pid: u32) -> ProcessId {
    let stat = Root::host().text(format!("proc/{pid}/stat")).and_then(|text| PidStat::parse(&text));
    ProcessId { pid, start_ticks: stat.value().unwrap().start_ticks }
}

fn sketches(guests: &[ProcessId], reader: &mut GuestReader) -> HostSketches {
    let guests = guests.iter().map(|id| std::sync::Arc::new(reader.sketch(*id).unwrap())).collect();
    HostSketches { guests, full_scans: 0, page_size: 4096 }
}

#[test]
fn what_a_new_process_holds_in_common_with_another_is_known_before_ksmd_moves() {
    if rustix::param::page_size() != 4096 {
        return;
    }
    let (mut old, mut new) = (holder(0), holder(PAGES / 2));
    let ids = [&old, &new].map(|child| id_of(child.id()));
    let mut reader = GuestReader::default();
    let sketches = sketches(&ids, &mut reader);
    for sketch in &sketches.guests {
        assert!(sketch.bytes() <= GuestSketch::BYTES, "{} bytes", sketch.bytes());
    }
    let found = sketches.matches(|id| id == ids[1], |_| true);
    let expected = (PAGES / 2 * 4096) as f64;
    // Both are small enough to be read whole. Python's own heaps are about equal as well, and small.
    let far = (found.unmerged.bytes - expected).abs();
    assert!(far <= 5.0 * found.unmerged.error + 8e6, "{found:?}, and not {expected}");
    for child in [&mut old, &mut new] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(reader.sketch(ids[0]).is_none(), "it has ended");
}

#[test]
fn pages_that_changed_are_seen_at_the_second_look() {
    let mut memory = vec![7_u8; 4 << 20];
    for (at, page) in memory.chunks_mut(4096).enumerate() {
        page[..8].copy_from_slice(&(at as u64 + 1).to_le_bytes());
    }
    let id = id_of(std::process::id());
    let mut reader = GuestReader::default();
    let places: Vec<u64> = memory.chunks(4096).skip(1).take(8).map(|page| page.as_ptr() as u64 / 4096).collect();
    let before = reader.reread_pages(&[(id, places.clone())]);
    let at = |number: usize| (places[number] * 4096 - memory.as_ptr() as u64) as usize;
    let changed = at(3);
    memory[changed + 100] = 1;
    let after = reader.reread_pages(&[(id, places.clone())]);
    for (number, place) in places.iter().enumerate() {
        let [one, two] = [&before, &after].map(|looked| looked[0].1[place].unwrap());
        assert_eq!(one == two, number != 3, "{number}: {one:?} {two:?}");
    }
}

#[test]
fn pages_that_do_not_come_are_not_taken_for_gone() {
    let mut child = holder(0);
    let id = id_of(child.id());
    let mut reader = GuestReader::default();
    let sketch = reader.sketch(id).unwrap();
    let places: Vec<u64> = sketch.kept().iter().map(|page| page.place()).collect();
    let asked = [(id, places)];
    // As if it had not answered.
    SUSPECTS.record_silence(id.pid, Instant::now() + Duration::from_secs(60));
    assert!(reader.reread_pages(&asked).is_empty() && reader.sketch(id).is_none());
    SUSPECTS.clear(id.pid);
    let looked = reader.reread_pages(&asked);
    assert!(looked[0].1.values().filter(|page| page.is_some()).count() > asked[0].1.len() / 2, "it is asked again");
    assert!(reader.sketch(id).is_some());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_daemon_learns_of_a_guest_without_waiting_for_it() {
    let mut child = holder(0);
    let id = id_of(child.id());
    let process = ksmith_core::sample::ProcessSample {
        rss_bytes: PAGES * 4096,
        ksm: KsmStat { mergeable: Some(true), ..KsmStat::default() },
        ..ksmith_core::sample::ProcessSample::new(id, "guest".into(), false)
    };
    let opted_out = ksmith_core::sample::ProcessSample {
        rss_bytes: PAGES * 4096,
        ksm: KsmStat { mergeable: Some(false), merge_any: Some(false), ..KsmStat::default() },
        ..ksmith_core::sample::ProcessSample::new(id_of(std::process::id()), "other".into(), false)
    };
    let mut sketcher = GuestSketcher::start().unwrap();
    let mut seconds = 0;
    let found = loop {
        seconds += 1;
        let processes = vec![process.clone(), opted_out.clone()];
        let at = Duration::from_millis(id.start_ticks * 10) + Duration::from_secs(seconds);
        let mut sample = Sample { at, page_size: 4096, processes, ..Sample::default() };
        sketcher.read(&mut sample);
        if let Reading::Value(sketches) = sample.sketches {
            break sketches;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let ids: Vec<_> = found.guests.iter().map(|sketch| sketch.id).collect();
    assert_eq!(ids, [id], "a guest that does not merge is not read");
    assert!(sketcher.cpu_seconds() > 0.0);
    child.kill().unwrap();
    child.wait().unwrap();
}
