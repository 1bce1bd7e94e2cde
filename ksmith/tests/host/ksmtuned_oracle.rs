//! The `ksmtuned` policy against the real ksmtuned: the installed script's own functions run over a faked /proc
//! and /sys, and both must write the same at every look.
//!
//! Needs the script (Debian: package `ksmtuned`; `apt-get download ksmtuned && dpkg -x` is enough, with `KSMTUNED`
//! naming the extracted file). Without it the test says so and passes.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ksmith_core::decide::{KsmtunedConfig, KsmtunedPolicy, PassHistory, Policy, PolicyLimits, PolicyView};
use ksmith_core::kernel::{HostReadings, Ksm, Meminfo};
use ksmith_core::knobs::Knob;
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};
use proptest::prelude::*;

/// The host at one look, in KiB.
#[derive(Debug, Clone, Copy)]
struct MemoryLook {
    free: u64,
    buffers: u64,
    cached: u64,
    committed: u64,
}

/// The values of `run`, `pages_to_scan` and `sleep_millisecs` after a look.
type Written = (u64, u64, u64);

const BEFORE: Written = (0, 100, 20);

/// Runs the script up to its loop, then `adjust` once per look.
fn original(script: &str, conf: &str, total: u64, looks: &[MemoryLook]) -> Vec<Written> {
    let tree = tempfile::tempdir().unwrap();
    let path = |name: &str| tree.path().join(name).display().to_string();
    let (functions, _) = script.split_once("\nloop () {").expect("the script has its loop");
    let functions = functions
        .replace("/etc/ksmtuned.conf", &path("ksmtuned.conf"))
        .replace("/proc/meminfo", &path("meminfo"))
        .replace("/sys/kernel/mm/ksm/", &path(""));
    assert!(!functions.contains("/proc/") && !functions.contains("/sys/"), "it would touch this host");
    let steps: String =
        looks.iter().map(|l| format!("{} {} {} {}\n", l.free, l.buffers, l.cached, l.committed)).collect();
    fs::write(path("ksmtuned.conf"), conf).unwrap();
    fs::write(path("meminfo"), format!("MemTotal: {total} kB\n")).unwrap();
    fs::write(path("steps"), steps).unwrap();
    for (name, value) in [("run", BEFORE.0), ("pages_to_scan", BEFORE.1), ("sleep_millisecs", BEFORE.2)] {
        fs::write(path(name), format!("{value}\n")).unwrap();
    }
    let driver = format!(
        "{functions}\ncd '{}' || exit 1\ncommitted_memory () {{ cat committed; }}\n\
         while read -r free buffers cached committed <&3; do\n\
           printf 'MemTotal: {total} kB\\nMemFree: %s kB\\nBuffers: %s kB\\nCached: %s kB\\n' \
             $free $buffers $cached > meminfo\n\
           echo $committed > committed\n\
           adjust\n\
           echo $(cat run pages_to_scan sleep_millisecs)\n\
         done 3< steps\n",
        tree.path().display()
    );
    let output =
        Command::new("bash").arg("-c").arg(driver).env_clear().env("PATH", "/usr/bin:/bin").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    text.lines().map(written).collect()
}

fn written(line: &str) -> Written {
    let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
    (numbers[0], numbers[1], numbers[2])
}

/// Returns the policy's settings after the same looks.
fn ours(conf: &str, total: u64, looks: &[MemoryLook]) -> Vec<Written> {
    let mut policy = KsmtunedPolicy::new(KsmtunedConfig::parse(conf).unwrap());
    let mut history = PassHistory::default();
    let mut last = BEFORE;
    let mut at = Duration::ZERO;
    let show = |look: &MemoryLook| {
        at += Duration::from_secs(u64::from(u32::MAX));
        let now = sample(at, total, look);
        history.push(&now);
        let knobs =
            policy.decide(&PolicyView { now: &now, history: &history, limits: &PolicyLimits::default() }).knobs;
        last = (
            knobs.get(Knob::Run).unwrap_or(last.0),
            knobs.get(Knob::PagesToScan).unwrap_or(last.1),
            knobs.get(Knob::SleepMillisecs).unwrap_or(last.2),
        );
        last
    };
    looks.iter().map(show).collect()
}

fn sample(at: Duration, total: u64, look: &MemoryLook) -> Sample {
    let guest = ProcessSample {
        rss_bytes: Some(look.committed * 1024),
        ..ProcessSample::new(ProcessId { pid: 1, start_ticks: 1 }, "guest".into(), true)
    };
    let memory = Meminfo {
        total: Some(total * 1024),
        free: Some(look.free * 1024),
        buffers: Some(look.buffers * 1024),
        cached: Some(look.cached * 1024),
        ..Meminfo::default()
    };
    Sample {
        at,
        page_size: 4096,
        ksm: Ksm { run: Reading::Value(0), ..Ksm::default() },
        host: HostReadings { memory: Reading::Value(memory), ..HostReadings::default() },
        processes: vec![guest],
        ..Sample::default()
    }
}

/// Settings as a person might write them. Bounds may be the wrong way round: the original takes that too.
fn any_conf() -> impl Strategy<Value = String> {
    let setting = |name: &'static str, value: BoxedStrategy<i64>| {
        let spelling = prop_oneof![
            Just(("", "")),
            Just(("", "'")),
            Just(("export ", "")),
            Just(("  ", "\"")),
            Just(("# ", "")),
        ];
        (value, spelling)
            .prop_map(move |(value, (before, quote))| format!("{before}{name}={quote}{value}{quote}\n"))
    };
    (
        setting("KSM_NPAGES_BOOST", (-100_i64..3000).boxed()),
        setting("KSM_NPAGES_DECAY", (-500_i64..100).boxed()),
        setting("KSM_NPAGES_MIN", (0_i64..500).boxed()),
        setting("KSM_NPAGES_MAX", (0_i64..5000).boxed()),
        setting("KSM_SLEEP_MSEC", (0_i64..1000).boxed()),
        setting("KSM_THRES_COEF", (0_i64..120).boxed()),
        setting("KSM_THRES_CONST", prop_oneof![Just(2048_i64), 0_i64..1 << 26].boxed()),
    )
        .prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g].concat())
}

/// A host of less than 2 TiB and its looks: anywhere, and often within 1 KiB of what the default settings compare
/// with. From 2 TiB on the original fails: mawk prints its sums as `2.24004e+09`, which is no number to a shell.
fn any_host() -> impl Strategy<Value = (u64, Vec<MemoryLook>)> {
    (1_u64 << 16..(1 << 31) - (1 << 21)).prop_flat_map(|total| {
        let threshold = total * 20 / 100;
        let near = |edge: u64| edge - 1..=edge + 1;
        let free = prop_oneof![0..=total, near(threshold)];
        let committed = prop_oneof![0..=total, near(total - threshold)];
        let cache = || prop_oneof![Just(0_u64), 0_u64..1 << 20];
        let look = (free, cache(), cache(), committed).prop_map(|(free, buffers, cached, committed)| MemoryLook {
            free,
            buffers,
            cached,
            committed,
        });
        (Just(total), prop::collection::vec(look, 1..25))
    })
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test's own words")]
fn the_policy_writes_what_the_original_writes() {
    let script = std::env::var("KSMTUNED").unwrap_or_else(|_| "/usr/sbin/ksmtuned".to_owned());
    let Ok(script) = fs::read_to_string(Path::new(&script)) else {
        // Not eprintln!, which the test harness swallows.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED, nothing was tested: no {script} to compare with (Debian package ksmtuned)"
        );
        return;
    };
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((total, looks) in any_host(), conf in prop_oneof![Just(String::new()), any_conf()])| {
        prop_assert_eq!(ours(&conf, total, &looks), original(&script, &conf, total, &looks));
    });
}
