//! Properties of every parser: no text panics, what the kernel prints comes back, and faults name where they are.

#![allow(clippy::unwrap_used, reason = "clippy knows a test function from its helpers only inside cfg(test)")]

use std::collections::HashMap;
use std::fmt::Write as _;

use ksmith_core::field::{FigureDescription, FigureKind, FigureUnit, KernelVersion};
use ksmith_core::kernel::{
    self, AdvisorMode, CommandLine, CpuTimes, FIELDS, KernelFileSource, Ksm, KsmStat, Meminfo, PidStat, Psi,
    SmapsRollup, Vmstat,
};
use ksmith_core::knobs::Knob;
use ksmith_core::reading::{Malformed, Reading};
use proptest::prelude::*;

/// Valid text of each kind, in the kernel's own layout.
const VALID: [&str; 10] = [
    "MemTotal:       24689308 kB\nMemFree:        13062876 kB\nMemAvailable:   20 kB\nCached: 1 kB\nHugePages_Total:       0\n",
    "nr_free_pages 3265719\npswpin 0\npswpout 7\ncow_ksm 32768\noom_kill 0\n",
    "cpu  4705 150 1120 16250 520 0 16 5 0 0\ncpu0 2350 75 560 8125 260 0 8 2 0 0\nintr 114930548 113199788\n",
    "some avg10=1.50 avg60=0.20 avg300=0.00 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
    "ksm_rmap_items 160\nksm_zero_pages 0\nksm_merging_pages 112\nksm_process_profit -448512\nksm_merge_any: no\nksm_mergeable: yes\n",
    "55d0-7ffe ---p 00000000 00:00 0      [rollup]\nRss:     884 kB\nPss:  123 kB\nKSM:   4 kB\nSwap: 0 kB\n",
    "42 (a) b (c) S 1 42 42 0 -1 4194560 77 0 0 0 5 6 0 0 20 0 1 0 900 1000 33 18446744073709551615\n",
    "49811240 158373 77\n",
    "none [scan-time]\n",
    "6.1.0-13-cloud-amd64\n",
];

/// The same text as every file of KSM's directory.
struct SameText<'a>(&'a str);

impl KernelFileSource for SameText<'_> {
    fn text(&mut self, _: &'static str) -> Reading<&str> {
        Reading::Value(self.0)
    }
}

struct KsmFileMap(HashMap<&'static str, String>);

impl KernelFileSource for KsmFileMap {
    fn text(&mut self, path: &'static str) -> Reading<&str> {
        self.0.get(path).map_or(Reading::Absent, |text| Reading::Value(text.as_str()))
    }
}

/// The fault of every parser that finds one in `text`.
fn faults(text: &str) -> Vec<Malformed> {
    let ksm = Ksm::read(&mut SameText(text));
    let mut faults: Vec<_> = ksm.entries().filter_map(|(_, reading)| fault(reading)).collect();
    faults.extend(
        [
            Meminfo::parse(text).err(),
            Vmstat::parse(text).err(),
            CpuTimes::parse(text).err(),
            Psi::parse(text).err(),
            KsmStat::parse(text).err(),
            SmapsRollup::parse(text).err(),
            PidStat::parse(text).err(),
            kernel::cpu_ns(text).err(),
            kernel::Statm::parse(text).err(),
            kernel::number(text).err(),
            kernel::merging_pages(text).err(),
        ]
        .into_iter()
        .flatten(),
    );
    faults
}

fn fault<T>(reading: Reading<T>) -> Option<Malformed> {
    match reading {
        Reading::Malformed(why) => Some(why),
        _ => None,
    }
}

/// Asserts the properties of every fault, whatever the text: it fits a log line, is safe to print, and points into the
/// file.
fn assert_faults_are_presentable(text: &str) -> Result<(), TestCaseError> {
    let lines = text.lines().count().max(1);
    for why in faults(text) {
        prop_assert!(why.found.chars().count() <= 60);
        prop_assert!((1..=lines).contains(&(why.line as usize)), "{why}");
        prop_assert!(!why.to_string().contains(char::is_control), "{why}");
    }
    Ok(())
}

/// Valid text with pieces cut out, put in or overwritten, as a broken kernel or a half-written capture has it.
fn mutated() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        "[0-9]{1,40}",
        Just("\0".to_owned()),
        Just("\u{1b}[2J".to_owned()),
        Just("-".to_owned()),
        Just(" ".to_owned()),
        Just("(".to_owned()),
        Just(")".to_owned()),
        Just("\n".to_owned()),
        Just(":".to_owned()),
        Just(String::new()),
    ];
    let edit = (any::<prop::sample::Index>(), 0_usize..8, piece);
    (prop::sample::select(&VALID[..]), prop::collection::vec(edit, 1..6)).prop_map(|(text, edits)| {
        let mut text: Vec<char> = text.chars().collect();
        for (at, cut, piece) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + cut).min(text.len());
            text.splice(at..end, piece.chars());
        }
        text.into_iter().collect()
    })
}

fn percent() -> impl Strategy<Value = f32> {
    (0_u32..=10_000).prop_map(|hundredths| hundredths as f32 / 100.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        assert_faults_are_presentable(&text)?;
    }

    #[test]
    fn no_mutation_of_valid_text_panics(text in mutated()) {
        assert_faults_are_presentable(&text)?;
    }

    #[test]
    fn bytes_of_any_kind_make_a_command_line(bytes in any::<Vec<u8>>()) {
        let line = CommandLine::parse(&bytes);
        let arguments = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|&byte| byte == 0).count();
        prop_assert_eq!(line.arguments().len(), if bytes.is_empty() || bytes == [0] { 0 } else { arguments });
        prop_assert!(!line.program().contains('/'));
    }

    #[test]
    fn arguments_come_back(arguments in prop::collection::vec("[^\0]{1,20}", 1..10)) {
        let text = arguments.iter().map(|argument| format!("{argument}\0")).collect::<String>();
        let line = CommandLine::parse(text.as_bytes());
        prop_assert_eq!(line.arguments(), arguments);
    }

    #[test]
    fn every_number_of_ksm_comes_back(
        values in prop::collection::vec(0..=1_u64 << 36, FIELDS.len()),
        profit in -1_i64 << 48..=1 << 48,
        scan_time: bool,
    ) {
        let possible = |(field, value): (&FigureDescription, u64)| match (field.kind, field.unit) {
            (FigureKind::State, FigureUnit::Percent) => value % 101,
            (FigureKind::State, _) => value & 0xffff_ffff,
            _ => value,
        };
        let values: Vec<u64> = FIELDS.iter().zip(values).map(possible).collect();
        let mode = if scan_time { "none [scan-time]\n" } else { "[none] scan-time\n" };
        let table = FIELDS.iter().zip(&values).map(|(field, value)| match field.name {
            "advisor_mode" => (field.source, mode.to_owned()),
            "general_profit" => (field.source, format!("{profit}\n")),
            "ksm_zero_pages" => (field.source, format!("{}\n", value.cast_signed())),
            _ => (field.source, format!("{value}\n")),
        });
        let ksm = Ksm::read(&mut KsmFileMap(table.collect()));
        prop_assert_eq!(&ksm.general_profit, &Reading::Value(profit));
        let expected = if scan_time { AdvisorMode::ScanTime } else { AdvisorMode::None };
        prop_assert_eq!(&ksm.advisor_mode, &Reading::Value(expected));
        for ((field, reading), value) in ksm.entries().zip(&values) {
            let text = match field.name {
                "advisor_mode" => expected.to_string(),
                "general_profit" => profit.to_string(),
                "ksm_zero_pages" => value.cast_signed().to_string(),
                _ => value.to_string(),
            };
            prop_assert_eq!(reading.to_string(), text, "{}", field.name);
        }
    }

    #[test]
    fn what_a_knob_writes_it_also_reads(index in 0..Knob::ALL.len(), value: u64) {
        let knob = Knob::ALL[index];
        if let Ok(parsed) = knob.parse_value(&knob.text(value)) {
            prop_assert!(knob.range().contains(&parsed));
            prop_assert_eq!(knob.parse_value(&knob.text(parsed)), Ok(parsed));
        } else {
            prop_assert!(!knob.range().contains(&value));
        }
    }

    #[test]
    fn ksm_stat_comes_back(items in 0..=1_u64 << 36, zero in -1_i64 << 36..=1 << 36, merging in 0..=1_u64 << 36, profit in -1_i64 << 48..=1 << 48, any: bool, mergeable: bool) {
        let word = |yes| if yes { "yes" } else { "no" };
        let text = format!(
            "ksm_rmap_items {items}\nksm_zero_pages {zero}\nksm_merging_pages {merging}\n\
             ksm_process_profit {profit}\nksm_merge_any: {}\nksm_mergeable: {}\n", word(any), word(mergeable));
        let expected = KsmStat {
            rmap_items: Some(items),
            zero_pages: Some(u64::try_from(zero).unwrap_or(0)),
            merging_pages: Some(merging),
            process_profit: Some(profit),
            merge_any: Some(any),
            mergeable: Some(mergeable),
        };
        prop_assert_eq!(KsmStat::parse(&text), Ok(expected));
    }

    #[test]
    fn meminfo_comes_back_whatever_its_order(mut kib in prop::collection::vec(0..=1_u64 << 37, 14), turn in 0_usize..15) {
        (kib[0], kib[7]) = (1 << 38, 1 << 37);
        let keys = [
            "MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "AnonPages", "Shmem", "SwapTotal", "SwapFree",
            "SwapCached", "Slab", "KernelStack", "PageTables", "AnonHugePages",
        ];
        let mut lines: Vec<_> = keys.iter().zip(&kib).map(|(key, kib)| format!("{key}:{kib:>15} kB\n")).collect();
        lines.push("HugePages_Total:       0\n".to_owned());
        lines.rotate_left(turn);
        let bytes = |index: usize| Some(kib[index] * 1024);
        let expected = Meminfo {
            total: bytes(0),
            free: bytes(1),
            available: bytes(2),
            buffers: bytes(3),
            cached: bytes(4),
            anonymous: bytes(5),
            shmem: bytes(6),
            swap_total: bytes(7),
            swap_free: bytes(8),
            swap_cached: bytes(9),
            slab: bytes(10),
            kernel_stack: bytes(11),
            page_tables: bytes(12),
            anonymous_huge: bytes(13),
        };
        prop_assert_eq!(Meminfo::parse(&lines.concat()), Ok(expected));
    }

    #[test]
    fn smaps_rollup_comes_back(kib in prop::collection::vec(0..=1_u64 << 38, 9)) {
        let mut text = "00400000-7fff ---p 00000000 00:00 0                              [rollup]\n".to_owned();
        for (key, kib) in ["Rss", "Pss", "Anonymous", "KSM", "AnonHugePages", "Swap", "Private_Dirty", "Pss_Anon", "Private_Hugetlb"].iter().zip(&kib) {
            writeln!(text, "{key}:{kib:>20} kB").unwrap();
        }
        let bytes = |index: usize| Some(kib[index] * 1024);
        let expected = SmapsRollup {
            rss: bytes(0),
            pss: bytes(1),
            anonymous: bytes(2),
            ksm: bytes(3),
            anon_huge: bytes(4),
            swap: bytes(5),
            private: bytes(6),
            pss_anon: bytes(7),
            hugetlb: bytes(8),
        };
        prop_assert_eq!(SmapsRollup::parse(&text), Ok(expected));
    }

    #[test]
    fn vmstat_comes_back([cow, out, swapped_in, faults, oom, splits] in prop::array::uniform6(0..=i64::MAX as u64)) {
        let text = format!("nr_free_pages 1\npswpin {swapped_in}\npswpout {out}\npgmajfault {faults}\noom_kill {oom}\ncow_ksm {cow}\nthp_split_page {splits}\n");
        let expected = Vmstat {
            cow_ksm: Some(cow),
            pswpout: Some(out),
            pswpin: Some(swapped_in),
            pgmajfault: Some(faults),
            oom_kill: Some(oom),
            thp_split_page: Some(splits),
        };
        prop_assert_eq!(Vmstat::parse(&text), Ok(expected));
    }

    #[test]
    fn psi_comes_back(avg10 in percent(), avg60 in percent(), total: u64, has_full: bool) {
        let line = |word: &str| format!("{word} avg10={avg10:.2} avg60={avg60:.2} avg300=0.00 total={total}\n");
        let text = if has_full { line("some") + &line("full") } else { line("some") };
        let psi = Psi::parse(&text).unwrap();
        prop_assert!((psi.some.avg10.unwrap() - avg10).abs() < 0.001);
        prop_assert_eq!(psi.some.total_us, Some(total).filter(|total| *total <= i64::MAX as u64));
    }

    #[test]
    fn any_name_leaves_the_fields_of_stat_in_place(
        comm in "\\PC{0,15}",
        parent: u32,
        faults in 0..=i64::MAX as u64,
        user in 0..1_u64 << 40,
        system in 0..1_u64 << 40,
        start in 0..=i64::MAX as u64,
        rss in 0..=1_u64 << 36,
        kthread: bool,
    ) {
        let flags = if kthread { 0x0020_8040 } else { 0x0040_0000 };
        let text = format!(
            "7 ({comm}) S {parent} 7 7 0 -1 {flags} {faults} 1 2 3 {user} {system} 4 5 20 -5 1 0 {start} 0 {rss} 0 0\n");
        let expected = PidStat {
            comm,
            parent,
            minor_faults: faults,
            cpu_ticks: user + system,
            start_ticks: start,
            rss_pages: Some(rss),
            mapped_bytes: (rss == 0).then_some(0),
            is_kernel_thread: kthread,
            is_zombie: false,
        };
        prop_assert_eq!(PidStat::parse(&text), Ok(expected));
    }

    #[test]
    fn cpu_times_come_back(ticks in prop::collection::vec(0..1_u64 << 50, 10), cpus in 1_u32..300) {
        let words: Vec<_> = ticks.iter().map(u64::to_string).collect();
        let mut text = format!("cpu  {}\n", words.join(" "));
        for cpu in 0..cpus {
            writeln!(text, "cpu{cpu} 1 2 3 4").unwrap();
        }
        text.push_str("intr 5\n");
        let times = CpuTimes::parse(&text).unwrap();
        prop_assert_eq!(times.idle_ticks, ticks[3] + ticks[4]);
        prop_assert_eq!(times.busy_ticks + times.idle_ticks, ticks[..8].iter().sum::<u64>());
        prop_assert_eq!(times.cpus, cpus);
    }

    #[test]
    fn a_release_gives_its_two_numbers(major: u32, minor: u32, rest in "([.-][a-z0-9.+-]{0,20})?\n?") {
        let version = KernelVersion::parse(&format!("{major}.{minor}{rest}"));
        prop_assert_eq!(version, Some(KernelVersion::new(major, minor)));
    }

    #[test]
    fn numbers_come_back_and_nothing_else_is_one(value: u64, junk in "[^0-9\\s]{1,5}") {
        let (before, behind) = (format!("{junk}{value}\n"), format!("{value}{junk}\n"));
        prop_assert_eq!(kernel::number(&format!("{value}\n")), Ok(value));
        prop_assert!(kernel::number(&before).is_err());
        prop_assert!(kernel::number(&behind).is_err());
        prop_assert_eq!(kernel::merging_pages(&format!("{value}\n")).ok(), Some(value).filter(|it| *it <= 1 << 36));
        prop_assert_eq!(kernel::cpu_ns(&format!("{value} 3 4\n")).ok(), Some(value).filter(|it| *it <= i64::MAX as u64));
    }
}

#[test]
fn a_megabyte_in_one_line_is_cut_to_a_log_line() {
    for filler in ["9", "x", " ", ":", "(", "\u{fffd}", "cpu "] {
        let text = filler.repeat(1 << 20);
        for why in faults(&text) {
            assert!(why.to_string().len() < 1000, "{filler}: {}", why.expected);
        }
        assert!(!faults(&text).is_empty());
    }
}

/// Numbers that no kernel means: counters that fell below zero, and what is no number of its.
const IMPOSSIBLE: [&str; 5] = ["18446744073709551615", "9223372036854775808", "-1", "1e30", ""];

/// Checks that an impossible number in each of these lines is unknown, and that the other lines keep their meaning.
/// `signed` keys may be below zero.
fn check_lines(
    kind: &str,
    lines: &[(&str, &str)],
    signed: &[&str],
    unit: &str,
    read: impl Fn(&str) -> Option<serde_json::Value>,
) {
    let text = |at: usize, value: &str| {
        let line = |(index, (key, _)): (usize, &(&str, &str))| {
            format!("{key} {}{unit}\n", if index == at { value } else { "1" })
        };
        lines.iter().enumerate().map(line).collect::<String>()
    };
    let sound = read(&text(usize::MAX, "")).unwrap();
    for (at, (key, field)) in lines.iter().enumerate() {
        for bad in IMPOSSIBLE.into_iter().filter(|bad| *bad != "-1" || !signed.contains(key)) {
            let mut expected = sound.clone();
            assert!(!expected[field].is_null(), "{kind} {field}");
            expected[field] = serde_json::Value::Null;
            assert_eq!(read(&text(at, bad)), Some(expected), "{kind} {key} {bad:?}");
        }
    }
}

#[test]
fn an_impossible_number_in_lines_of_a_key_is_unknown_and_the_others_keep_their_meaning() {
    let meminfo = [
        ("MemTotal:", "total"),
        ("MemFree:", "free"),
        ("MemAvailable:", "available"),
        ("Buffers:", "buffers"),
        ("Cached:", "cached"),
        ("AnonPages:", "anonymous"),
        ("AnonHugePages:", "anonymous_huge"),
        ("Shmem:", "shmem"),
        ("SwapCached:", "swap_cached"),
        ("Slab:", "slab"),
        ("KernelStack:", "kernel_stack"),
        ("PageTables:", "page_tables"),
        ("SwapTotal:", "swap_total"),
        ("SwapFree:", "swap_free"),
    ];
    check_lines("meminfo", &meminfo, &[], " kB", |text| Meminfo::parse(text).ok().map(to_json));
    let vmstat = ["cow_ksm", "pswpout", "pswpin", "pgmajfault", "thp_split_page", "oom_kill"].map(|key| (key, key));
    check_lines("vmstat", &vmstat, &[], "", |text| Vmstat::parse(text).ok().map(to_json));
    let ksm_stat = [
        ("ksm_rmap_items", "rmap_items"),
        ("ksm_zero_pages", "zero_pages"),
        ("ksm_merging_pages", "merging_pages"),
        ("ksm_process_profit", "process_profit"),
    ];
    let signed = ["ksm_zero_pages", "ksm_process_profit"];
    check_lines("ksm_stat", &ksm_stat, &signed, "", |text| KsmStat::parse(text).ok().map(to_json));
    let rollup = [
        ("Rss:", "rss"),
        ("Pss:", "pss"),
        ("Pss_Anon:", "pss_anon"),
        ("Private_Clean:", "private"),
        ("Anonymous:", "anonymous"),
        ("KSM:", "ksm"),
        ("AnonHugePages:", "anon_huge"),
        ("Shared_Hugetlb:", "hugetlb"),
        ("Swap:", "swap"),
    ];
    check_lines("smaps_rollup", &rollup, &[], " kB", |text| {
        let sums = SmapsRollup::parse(text).ok()?;
        let SmapsRollup { rss, pss, pss_anon, private, anonymous, ksm, anon_huge, hugetlb, swap } = sums;
        Some(serde_json::json!({
            "rss": rss, "pss": pss, "pss_anon": pss_anon, "private": private, "anonymous": anonymous, "ksm": ksm,
            "anon_huge": anon_huge, "hugetlb": hugetlb, "swap": swap,
        }))
    });
}

fn to_json(value: impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap()
}

/// KSM's directory with a plausible number in each file but one.
struct OneBadFile(&'static str, &'static str);

impl KernelFileSource for OneBadFile {
    fn text(&mut self, path: &'static str) -> Reading<&str> {
        Reading::Value(match path.rsplit('/').next().unwrap() {
            name if name == self.0 => self.1,
            "advisor_mode" => "[none] scan-time\n",
            _ => "1\n",
        })
    }
}

#[test]
fn an_impossible_number_in_a_file_of_ksm_is_malformed_and_the_other_files_count() {
    for field in FIELDS {
        let is_signed = ["ksm_zero_pages", "general_profit"].contains(&field.name);
        for bad in IMPOSSIBLE.into_iter().filter(|bad| *bad != "-1" || !is_signed) {
            for (other, reading) in Ksm::read(&mut OneBadFile(field.name, bad)).entries() {
                let is_known = reading.value().is_some();
                assert_eq!(is_known, other.name != field.name, "{} with {bad:?} in {}", other.name, field.name);
            }
        }
    }
}

#[test]
fn an_impossible_number_in_a_line_of_words_is_unknown() {
    for bad in IMPOSSIBLE {
        let psi = |avg10: &str, total: &str| {
            Psi::parse(&format!("some avg10={avg10} avg60=0.00 avg300=0.00 total={total}\n")).map(|psi| psi.some)
        };
        let found = psi(bad, "7").unwrap();
        assert_eq!((found.avg10, found.total_us), (None, Some(7)), "{bad:?}");
        let found = psi("1.50", bad).unwrap();
        assert_eq!((found.avg10, found.total_us), (Some(1.5), None), "{bad:?}");
        assert!(psi(bad, bad).is_err());
        assert!(kernel::cpu_ns(bad).is_err(), "{bad:?}");
        assert!(CpuTimes::parse(&format!("cpu  1 2 {bad} 4\n")).is_err(), "{bad:?}");
        assert!(kernel::byte_count(bad).is_err() && (kernel::merging_pages(bad).is_err() || bad.is_empty()));
        // A missing word would shift the fields of stat.
        let Some(bad) = Some(bad).filter(|bad| !bad.is_empty()) else { continue };
        let stat = |field: usize| {
            let mut words: Vec<String> = "7 (a) S 1 7 7 0 -1 64 8 0 0 0 5 6 0 0 20 0 1 0 900 999424 33 0"
                .split(' ')
                .map(str::to_owned)
                .collect();
            words[field - 1] = bad.to_owned();
            PidStat::parse(&words.join(" "))
        };
        let sound = stat(18).unwrap();
        assert_eq!((sound.rss_pages, sound.mapped_bytes), (Some(33), Some(999_424)));
        for (field, expected) in [
            (4, PidStat { parent: 0, ..sound.clone() }),
            (9, sound.clone()),
            (10, PidStat { minor_faults: 0, ..sound.clone() }),
            (14, PidStat { cpu_ticks: 6, ..sound.clone() }),
            (15, PidStat { cpu_ticks: 5, ..sound.clone() }),
            (23, PidStat { mapped_bytes: None, ..sound.clone() }),
            (24, PidStat { rss_pages: None, ..sound.clone() }),
        ] {
            assert_eq!(stat(field), Ok(expected), "field {field}: {bad}");
        }
        assert!(stat(22).is_err(), "without its start a process can't be told from another: {bad}");
    }
}
