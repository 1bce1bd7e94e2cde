//! Sums over the history: those of its samples, whatever the window and the tiers that have it.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

/// A sample: its time, and figures that go up and down.
type TestSample = (i64, u64, f64);

/// The end of each history, in the middle of an hour and a minute.
const NOW: i64 = BEGIN + 37 * MINUTE + 23_000;

const DAY: i64 = 24 * HOUR;

/// A time in which the host was on.
#[derive(Debug, Clone)]
struct HostSession {
    /// The time that it was off before, as a weight.
    off: f64,
    /// The part of the longest time that a session may last, on a logarithmic scale.
    on: f64,
    /// Seconds between two samples while ksmd is parked.
    parked_seconds: i64,
    /// Samples of each 40 in which ksmd is in a burst.
    burst: usize,
}

/// The most samples of one session, so that a case stays quick.
const LONGEST_SESSION: i64 = 400;

fn session() -> impl Strategy<Value = HostSession> {
    (0.0..1.0_f64, 0.0..1.0_f64, 1_i64..=60, 0_usize..20).prop_map(|(off, on, parked_seconds, burst)| HostSession {
        off,
        on,
        parked_seconds,
        burst,
    })
}

/// Returns the samples of a host that was on in these sessions, up to [`NOW`]. While ksmd is in a burst they are frequent.
fn samples(length: i64, sessions: &[HostSession]) -> Vec<TestSample> {
    let longest = length / sessions.len() as i64;
    let lasts = |session: &HostSession| {
        let most = longest.min(LONGEST_SESSION * session.parked_seconds * 1000).max(1000);
        (1000.0 * (most as f64 / 1000.0).powf(session.on)) as i64
    };
    let off: i64 = length - sessions.iter().map(lasts).sum::<i64>();
    let weights: f64 = sessions.iter().map(|session| session.off).sum();
    let mut samples: Vec<TestSample> = Vec::new();
    let mut begin = NOW - length;
    for session in sessions {
        let mut time = begin + (off as f64 * session.off / weights.max(f64::MIN_POSITIVE)) as i64;
        begin = time + lasts(session);
        while time <= begin.min(NOW) {
            let number = samples.len();
            let is_burst = number % 40 < session.burst;
            let saved = (1 << 30) + (number as u64 % 97) * (1 << 22);
            samples.push((time, saved, if is_burst { 37.0 } else { 1.0 }));
            // A burst follows the rest before it: the first sample of each stands for the rest.
            time += if is_burst { 2000 } else { session.parked_seconds * 1000 };
        }
        begin = time;
    }
    samples
}

/// Returns a history that holds these samples as the daemon records them: written in turns of `turn` milliseconds, rolled up and
/// deleted after each. Where the host was off the daemon is started again.
fn recorded(samples: &[TestSample], turn: i64, bounds: &HistoryBounds) -> StoreRig {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let open = |boot: i64| HistoryStore::open(&path, &boot.to_string(), boot, bounds.clone()).unwrap().store;
    let mut store = open(samples[0].0);
    let is_one_turn = |one: &TestSample, next: &TestSample| one.0 / turn == next.0 / turn && !is_gap(one.0, next.0);
    let unknown = vec![FigureScalar::Unknown; columns::host().len()];
    let at = ["saved_bytes", "ksmd_cpu_percent"].map(at_host);
    let snapshot = |(time, saved, percent): &TestSample| {
        let mut host = unknown.clone();
        (host[at[0]], host[at[1]]) = (FigureScalar::Unsigned(*saved), FigureScalar::Real(*percent));
        HistorySnapshot { time: *time, host, ..HistorySnapshot::default() }
    };
    let mut before = samples[0].0;
    for turn in samples.chunk_by(is_one_turn) {
        if is_gap(before, turn[0].0) {
            store.close(before).unwrap();
            store = open(turn[0].0);
        }
        let moments: Vec<HistorySnapshot> = turn.iter().map(&snapshot).collect();
        store.write(&moments).unwrap();
        before = turn[turn.len() - 1].0;
        store.tidy(before).unwrap();
    }
    StoreRig { directory, store }
}

/// Returns true if the host was off between two samples.
fn is_gap(time: i64, next: i64) -> bool {
    next - time > 90_000
}

/// Returns CPU seconds and byte seconds of samples within a window.
fn sums(samples: &[TestSample], since: i64) -> (f64, f64) {
    samples.windows(2).filter(|pair| pair[1].0 > since).fold((0.0, 0.0), |(cpu, bytes), pair| {
        let (time, saved, percent) = pair[1];
        if is_gap(pair[0].0, time) {
            // The window may begin shortly before the host is on again.
            return (cpu, bytes);
        }
        let seconds = (time - pair[0].0.max(since)) as f64 / 1000.0;
        (cpu + percent / 100.0 * seconds, bytes + saved as f64 * seconds)
    })
}

/// Asserts that a report's sums are at least the first ones and at most the last ones, within 1 %.
fn assert_sums(rig: &StoreRig, window: i64, [least, most]: [(f64, f64); 2]) -> Result<(), TestCaseError> {
    for rows in [20, 2000] {
        let query = ReportQuery { resolution: ReportResolution::Rows(rows), ..query(NOW - window, NOW, &[]) };
        let report = rig.read_report(&query);
        prop_assert!(report.rows.len() <= rows);
        // Without a row nothing was recorded in that time.
        let found = crate::summary(&report).map_or((0.0, 0.0), |summary| {
            (summary.ksmd_cpu_seconds, summary.saved_gib_hours * 3600.0 * f64::from(1 << 30))
        });
        for (found, least, most) in [(found.0, least.0, most.0), (found.1, least.1, most.1)] {
            let is_right = found >= least * 0.99 - 1e-6 && found <= most * 1.01 + 1e-6;
            prop_assert!(is_right, "{window} ms: {found}, not {least} to {most}");
        }
    }
    Ok(())
}

/// Asserts that a report's sums are those of the samples. Where only minutes or hours are left of the time at which the
/// window begins, the row there counts in part: the sums lie between those without it and with all of it.
fn assert_sums_of(rig: &StoreRig, window: i64, samples: &[TestSample]) -> Result<(), TestCaseError> {
    let since = NOW - window;
    let has_older = |table: &str| {
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE time < ?1)");
        rig.store.connection.query_row(&sql, [since], |row| row.get::<_, bool>(0)).unwrap()
    };
    let length = match () {
        () if has_older("host_sample") => 1,
        () if has_older("host_minute") => MINUTE,
        () if has_older("host_hour") => HOUR,
        () => 1,
    };
    // A sample stands for up to a minute before it, which may be of the row before.
    let step = if length == 1 { 0 } else { MINUTE };
    let (begin, end) = (since - since.rem_euclid(length), since + (-since).rem_euclid(length));
    assert_sums(rig, window, [end + step, begin - step].map(|since| sums(samples, since)))
}

/// A time from a minute to so many minutes, each as likely on a logarithmic scale.
fn up_to(minutes: f64) -> impl Strategy<Value = i64> {
    (0.0..1.0_f64).prop_map(move |part| (MINUTE as f64 * minutes.powf(part)) as i64)
}

/// Windows from a minute to ten years.
fn window() -> impl Strategy<Value = i64> {
    up_to(5_256_000.0)
}

/// Returns the configuration of each property: `PROPTEST_CASES`, or as few cases as take a second.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases.unwrap_or(12)) }
}

proptest! {
    #![proptest_config(config())]

    /// Histories of a minute to two years, of a host that is on now and then.
    #[test]
    fn sums_of_a_history_are_those_of_its_samples(
        length in up_to(2.0 * 525_600.0),
        sessions in prop::collection::vec(session(), 1..5),
        turn in prop::sample::select(vec![10 * MINUTE, HOUR]),
        samples_hours in 1_u64..=24,
        minutes_days in 1_u64..=31,
        windows in prop::collection::vec(window(), 7),
    ) {
        let samples = samples(length, &sessions);
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let bounds = HistoryBounds { samples: hours(samples_hours), minutes: hours(24 * minutes_days), ..HistoryBounds::default() };
        let rig = recorded(&samples, turn, &bounds);
        for window in windows {
            assert_sums_of(&rig, window, &samples)?;
        }
    }
}

/// A host that is always on has samples of a day, minutes of a month, and hours before.
#[test]
fn sums_of_a_host_that_is_always_on_are_those_of_its_samples() {
    let config = config();
    // More cases have a longer history: two years are 800,000 samples.
    let days = if config.cases > 1000 { 730 } else { 32 };
    let samples: Vec<TestSample> = (0..days * DAY / 79_000)
        .map(|n| NOW - n * 79_000 - (n * 7919) % 10_000)
        .map(|time| {
            (time, (1 << 30) + (time / 1000 % 977).unsigned_abs() * (1 << 20), 1.0 + (time / MINUTE % 7) as f64)
        })
        .rev()
        .collect();
    let rig = recorded(&samples, 12 * HOUR, &HistoryBounds::default());
    let kept = |table: &str| {
        let sql = format!("SELECT min(time) FROM {table}");
        NOW - rig.store.connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert!(kept("host_sample") <= DAY && kept("host_minute") <= 31 * DAY && kept("host_hour") > 31 * DAY);
    // The sums of all that follows each sample.
    let mut after = vec![(0.0, 0.0); samples.len()];
    for at in (1..samples.len() - 1).rev() {
        let (next, rest) = (sums(&samples[at..at + 2], i64::MIN), after[at + 1]);
        after[at] = (next.0 + rest.0, next.1 + rest.1);
    }
    let expected = |since: i64| {
        let at = samples.partition_point(|(time, ..)| *time <= since).clamp(1, samples.len() - 1);
        let (first, rest) = (sums(&samples[at - 1..=at], since), after[at]);
        (first.0 + rest.0, first.1 + rest.1)
    };
    let mut runner = TestRunner::new(config);
    runner.run(&window(), |window| assert_sums(&rig, window, [expected(NOW - window); 2])).unwrap();
}

/// Returns a history of these samples, written hour by hour.
fn recorded_by_hours(samples: &[TestSample]) -> StoreRig {
    recorded(samples, HOUR, &HistoryBounds::default())
}

#[test]
fn a_window_that_begins_shortly_before_the_host_is_on_again_counts_nothing_of_that() {
    let session = HostSession { off: 0.0, on: 1.0, parked_seconds: 30, burst: 20 };
    let samples = samples(10 * MINUTE, &[session]);
    let on_again = samples[0].0;
    let all: Vec<TestSample> = std::iter::once((on_again - HOUR, 1 << 30, 100.0)).chain(samples).collect();
    let window = NOW - on_again + 60_000;
    assert_sums(&recorded_by_hours(&all), window, [sums(&all, NOW - window); 2]).unwrap();
}

#[test]
fn a_window_that_begins_between_two_samples_counts_its_part_of_the_second() {
    // A sample each minute, and hours of 1 to 5 % of a CPU.
    let percent = |time: i64| 1.0 + (time.div_euclid(HOUR) % 5) as f64;
    let samples: Vec<TestSample> = (0..)
        .map(|n| BEGIN - 5 * HOUR + n * MINUTE)
        .take_while(|time| *time <= NOW)
        .map(|time| (time, 1 << 30, percent(time)))
        .collect();
    let rig = recorded_by_hours(&samples);
    for window in [8_414_724, 8_400_000 + 23_001, 8_400_000 + 22_999, 3_600_001, 7_260_000] {
        let report = rig
            .read_report(&ReportQuery { resolution: ReportResolution::Rows(20), ..query(NOW - window, NOW, &[]) });
        let found = crate::summary(&report).unwrap().ksmd_cpu_seconds;
        let expected = sums(&samples, NOW - window).0;
        assert!((found - expected).abs() < 0.001, "{window} ms: {found}, not {expected}");
    }
}

#[test]
fn a_window_that_begins_within_a_sample_takes_that_samples_own_figures_from_the_first_row() {
    // The first sample behind the beginning of the window is of a minute with a burst, and stands for 37 s, most of them before.
    let session = |off, on, parked_seconds, burst| HostSession { off, on, parked_seconds, burst };
    let sessions = [session(0.66, 0.635, 32, 15), session(0.173, 0.854, 37, 1), session(0.633, 0.0, 1, 0)];
    let samples = samples(27_334_633, &sessions);
    let bounds = HistoryBounds { samples: Duration::from_secs(3600), ..HistoryBounds::default() };
    let rig = recorded(&samples, 10 * MINUTE, &bounds);
    // Of the second session samples are there.
    let long =
        |pair: &&[TestSample]| pair[0].0 > NOW - 4 * HOUR && (30_000..90_000).contains(&(pair[1].0 - pair[0].0));
    for pair in samples.windows(2).filter(long) {
        let window = NOW - pair[0].0 - 20_000;
        assert_sums(&rig, window, [sums(&samples, NOW - window); 2]).unwrap();
    }
}

#[test]
fn the_row_in_which_samples_begin_counts_for_all_that_these_do_not() {
    // The samples of the last hour begin in the middle of a minute.
    let session = |off, on, parked_seconds, burst| HostSession { off, on, parked_seconds, burst };
    let sessions = [
        session(0.0885, 0.0, 1, 0),
        session(0.444, 0.0, 1, 0),
        session(0.5052, 0.8774, 9, 7),
        session(0.6308, 0.484, 1, 0),
    ];
    let samples = samples(8_302_440, &sessions);
    let bounds = HistoryBounds { samples: Duration::from_secs(3600), ..HistoryBounds::default() };
    let rig = recorded(&samples, 10 * MINUTE, &bounds);
    assert_sums(&rig, 3_787_524, [sums(&samples, NOW - 3_787_524); 2]).unwrap();
}

#[test]
fn a_window_longer_than_the_history_counts_nothing_twice() {
    let mut rig = rig();
    // 14 minutes of records across a full hour, as a host has them that has just booted.
    let samples: Vec<HistorySnapshot> =
        (0..=840).map(|n| host(BEGIN - 10 * MINUTE + n * 1000, 1 << 30, 1)).collect();
    rig.write(&samples).unwrap();
    let until = BEGIN + 4 * MINUTE;
    for window in [HOUR, 5 * HOUR, DAY, 30 * DAY, 3650 * DAY] {
        let report = rig.read_report(&query(until - window, until, &[]));
        let seconds = crate::summary(&report).unwrap().recorded_seconds;
        assert!((839.0..=841.0).contains(&seconds), "{window}: {seconds}");
    }
}
