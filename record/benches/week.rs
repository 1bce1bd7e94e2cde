//! Benchmark of a week's history on a host with a thousand guests: file size, write time and query time.
//!
//! `cargo bench -p ksmith-record --bench week`. The host has a sample each second, and guests each ten seconds (the
//! defaults). WEEK_GUESTS, WEEK_HOURS, WEEK_CHANGING (per cent of guests with changed figures each time) and
//! WEEK_MIB override the defaults.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench ends by panicking, and prints its figures"
)]

use std::str::FromStr;
use std::time::{Duration, Instant};

use ksmith_core::figures::FigureScalar;
use ksmith_record::{
    GuestFigures, GuestIdentity, HistoryBounds, HistoryReader, HistorySnapshot, HistoryStore, ReportQuery,
    ReportResolution, columns,
};

/// Start time: a full hour in 2026, in milliseconds.
const BEGIN: i64 = 1_795_467_600_000;

/// Seconds written in one batch, as in the daemon.
const TOGETHER: i64 = 5;

fn setting<T: FromStr>(name: &str, usual: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn guest(n: u64) -> GuestFigures {
    let life = GuestIdentity {
        key: format!("{}:{}", 1000 + n, 100_000 + n),
        name: format!("guest-{n:04}"),
        uuid: Some(format!("00000000-0000-4000-8000-{n:012}")),
        kind: "qemu".to_owned(),
        program: "qemu-system-x86_64".to_owned(),
        user: Some("libvirt-qemu".to_owned()),
        cgroup: Some(format!("/machine.slice/machine-qemu-{n}.scope")),
        domain: None,
        labels: None,
    };
    GuestFigures { life, values: vec![FigureScalar::Unsigned(n << 24); columns::guest().len()] }
}

fn main() {
    let (guests, hours): (u64, i64) = (setting("WEEK_GUESTS", 1000), setting("WEEK_HOURS", 7 * 24));
    let changing: u64 = setting("WEEK_CHANGING", 33);
    let bounds = HistoryBounds { bytes: setting::<u64>("WEEK_MIB", 512) << 20, ..HistoryBounds::default() };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut store = HistoryStore::open(&path, "boot", BEGIN, bounds).unwrap().store;
    let mut all: Vec<GuestFigures> = (0..guests).map(guest).collect();
    let (mut writes, mut tidies, mut moments) = (Vec::new(), Vec::new(), Vec::new());
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let seconds = hours * 3600;
    for second in 0..seconds {
        let time = BEGIN + second * 1000;
        let host = columns::host().iter().map(|_| FigureScalar::Unsigned(next() << 12)).collect();
        let has_guests = second % 10 == 0;
        if has_guests {
            for guest in &mut all {
                if next() % 100 < changing {
                    guest.values.iter_mut().for_each(|value| *value = FigureScalar::Unsigned(next() << 12));
                }
            }
        }
        moments.push(HistorySnapshot {
            time,
            host,
            guests: has_guests.then(|| all.clone()),
            ..HistorySnapshot::default()
        });
        if second % TOGETHER == TOGETHER - 1 {
            let began = Instant::now();
            store.write(&moments).unwrap();
            writes.push(began.elapsed());
            let began = Instant::now();
            store.tidy(time).unwrap();
            tidies.push(began.elapsed());
            moments.clear();
        }
    }
    let end = BEGIN + seconds * 1000;
    let total: Duration = writes.iter().chain(&tidies).sum();
    println!("{guests} guests, {hours} h, {changing} % of the guests with other figures each 10 s");
    println!("file: {:.1} MiB", store.bytes() as f64 / f64::from(1 << 20));
    println!("writer: {:.3} ms for each second of the host", ms(total) / seconds as f64);
    show("write of five seconds", &mut writes);
    show("tidying, once a minute", &mut tidies);
    let ask = |what: &str, hours: i64, guest: Option<&str>| {
        let mut times: Vec<Duration> = (0..11)
            .map(|_| {
                let query = ReportQuery {
                    since: end - hours * 3_600_000,
                    until: end,
                    guest: guest.map(str::to_owned),
                    columns: Vec::new(),
                    resolution: ReportResolution::Rows(1000),
                };
                let began = Instant::now();
                let report = HistoryReader::open(&path).unwrap().read_report(&query).unwrap();
                assert!(!report.rows.is_empty(), "{what}");
                began.elapsed()
            })
            .collect();
        times.sort();
        println!("question, {what}: {:.1} ms (median of {})", ms(times[times.len() / 2]), times.len());
    };
    ask("the host, 2 h", 2, None);
    ask("the host, a day", 24, None);
    ask("the host, the whole time", hours, None);
    ask("a guest, 2 h", 2, Some("guest-0500"));
    ask("a guest, a day", 24, Some("guest-0500"));
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn show(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |part: f64| ms(times[((times.len() - 1) as f64 * part) as usize]);
    println!("{what}: median {:.2} ms, 99 % {:.2}, longest {:.1}", at(0.5), at(0.99), at(1.0));
}
