//! Tests of the observer on small trees that look like hosts.

mod over_budget;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessSample, Sample};
use tempfile::TempDir;

use super::*;
use crate::reader::SUSPECTS;

const INVOLVED: &str = "ksm_rmap_items 9\nksm_zero_pages 1\nksm_merging_pages 5\nksm_process_profit 1\n\
                        ksm_merge_any: no\nksm_mergeable: yes\n";
const UNINVOLVED: &str = "ksm_rmap_items 0\nksm_zero_pages 0\nksm_merging_pages 0\nksm_process_profit 0\n\
                          ksm_merge_any: no\nksm_mergeable: no\n";
const KERNEL_THREAD: u64 = 0x20_0000;

/// A directory tree with the files of one host.
struct HostTree {
    tree: TempDir,
    observer: HostObserver,
}

impl HostTree {
    fn new() -> Self {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("proc")).unwrap();
        fs::write(tree.path().join("proc/cpuinfo"), "vendor_id\t: AuthenticAMD\n").unwrap();
        let observer = HostObserver::new(Root::at(tree.path()));
        Self { tree, observer }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.tree.path().join(relative)
    }

    fn put(&self, relative: &str, text: impl AsRef<[u8]>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Adds a process with a name, flags and a start time.
    fn process(&self, pid: u32, comm: &str, flags: u64, start: u64) {
        self.put(&format!("proc/{pid}/comm"), format!("{comm}\n"));
        let pages = if flags == KERNEL_THREAD { 0 } else { 10 };
        self.put(&format!("proc/{pid}/statm"), format!("{pages} {pages} 0 0 0 0 0\n"));
        let stat = format!("{pid} ({comm}) S 1 1 1 0 -1 {flags} 7 0 0 0 3 4 0 0 20 0 1 0 {start} 0 10 0\n");
        self.put(&format!("proc/{pid}/stat"), stat);
    }

    fn figures(&self, pid: u32, text: &str) {
        self.put(&format!("proc/{pid}/ksm_stat"), text);
    }

    fn exit(&self, pid: u32) {
        fs::remove_dir_all(self.path(&format!("proc/{pid}"))).unwrap();
    }

    /// Takes one sample for each of `seconds`, because a tree's time advances a second per sample.
    fn sample_after(&mut self, seconds: usize) -> Sample {
        (0..seconds).map(|_| self.observer.sample()).last().unwrap()
    }

    fn pids(&mut self) -> Vec<u32> {
        self.observer.sample().processes.iter().map(|process| process.id.pid).collect()
    }
}

fn only(sample: &Sample) -> &ProcessSample {
    assert_eq!(sample.processes.len(), 1, "{:?}", sample.processes);
    &sample.processes[0]
}

#[test]
fn an_empty_tree_gives_an_empty_sample() {
    let mut observer = HostObserver::new(Root::at("/nonexistent"));
    let sample = observer.sample();
    assert!(!sample.ksm.is_present());
    assert_eq!(sample.host.memory, Reading::Absent);
    assert_eq!((sample.processes.len(), sample.hidden_processes), (0, 0));
    assert_eq!(sample.at, Duration::ZERO);
    assert_eq!(observer.sample().at, Duration::from_secs(1));
}

#[test]
fn the_first_sample_has_all_processes_with_mergeable_memory_in_order() {
    let mut host = HostTree::new();
    for (pid, figures) in [(30, INVOLVED), (4, INVOLVED), (7, UNINVOLVED)] {
        host.process(pid, "work", 0, u64::from(pid));
        host.figures(pid, figures);
    }
    host.process(2, "kthreadd", KERNEL_THREAD, 0);
    host.figures(2, "");
    let sample = host.observer.sample();
    let pids: Vec<_> = sample.processes.iter().map(|process| process.id.pid).collect();
    assert_eq!(pids, [4, 30]);
    let process = &sample.processes[1];
    assert_eq!((process.rss_bytes, process.cpu_ticks, process.minor_faults), (Some(10 * 4096), 7, 7));
    assert_eq!((process.merging_pages(), process.zero_pages()), (5, 1));
    assert_eq!((&*process.name, process.is_vm), ("work", false));
    assert_eq!(sample.hidden_processes, 0);
}

#[test]
fn a_hypervisor_counts_before_the_kernel_knows_of_mergeable_memory() {
    let mut host = HostTree::new();
    host.process(9, "qemu-system-x86", 0, 5);
    host.figures(9, UNINVOLVED);
    host.put("proc/9/cmdline", b"/usr/bin/qemu-system-x86_64\0-name\0guest=web,debug-threads=on\0");
    let sample = host.observer.sample();
    let vm = only(&sample);
    assert_eq!((&*vm.name, vm.is_vm, vm.ksm.mergeable), ("web", true, Some(false)));
}

#[test]
fn one_sample_reads_so_much_of_command_lines_and_later_ones_the_rest() {
    let mut host = HostTree::new();
    host.observer.sample();
    for pid in 100..140 {
        host.process(pid, "qemu-system-x86", 0, 5);
        host.figures(pid, INVOLVED);
        let line = format!("qemu-system-x86_64\0-name\0guest=web-{pid}\0-append\0{}\0", "x".repeat(250 << 10));
        host.put(&format!("proc/{pid}/cmdline"), line);
    }
    host.observer.refresh();
    let named =
        |sample: &Sample| sample.processes.iter().filter(|process| process.name.starts_with("web-")).count();
    let first = host.observer.sample();
    assert_eq!(first.processes.len(), 40, "those without a name are there too");
    assert!((1..10).contains(&named(&first)), "{}", named(&first));
    let last = host.sample_after(12);
    assert_eq!((last.processes.len(), named(&last)), (40, 40));
}

#[test]
fn one_users_long_command_lines_delay_no_other_users_guest() {
    let mut host = HostTree::new();
    host.observer.sample();
    let start = |pid: u32, uid: u32, rest: usize| {
        host.process(pid, "qemu-system-x86", 0, 5);
        host.figures(pid, INVOLVED);
        host.put(&format!("proc/{pid}/status"), format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n"));
        let line = format!("qemu-system-x86_64\0-name\0guest=of-{uid}\0-append\0{}\0", "x".repeat(rest));
        host.put(&format!("proc/{pid}/cmdline"), line);
    };
    (100..140).for_each(|pid| start(pid, 1000, 250 << 10));
    (140..142).for_each(|pid| start(pid, pid, 10));
    (200..300).for_each(|pid| start(pid, 1001, 10));
    host.observer.refresh();
    let named =
        |sample: &Sample, name: &str| sample.processes.iter().filter(|process| &*process.name == name).count();
    let first = host.observer.sample();
    assert!((1..10).contains(&named(&first, "of-1000")), "{}", named(&first, "of-1000"));
    assert_eq!((named(&first, "of-140"), named(&first, "of-141")), (1, 1));
    assert_eq!(named(&first, "of-1001"), 64, "many short ones are read by several samples as well");
    assert_eq!(named(&host.observer.sample(), "of-1001"), 100);
}

#[test]
fn a_command_line_that_was_not_asked_for_is_read_later() {
    let mut host = HostTree::new();
    // No other test has it.
    let pid = 4_100_100;
    host.process(pid, "qemu-system-x86", 0, 5);
    host.figures(pid, INVOLVED);
    host.put(&format!("proc/{pid}/cmdline"), "qemu-system-x86_64\0-name\0guest=web\0");
    SUSPECTS.record_silence(pid, "ksm_stat", std::time::Instant::now());
    let name = |sample: &Sample| sample.processes[0].name.to_string();
    assert_eq!(name(&host.observer.sample()), "qemu-system-x86", "it is left alone for a while");
    SUSPECTS.record_answer(pid, "ksm_stat");
    assert_eq!(name(&host.observer.sample()), "web");
}

#[test]
fn figures_come_from_what_the_kernel_has() {
    let mut host = HostTree::new();
    host.process(10, "linux61", 0, 1);
    host.figures(10, "ksm_rmap_items 12\n");
    host.put("proc/10/ksm_merging_pages", "8\n");
    host.process(11, "linux519", 0, 1);
    host.put("proc/11/ksm_merging_pages", "4\n");
    host.process(12, "idle519", 0, 1);
    host.put("proc/12/ksm_merging_pages", "0\n");
    host.process(13, "older", 0, 1);
    let sample = host.observer.sample();
    let found: Vec<_> = sample.processes.iter().map(|p| (p.id.pid, p.ksm.rmap_items, p.merging_pages())).collect();
    assert_eq!(found, [(10, Some(12), 8), (11, None, 4)]);
}

#[test]
fn on_older_kernels_the_mappings_flags_tell_after_a_while() {
    let mut host = HostTree::new();
    host.process(13, "opted-in", 0, 1);
    host.figures(13, "ksm_rmap_items 0\n");
    host.put("proc/13/smaps", "7f00-7f01 rw-p\nRss: 4 kB\nVmFlags: rd wr mg\n");
    host.process(14, "plain", 0, 1);
    host.put("proc/14/smaps", "7f00-7f01 rw-p\nRss: 4 kB\nVmFlags: rd wr\n");
    assert!(host.pids().is_empty());
    let sample = host.sample_after(6);
    assert_eq!((only(&sample).id.pid, only(&sample).ksm.mergeable), (13, Some(true)));
}

#[test]
fn on_older_kernels_a_process_that_does_not_answer_once_is_asked_again_soon() {
    let mut host = HostTree::new();
    host.process(13, "opted-in", 0, 1);
    host.figures(13, "ksm_rmap_items 0\n");
    host.put("proc/13/smaps", "7f00-7f01 rw-p\nVmFlags: rd wr mg\n");
    assert!(host.pids().is_empty());
    host.observer.processes.asked.silent_once = Some(13);
    let sample = host.sample_after(8);
    assert_eq!(host.observer.processes.asked.silent_once, None, "it was asked");
    assert_eq!(only(&sample).id.pid, 13);
}

#[test]
fn on_older_kernels_the_mappings_of_large_processes_are_read_one_by_one_and_of_huge_ones_never() {
    let mut host = HostTree::new();
    let gib_pages = (1 << 30) / rustix::param::page_size();
    for (pid, gib) in [(13, 1), (14, 2), (15, 8), (16, 9)] {
        let rss = gib * gib_pages;
        host.put(
            &format!("proc/{pid}/stat"),
            format!("{pid} (db) S 1 1 1 0 -1 0 7 0 0 0 3 4 0 0 20 0 1 0 1 0 {rss} 0\n"),
        );
        host.put(&format!("proc/{pid}/statm"), format!("{rss} {rss} 0 0 0 0 0\n"));
        host.figures(pid, "ksm_rmap_items 0\n");
        host.put(&format!("proc/{pid}/smaps"), "7f00-7f01 rw-p\nVmFlags: rd wr mg\n");
    }
    let found: Vec<usize> = (0..1000).map(|_| host.pids().len()).collect();
    let of = |count| found.iter().filter(|&&found| found == count).count();
    assert_eq!((of(1), of(2), of(4)), (1, 1, 0), "one at each sample, and one never");
    assert_eq!(host.pids(), [13, 14, 15]);
}

#[test]
fn where_the_kernel_is_sure_the_mappings_are_not_read() {
    let mut host = HostTree::new();
    host.process(13, "odd", 0, 1);
    host.figures(13, UNINVOLVED);
    host.put("proc/13/smaps", "VmFlags: rd wr mg\n");
    assert_eq!(host.sample_after(30).processes.len(), 0);
}

#[test]
fn an_exit_ends_a_process_and_a_reused_pid_is_another() {
    let mut host = HostTree::new();
    host.process(20, "old", 0, 100);
    host.figures(20, INVOLVED);
    assert_eq!(only(&host.observer.sample()).id.start_ticks, 100);
    host.process(20, "new", 0, 200);
    assert!(host.pids().is_empty(), "the old one is gone and the new one not yet looked at");
    let sample = host.observer.sample();
    assert_eq!((only(&sample).id.start_ticks, &*only(&sample).name), (200, "new"));
    host.exit(20);
    assert!(host.pids().is_empty());
}

#[test]
fn a_process_that_exits_between_its_files_is_gone_and_a_zombie_too() {
    let mut host = HostTree::new();
    for pid in [20, 21] {
        host.process(pid, "work", 0, 1);
        host.figures(pid, INVOLVED);
    }
    assert_eq!(host.pids(), [20, 21]);
    host.figures(20, "");
    host.put("proc/21/stat", "21 (work) Z 1 1 1 0 -1 4 7 0 0 0 3 4 0 0 20 0 1 0 1 0 0 0\n");
    assert!(host.pids().is_empty());
}

#[test]
fn while_ksmd_sleeps_figures_are_read_now_and_then_and_at_once_when_it_has_worked() {
    let mut host = HostTree::new();
    host.process(20, "work", 0, 1);
    host.figures(20, "ksm_rmap_items 1\n");
    host.put("sys/kernel/mm/ksm/run", "0\n");
    host.put("sys/kernel/mm/ksm/full_scans", "1\n");
    let items = |sample: Sample| only(&sample).ksm.rmap_items;
    assert_eq!(items(host.sample_after(2)), Some(1));
    host.figures(20, "ksm_rmap_items 2\n");
    assert_eq!(items(host.sample_after(16)), Some(2), "each process has its turn");
    host.figures(20, "ksm_rmap_items 3\n");
    host.put("sys/kernel/mm/ksm/full_scans", "2\n");
    assert_eq!(items(host.sample_after(1)), Some(3));
    host.put("sys/kernel/mm/ksm/run", "1\n");
    host.sample_after(2);
    host.figures(20, "ksm_rmap_items 4\n");
    assert_eq!(items(host.sample_after(1)), Some(4), "a ksmd that works may do so between two counts");
}

#[test]
fn while_ksmd_sleeps_a_part_of_many_processes_is_read_and_all_when_asked_or_ksmd_has_worked() {
    let mut host = HostTree::new();
    let put = |host: &HostTree, faults: u64| {
        for pid in 100..140 {
            let stat = format!("{pid} (work) S 1 1 1 0 -1 0 {faults} 0 0 0 3 4 0 0 20 0 1 0 1 0 10 0\n");
            host.put(&format!("proc/{pid}/stat"), stat);
            host.figures(pid, INVOLVED);
        }
    };
    let seen = |sample: &Sample, faults: u64| {
        sample.processes.iter().filter(|process| process.minor_faults == faults).count()
    };
    host.put("sys/kernel/mm/ksm/run", "0\n");
    put(&host, 1);
    host.observer.notice(ProcessEvent::Lost);
    assert_eq!(seen(&host.sample_after(2), 1), 40);
    put(&host, 2);
    assert_eq!(seen(&host.sample_after(1), 2), 10);
    assert_eq!(seen(&host.sample_after(3), 2), 40, "each has its turn");
    put(&host, 3);
    host.observer.look_closely();
    assert_eq!(seen(&host.sample_after(1), 3), 40);
    put(&host, 4);
    host.put("sys/kernel/mm/ksm/full_scans", "2\n");
    assert_eq!(seen(&host.sample_after(1), 4), 40, "ksmd has worked");
    // An exit is reported by an event, and the process is missing at once.
    host.sample_after(1);
    host.exit(139);
    host.observer.notice(ProcessEvent::Exited(139));
    assert_eq!(host.pids().len(), 39);
    // A few processes are all read. Without events of exits all are read too.
    (110..139).for_each(|pid| host.observer.notice(ProcessEvent::Exited(pid)));
    put(&host, 5);
    assert_eq!(seen(&host.sample_after(1), 5), 10);
    host.observer.notice(ProcessEvent::Ended);
    host.sample_after(2);
    put(&host, 6);
    assert_eq!(seen(&host.sample_after(1), 6), 40);
}

#[test]
fn memory_marked_between_two_readings_is_found_on_demand() {
    let mut host = HostTree::new();
    for pid in [20, 21] {
        host.process(pid, "work", 0, 1);
        host.figures(pid, UNINVOLVED);
    }
    assert_eq!(host.sample_after(1).processes.len(), 0);
    host.figures(20, INVOLVED);
    assert_eq!(host.sample_after(1).processes.len(), 0, "an old process has its turn within a minute");
    host.observer.look_at_all();
    let sample = host.sample_after(1);
    assert_eq!(only(&sample).id.pid, 20);
    assert_eq!(host.sample_after(1).processes.len(), 1);
}

#[test]
fn one_malformed_process_leaves_the_others_alone() {
    let mut host = HostTree::new();
    for pid in [20, 21, 22] {
        host.process(pid, "work", 0, 1);
        host.figures(pid, INVOLVED);
    }
    host.figures(21, "ksm_rmap_items many\n");
    host.put("proc/22/stat", "22 (work");
    assert_eq!(host.pids(), [20]);
    host.put("proc/20/stat", b"\xff\xfe");
    host.figures(21, INVOLVED);
    let later = host.sample_after(61);
    assert_eq!(only(&later).id.pid, 21, "the malformed are asked again, in their turn");
}

#[test]
fn foreign_names_are_taken_as_they_are_but_for_control_characters() {
    let mut host = HostTree::new();
    host.process(20, "a) R 1\nb (c", 0, 77);
    host.figures(20, INVOLVED);
    let sample = host.observer.sample();
    assert_eq!((&*only(&sample).name, only(&sample).id.start_ticks), ("a) R 1b (c", 77));
}

#[test]
fn a_process_that_drops_its_mergeable_memory_leaves_and_may_return() {
    let mut host = HostTree::new();
    host.process(20, "work", 0, 1);
    host.figures(20, INVOLVED);
    assert_eq!(host.pids(), [20]);
    host.figures(20, UNINVOLVED);
    assert!(host.pids().is_empty());
    host.figures(20, INVOLVED);
    assert_eq!(only(&host.sample_after(2)).id.pid, 20);
}

#[test]
fn a_new_process_is_found_by_a_scan_and_looked_at_again_soon() {
    let mut host = HostTree::new();
    host.observer.sample();
    host.process(20, "work", 0, 1);
    host.figures(20, UNINVOLVED);
    assert_eq!(host.sample_after(6).processes.len(), 0);
    host.figures(20, INVOLVED);
    assert_eq!(host.sample_after(6).processes.len(), 1);
}

#[test]
fn an_old_process_is_looked_at_within_two_rounds() {
    let mut host = HostTree::new();
    for pid in 100..400 {
        host.process(pid, "work", 0, 1);
        host.figures(pid, UNINVOLVED);
    }
    assert_eq!(host.sample_after(60).processes.len(), 0);
    for pid in 100..400 {
        host.figures(pid, INVOLVED);
    }
    let first = host.observer.sample().processes.len();
    assert!(first < 50, "{first} at once");
    assert_eq!(host.sample_after(60).processes.len(), 300);
}

#[test]
fn events_tell_of_a_start_a_new_program_and_an_exit() {
    let mut host = HostTree::new();
    host.observer.notice(ProcessEvent::Lost);
    host.observer.sample();
    host.process(20, "sh", 0, 1);
    host.figures(20, UNINVOLVED);
    host.observer.notice_all([ProcessEvent::Started(20)]);
    assert_eq!(host.sample_after(2).processes.len(), 0);
    host.process(20, "kvm", 0, 1);
    host.put("proc/20/cmdline", "kvm\0-name\0db\0");
    host.observer.notice(ProcessEvent::Exec(20));
    assert_eq!(&*only(&host.sample_after(2)).name, "db");
    host.put("proc/20/cmdline", "kvm\0-name\0db2\0");
    host.observer.notice(ProcessEvent::Exec(20));
    assert_eq!(&*only(&host.observer.sample()).name, "db2");
    host.observer.notice(ProcessEvent::Exited(20));
    assert!(host.pids().is_empty());
}

#[test]
fn with_events_only_a_loss_leads_to_a_scan() {
    let mut host = HostTree::new();
    host.observer.notice(ProcessEvent::Lost);
    host.observer.sample();
    host.process(20, "work", 0, 1);
    host.figures(20, INVOLVED);
    assert_eq!(host.sample_after(30).processes.len(), 0);
    host.observer.notice(ProcessEvent::Lost);
    assert_eq!(host.pids(), [20]);
    host.process(21, "work", 0, 1);
    host.figures(21, INVOLVED);
    host.observer.refresh();
    assert_eq!(host.pids(), [20, 21]);
    host.process(22, "work", 0, 1);
    host.figures(22, INVOLVED);
    host.observer.notice(ProcessEvent::Ended);
    assert_eq!(host.pids(), [20, 21, 22]);
}

#[test]
fn a_new_process_is_looked_at_twice_without_a_sample() {
    let mut host = HostTree::new();
    host.observer.notice(ProcessEvent::Lost);
    host.observer.sample();
    assert_eq!(host.observer.next_glance(), None);
    host.process(20, "work", 0, 1);
    host.figures(20, UNINVOLVED);
    host.observer.notice(ProcessEvent::Started(20));
    assert_eq!(host.observer.next_glance(), Some(schedule::FIRST_DELAY));
    assert!(!host.observer.glance(), "not yet");
    host.observer.clock.advance();
    assert!(!host.observer.glance(), "it has no mergeable memory");
    host.figures(20, INVOLVED);
    assert!(!host.observer.glance(), "it was looked at just now");
    host.observer.clock.advance();
    assert!(host.observer.glance());
    assert_eq!(host.observer.next_glance(), None);
    assert_eq!(host.pids(), [20]);
}

/// Creates a host with events, on which PID 20 was a kernel thread's when it was read, and has become a guest's.
fn host_with_a_pid_that_changed() -> HostTree {
    let mut host = HostTree::new();
    host.process(20, "kworker", KERNEL_THREAD, 1);
    host.observer.notice(ProcessEvent::Lost);
    host.observer.sample();
    host.process(20, "work", 0, 2);
    host.figures(20, INVOLVED);
    host
}

#[test]
fn after_a_loss_a_pid_that_was_a_kernel_threads_is_looked_at_again() {
    let mut host = host_with_a_pid_that_changed();
    host.observer.notice(ProcessEvent::Lost);
    assert_eq!(host.pids(), [20]);
}

#[test]
fn a_pid_that_changed_from_a_kernel_thread_is_looked_at_when_an_event_says_so() {
    let mut host = host_with_a_pid_that_changed();
    assert_eq!(host.sample_after(200).processes.len(), 0, "put aside for good");
    host.observer.notice_all([ProcessEvent::Exited(20), ProcessEvent::Started(20)]);
    assert_eq!(host.sample_after(2).processes.len(), 1);
}

fn captured(name: &str) -> Sample {
    HostObserver::new(Root::at(concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/").to_owned() + name)).sample()
}

fn rows(sample: &Sample) -> Vec<(String, bool, u64)> {
    sample.processes.iter().map(|p| (p.name.to_string(), p.is_vm, p.merging_pages())).collect()
}

#[test]
fn captured_hosts_show_their_guests() {
    let row = |name: &str, is_vm, merging| (name.to_owned(), is_vm, merging);
    let guests = [row("alpha", true, 112), row("beta", true, 112), row("gamma", false, 64)];
    for tree in ["linux-6.18", "linux-6.1"] {
        let sample = captured(tree);
        assert_eq!(rows(&sample), guests, "{tree}");
        assert_eq!(sample.hidden_processes, 0);
        assert!(sample.ksmd_cpu_ns.get().unwrap() > 0, "{tree}");
        assert_eq!(sample.ksm.pages_sharing, Reading::Value(191), "{tree}");
    }
}

#[test]
fn without_ksm_only_hypervisors_are_left() {
    let sample = captured("no-ksm");
    assert!(!sample.ksm.is_present());
    assert_eq!(sample.ksmd_cpu_ns, Reading::Absent);
    let names: Vec<_> = rows(&sample).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["alpha", "beta"]);
}

#[test]
fn a_hostile_tree_gives_a_sample_with_faults_and_no_terminal_escapes() {
    let sample = captured("hostile");
    assert!(matches!(sample.host.memory, Reading::Malformed(_)));
    assert_eq!(sample.host.vmstat.value().map(|vmstat| vmstat.cow_ksm), Some(None), "one line is unknown");
    assert!(sample.ksm.entries().any(|(_, reading)| matches!(reading, Reading::Malformed(_))));
    assert!(!sample.processes.iter().any(|process| process.name.chars().any(char::is_control)));
    assert_eq!(sample.ksmd_cpu_ns, Reading::Absent, "a process calls itself ksmd");
}

/// Denial needs an unprivileged thread, so this test drops root's privileges for its thread.
#[test]
fn denied_figures_hide_a_process_and_not_the_others() {
    let mut host = HostTree::new();
    for (pid, flags) in [(20, 0), (21, 0), (22, 0), (3, KERNEL_THREAD)] {
        host.process(pid, "work", flags, 1);
        host.figures(pid, INVOLVED);
    }
    for pid in [21, 22, 3] {
        let mode = fs::Permissions::from_mode(0o000);
        fs::set_permissions(host.path(&format!("proc/{pid}/ksm_stat")), mode).unwrap();
    }
    fs::set_permissions(host.tree.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let sample = without_root(move || host.observer.sample());
    assert_eq!(only(&sample).id.pid, 20);
    assert_eq!(sample.hidden_processes, 2, "kernel threads do not count");
}

/// Runs `f` on an unprivileged thread.
fn without_root<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let unprivileged = scope.spawn(move || {
            if rustix::process::geteuid().is_root() {
                let unprivileged = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(unprivileged, unprivileged, unprivileged).unwrap();
            }
            f()
        });
        unprivileged.join().unwrap()
    })
}
