//! Every parser over the captured trees in `testdata/`: what the kernels of different times really print.

use std::fs;
use std::path::PathBuf;

use ksmith_core::account::{HostTotals, shares};
use ksmith_core::field::KernelVersion;
use ksmith_core::kernel::{
    self, AdvisorMode, CommandLine, CpuTimes, FIELDS, HostReadings, KernelFileSource, Ksm, KsmStat, Meminfo,
    PidStat, Psi, RunState, SmapsRollup, Vmstat,
};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};
use ksmith_host::root::Root;

const KIB: u64 = 1024;
const PAGE: u64 = 4096;

/// The names of the four guests of `testdata/guests.c`, in the order in which it starts them.
const GUESTS: [&str; 4] = ["qemu-system-x86", "qemu-system-x86", "gamma", "plain"];

fn tree(name: &str) -> Root {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name);
    assert!(directory.is_dir(), "{} is missing", directory.display());
    Root::at(directory)
}

struct CapturedKsmFiles<'a>(&'a Root, Reading<String>);

impl KernelFileSource for CapturedKsmFiles<'_> {
    fn text(&mut self, path: &'static str) -> Reading<&str> {
        self.1 = self.0.text(path.trim_start_matches('/'));
        match &self.1 {
            Reading::Value(text) => Reading::Value(text),
            other => other.as_ref().map(String::as_str),
        }
    }
}

fn ksm(root: &Root) -> Ksm {
    Ksm::read(&mut CapturedKsmFiles(root, Reading::Absent))
}

/// The tree's directories that are named like a PID, in their order.
fn pids(root: &Root) -> Vec<u32> {
    let mut pids: Vec<u32> = fs::read_dir(root.path("proc"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

/// The parsed files of one process.
struct ProcessFiles {
    pid: u32,
    stat: Reading<PidStat>,
    command: CommandLine,
    ksm_stat: Reading<KsmStat>,
    merging_pages: Reading<u64>,
    smaps: Reading<SmapsRollup>,
    cpu_ns: Reading<u64>,
}

impl ProcessFiles {
    fn read(root: &Root, pid: u32) -> Self {
        let text = |file| root.text(format!("proc/{pid}/{file}"));
        Self {
            pid,
            stat: text("stat").and_then(|text| PidStat::parse(&text)),
            command: text("cmdline").map(|text| CommandLine::parse(text.as_bytes())).get_or_default(),
            ksm_stat: text("ksm_stat").and_then(|text| KsmStat::parse(&text)),
            merging_pages: text("ksm_merging_pages").and_then(|text| kernel::merging_pages(&text)),
            smaps: text("smaps_rollup").and_then(|text| SmapsRollup::parse(&text)),
            cpu_ns: text("schedstat").and_then(|text| kernel::cpu_ns(&text)),
        }
    }

    fn stat(&self) -> &PidStat {
        self.stat.value().unwrap()
    }
}

trait OrDefault<T> {
    fn get_or_default(self) -> T;
}

impl<T: Default> OrDefault<T> for Reading<T> {
    fn get_or_default(self) -> T {
        match self {
            Reading::Value(value) => value,
            _ => T::default(),
        }
    }
}

/// The processes of a captured tree: the guests in the order in which they were started, and the kernel threads.
fn processes(root: &Root) -> (Vec<ProcessFiles>, Vec<ProcessFiles>) {
    let all = pids(root).into_iter().map(|pid| ProcessFiles::read(root, pid));
    let (threads, guests): (Vec<_>, Vec<_>) = all.partition(|seen| seen.stat().is_kernel_thread);
    assert_eq!(guests.iter().map(|guest| guest.stat().comm.as_str()).collect::<Vec<_>>(), GUESTS);
    (guests, threads)
}

fn host<T>(root: &Root, file: &str, parse: fn(&str) -> Result<T, ksmith_core::reading::Malformed>) -> Reading<T> {
    root.text(file).and_then(|text| parse(&text))
}

fn sample(root: &Root, guests: &[ProcessFiles]) -> Sample {
    let processes = guests.iter().map(|guest| ProcessSample {
        rss_bytes: guest.stat().rss_pages.map(|pages| pages * PAGE),
        cpu_ticks: guest.stat().cpu_ticks,
        minor_faults: guest.stat().minor_faults,
        ksm: KsmStat { merging_pages: guest.merging_pages.get(), ..guest.ksm_stat.get().unwrap_or_default() },
        ..ProcessSample::new(
            ProcessId { pid: guest.pid, start_ticks: guest.stat().start_ticks },
            guest.stat().comm.as_str().into(),
            guest.command.program().starts_with("qemu-system"),
        )
    });
    Sample {
        page_size: PAGE,
        ksm: ksm(root),
        host: HostReadings { memory: host(root, "proc/meminfo", Meminfo::parse), ..HostReadings::default() },
        processes: processes.collect(),
        ..Sample::default()
    }
}

/// Asserts the figures that `testdata/guests.c` promises of any kernel that merged its memory.
fn assert_guests_merged(root: &Root, guests: &[ProcessFiles], threads: &[ProcessFiles]) {
    let ksm = ksm(root);
    assert_eq!(ksm.run_state(), Some(RunState::Running));
    assert_eq!((ksm.pages_shared.get(), ksm.pages_sharing.get()), (Some(97), Some(191)));
    assert_eq!((ksm.pages_unshared.get(), ksm.pages_volatile.get()), (Some(144), Some(0)));

    let merging: Vec<_> = guests.iter().map(|guest| guest.merging_pages.get().unwrap()).collect();
    assert_eq!(merging, [112, 112, 64, 0]);
    assert_eq!(merging.iter().sum::<u64>(), 97 + 191, "every mapping of a merged page counts once");
    let tracked: Vec<_> = guests.iter().map(|guest| guest.ksm_stat.value().unwrap().rmap_items.unwrap()).collect();
    assert_eq!(tracked, [160, 160, 112, 0]);
    assert_eq!(tracked.iter().sum::<u64>(), ksm.tracked_pages());

    assert_eq!(guests[0].command.program(), "qemu-system-x86_64");
    assert_eq!(guests[0].command.option("-name"), Some("guest=alpha,debug-threads=on"));
    assert_eq!(guests[1].command.option("-name"), Some("beta"));
    assert_eq!(guests[3].command.arguments(), ["/usr/bin/plain"]);
    for guest in guests {
        let smaps = guest.smaps.value().unwrap();
        assert!(smaps.rss > smaps.pss && smaps.swap == Some(0), "{smaps:?}");
        assert!(smaps.anonymous >= Some(160 * PAGE) || guest.pid != guests[0].pid, "{smaps:?}");
        assert!(guest.cpu_ns.get() > Some(0) && guest.stat().rss_pages > Some(100));
    }

    assert_eq!(threads.iter().map(|thread| thread.stat().comm.as_str()).collect::<Vec<_>>(), ["kthreadd", "ksmd"]);
    for thread in threads {
        assert_eq!(thread.command, CommandLine::default());
        assert_eq!(thread.ksm_stat, Reading::Value(KsmStat::default()));
        assert_eq!(thread.merging_pages, Reading::Value(0));
        assert_eq!(thread.smaps, Reading::Absent);
    }
    assert!(threads[1].cpu_ns.get() > Some(1_000_000), "ksmd worked for more than a millisecond");

    let sample = sample(root, guests);
    let (shares, hidden) = shares(&sample);
    assert_eq!(shares.iter().map(|share| share.saved_bytes).sum::<u64>(), 191 * PAGE);
    assert_eq!((shares[3].saved_bytes, hidden), (0, 0));
}

#[test]
fn linux_6_18_has_every_file_and_its_figures_agree() {
    let root = tree("linux-6.18");
    let (guests, threads) = processes(&root);
    assert_guests_merged(&root, &guests, &threads);

    let ksm = ksm(&root);
    let entries: Vec<_> = ksm.entries().map(|(field, reading)| (field.name, reading.value().is_some())).collect();
    assert_eq!(entries, FIELDS.iter().map(|field| (field.name, true)).collect::<Vec<_>>());
    assert_eq!(ksm.advisor_mode, Reading::Value(AdvisorMode::None));
    assert_eq!((ksm.smart_scan.get(), ksm.ksm_zero_pages.get()), (Some(1), Some(0)));

    let totals = HostTotals::from_sample(&sample(&root, &guests));
    assert_eq!(ksm.general_profit, Reading::Value(totals.profit_bytes), "ksmith's accounting is the kernel's");
    assert_eq!(totals.profit_bytes, 191 * 4096 - (97 + 191 + 144) * 64);
    let alpha = guests[0].ksm_stat.value().unwrap();
    assert_eq!(alpha.process_profit, Some(112 * 4096 - 160 * 64));
    assert_eq!(alpha.merging_pages, guests[0].merging_pages.get());
    assert_eq!((alpha.mergeable, alpha.merge_any), (Some(true), Some(false)));
    assert_eq!(guests[3].ksm_stat.value().unwrap().mergeable, Some(false));
    assert!(!guests[3].ksm_stat.value().unwrap().is_involved());
    assert_eq!(guests[0].smaps.value().unwrap().ksm, Some(112 * PAGE));
}

#[test]
fn linux_6_1_lacks_what_came_later_and_says_so_as_absent() {
    let root = tree("linux-6.1");
    let (guests, threads) = processes(&root);
    assert_guests_merged(&root, &guests, &threads);

    let ksm = ksm(&root);
    let there = KernelVersion::parse(&root.text("proc/sys/kernel/osrelease").get_or_default()).unwrap();
    assert_eq!(there, KernelVersion::new(6, 1));
    for (field, reading) in ksm.entries() {
        match reading {
            Reading::Value(_) => assert!(field.since <= there, "{} is older than the table says", field.name),
            Reading::Absent => assert!(field.since > there, "{} is younger than the table says", field.name),
            fault => panic!("{}: {fault:?}", field.name),
        }
    }
    assert_eq!(ksm.general_profit, Reading::Absent);
    assert_eq!(ksm.smart_scan, Reading::Absent);
    let alpha = guests[0].ksm_stat.value().unwrap();
    assert_eq!(*alpha, KsmStat { rmap_items: Some(160), ..KsmStat::default() });
    assert_eq!(guests[0].smaps.value().unwrap().ksm, None);
}

#[test]
fn both_kernels_say_how_the_host_fares() {
    for (name, cpus, total) in [("linux-6.18", 2, 24_000_000..25_000_000), ("linux-6.1", 2, 150_000..256 * KIB)] {
        let root = tree(name);
        let memory = host(&root, "proc/meminfo", Meminfo::parse);
        let memory = memory.value().unwrap();
        assert!(total.contains(&(memory.total.unwrap() / KIB)), "{name}: {memory:?}");
        assert!(memory.available < memory.total && memory.free < memory.total, "{name}: {memory:?}");
        assert!(memory.swap_total.is_some() && memory.shmem.is_some() && memory.anonymous.is_some());
        let vmstat = host(&root, "proc/vmstat", Vmstat::parse);
        assert!(vmstat.value().unwrap().cow_ksm.is_some() && vmstat.value().unwrap().oom_kill == Some(0), "{name}");
        let cpu = host(&root, "proc/stat", CpuTimes::parse).get().unwrap();
        assert!(cpu.cpus == cpus && cpu.busy_ticks > 0 && cpu.idle_ticks > 0, "{name}: {cpu:?}");
        for resource in ["memory", "cpu", "io"] {
            let psi = host(&root, &format!("proc/pressure/{resource}"), Psi::parse).get().unwrap();
            assert!(psi.some.avg10.is_some_and(|percent| percent <= 100.0), "{name}: {psi:?}");
        }
    }
}

#[test]
fn without_ksm_everything_of_it_is_absent_and_the_rest_is_there() {
    let root = tree("no-ksm");
    let ksm = ksm(&root);
    assert!(!ksm.is_present());
    assert_eq!(ksm, Ksm::default());
    let (guests, threads) = processes(&root);
    assert_eq!(threads.len(), 1, "no ksmd");
    for guest in &guests {
        assert_eq!((&guest.ksm_stat, &guest.merging_pages), (&Reading::Absent, &Reading::Absent));
        assert!(guest.smaps.value().unwrap().rss > Some(0));
    }
    assert_eq!(host(&root, "proc/vmstat", Vmstat::parse).value().unwrap().cow_ksm, None);
    assert!(host(&root, "proc/meminfo", Meminfo::parse).value().unwrap().total > Some(0));
    let totals = HostTotals::from_sample(&sample(&root, &guests));
    assert_eq!((totals.saved_bytes, totals.profit_bytes), (0, 0));
}

#[test]
fn a_hostile_trees_files_are_each_malformed() {
    let root = tree("hostile");
    let ksm = ksm(&root);
    for (field, reading) in ksm.entries() {
        let Reading::Malformed(why) = reading else { panic!("{}: {reading:?}", field.name) };
        assert!(why.found.chars().count() <= 60, "{}: {why:?}", field.name);
        assert!(!why.to_string().contains(char::is_control), "{}: {why}", field.name);
    }
    let totals = HostTotals::from_sample(&Sample { page_size: PAGE, ksm, ..Sample::default() });
    assert_eq!((totals.saved_bytes, totals.overhead_bytes), (0, 0));

    assert!(malformed(&host(&root, "proc/meminfo", Meminfo::parse)));
    assert_eq!(host(&root, "proc/vmstat", Vmstat::parse).value().unwrap().cow_ksm, None, "-1 is no count");
    assert!(malformed(&host(&root, "proc/stat", CpuTimes::parse)));
    for resource in ["memory", "cpu", "io"] {
        assert!(malformed(&host(&root, &format!("proc/pressure/{resource}"), Psi::parse)), "{resource}");
    }
    assert_eq!(KernelVersion::parse(&root.text("proc/sys/kernel/osrelease").get_or_default()), None);

    assert_eq!(pids(&root), [66, 67, 70, 71, 72]);
    for pid in [66, 67] {
        let seen = ProcessFiles::read(&root, pid);
        assert!(malformed(&seen.ksm_stat) && malformed(&seen.merging_pages), "{pid}");
        assert!(malformed(&seen.smaps) && malformed(&seen.cpu_ns), "{pid}");
    }
    assert!(malformed(&ProcessFiles::read(&root, 67).stat), "it is cut off");
    assert!(malformed(&ProcessFiles::read(&root, 72).stat), "it is a directory");
    assert_eq!(ProcessFiles::read(&root, 71).stat, Reading::Absent, "a file has nothing in it");
}

#[test]
fn hostile_names_neither_shift_fields_nor_pass_for_ksmd() {
    let root = tree("hostile");
    let seen = ProcessFiles::read(&root, 66);
    assert_eq!(seen.stat().comm, ") R 1 2");
    assert_eq!((seen.stat().cpu_ticks, seen.stat().start_ticks, seen.stat().rss_pages), (7, 900, Some(323)));
    assert_eq!(seen.command.program(), "qemu-system-x86_64");
    assert_eq!(seen.command.option("-name"), Some("guest=\u{1b}]0;owned\u{7}\u{fffd}\nevil"));
    assert_eq!(seen.command.option("-m"), None);
    let pretender = ProcessFiles::read(&root, 70);
    assert!(pretender.stat().comm == "ksmd" && !pretender.stat().is_kernel_thread);
}

fn malformed<T>(reading: &Reading<T>) -> bool {
    matches!(reading, Reading::Malformed(_))
}
