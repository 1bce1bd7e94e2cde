//! Sums over the history: those of its samples, whatever the window and the tiers that have it.

use proptest::prelude::*;

use super::*;

/// A sample: its time, and figures that go up and down.
type TestSample = (i64, u64, f64);

/// The end of each history, in the middle of an hour and a minute.
const NOW: i64 = BEGIN + 37 * MINUTE + 23_000;

const DAY: i64 = 24 * HOUR;

/// Returns samples up to [`NOW`] with ksmd in bursts, in which they are frequent.
fn samples(length: i64, parked_seconds: i64) -> Vec<TestSample> {
    let mut samples = Vec::new();
    let (mut time, mut saved) = (NOW - length, 1_u64 << 30);
    while time <= NOW {
        let number = samples.len() as u64;
        let is_burst = number % 40 < 20;
        saved = if is_burst { saved + (1 << 20) } else { saved - (1 << 20) };
        samples.push((time, saved, if is_burst { 37.0 } else { 1.0 }));
        // A burst follows the rest before it: the first sample of each stands for the rest.
        time += if is_burst { 2000 } else { parked_seconds * 1000 };
    }
    samples
}

/// Returns CPU seconds and byte seconds of samples within a window.
fn sums(samples: &[TestSample], since: i64) -> (f64, f64) {
    samples.windows(2).filter(|pair| pair[1].0 > since).fold((0.0, 0.0), |(cpu, bytes), pair| {
        let (time, saved, percent) = pair[1];
        if time - pair[0].0 > 90_000 {
            // The host was off. The window may begin shortly before it is on again.
            return (cpu, bytes);
        }
        let seconds = (time - pair[0].0.max(since)) as f64 / 1000.0;
        (cpu + percent / 100.0 * seconds, bytes + saved as f64 * seconds)
    })
}

fn insert(connection: &Connection, table: &str, rows: &[TestSample], length: i64) {
    let is_sample = table == "host_sample";
    let recorded = if is_sample { "" } else { ", recorded_ms" };
    let sql = format!(
        "INSERT INTO {table} (time, saved_bytes, ksmd_cpu_percent{recorded}) VALUES (?1, ?2, ?3{})",
        if is_sample { String::new() } else { format!(", {length}") }
    );
    let mut statement = connection.prepare(&sql).unwrap();
    for (time, saved, percent) in rows {
        statement.execute(params![time, *saved as i64, percent]).unwrap();
    }
}

/// Asserts that a report's sums are those of the samples within 1 %.
fn assert_sums(rig: &StoreRig, window: i64, expected: (f64, f64)) -> Result<(), TestCaseError> {
    for rows in [20, 2000] {
        let query = ReportQuery { resolution: ReportResolution::Rows(rows), ..query(NOW - window, NOW, &[]) };
        let report = rig.read_report(&query);
        prop_assert!(report.rows.len() <= rows.max(report.recorded_seconds.len()));
        // Without a row nothing was recorded in that time.
        let found = crate::summary(&report).map_or((0.0, 0.0), |summary| {
            (summary.ksmd_cpu_seconds, summary.saved_gib_hours * 3600.0 * f64::from(1 << 30))
        });
        for (found, expected) in [(found.0, expected.0), (found.1, expected.1)] {
            prop_assert!((found - expected).abs() <= expected * 0.01, "{window} ms: {found}, not {expected}");
        }
    }
    Ok(())
}

/// Windows from a minute to ten years, each as likely on a logarithmic scale.
fn window() -> impl Strategy<Value = i64> {
    (0.0..1.0_f64).prop_map(|part| (MINUTE as f64 * (5_256_000.0_f64).powf(part)) as i64)
}

/// Returns the cases of each property: `PROPTEST_CASES`, or as few as take a second.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// The rows come from samples, as the daemon rolls them up.
    #[test]
    fn sums_of_a_short_history_are_those_of_its_samples(
        length in MINUTE..2 * DAY,
        parked in 1_i64..60,
        windows in prop::collection::vec(window(), 6),
        has_gap: bool,
    ) {
        let mut rig = rig_within(HistoryBounds::default());
        let mut samples = samples(length, parked);
        if has_gap {
            // The host was off.
            let gap = NOW - length * 2 / 3..NOW - length / 3;
            samples.retain(|(time, ..)| !gap.contains(time));
        }
        insert(&rig.store.connection, "host_sample", &samples, 0);
        rig.store.tidied = NOW - MINUTE;
        rig.store.tidy(NOW).unwrap();
        for window in windows {
            assert_sums(&rig, window, sums(&samples, NOW - window))?;
        }
    }

    /// The rows are those that the daemon has kept: samples of a day, minutes of a month, hours before.
    #[test]
    fn sums_of_a_long_history_are_those_of_its_samples(days in 2_i64..730, windows in prop::collection::vec(window(), 6)) {
        let rig = rig();
        // A sample each minute, with hours that differ.
        let begin = (NOW - days * DAY) / HOUR * HOUR;
        let figures = |time: i64| {
            let hour = time.div_euclid(HOUR);
            (1_u64 << 30) + (hour % 24).unsigned_abs() * (1 << 24)
        };
        let minutes: Vec<TestSample> =
            (0..).map(|n| begin + n * MINUTE).take_while(|time| *time <= NOW).map(|time| (time, figures(time), 1.0 + (time.div_euclid(HOUR) % 5) as f64)).collect();
        let kept = |age: i64| minutes.iter().copied().filter(|(time, ..)| *time >= NOW - age).collect::<Vec<_>>();
        let whole = |rows: Vec<TestSample>, length: i64| -> Vec<TestSample> {
            rows.into_iter().filter(|(time, ..)| time % length == 0 && time + length <= NOW).collect()
        };
        rig.store.connection.execute_batch("BEGIN").unwrap();
        insert(&rig.store.connection, "host_sample", &kept(DAY), 0);
        insert(&rig.store.connection, "host_minute", &whole(kept(31 * DAY), MINUTE), MINUTE);
        insert(&rig.store.connection, "host_hour", &whole(minutes.clone(), HOUR), HOUR);
        rig.store.connection.execute_batch("COMMIT").unwrap();
        for window in windows {
            assert_sums(&rig, window, sums(&minutes, NOW - window))?;
        }
    }
}

#[test]
fn a_window_that_begins_shortly_before_the_host_is_on_again_counts_nothing_of_that() {
    let rig = rig();
    let samples: Vec<TestSample> =
        samples(HOUR, 30).into_iter().filter(|(time, ..)| NOW - time < 10 * MINUTE).collect();
    let on_again = samples[0].0;
    let before = (on_again - HOUR, 1 << 30, 100.0);
    let all: Vec<TestSample> = std::iter::once(before).chain(samples).collect();
    insert(&rig.store.connection, "host_sample", &all, 0);
    let window = NOW - on_again + 60_000;
    assert_sums(&rig, window, sums(&all, NOW - window)).unwrap();
}

#[test]
fn a_window_that_begins_between_two_samples_counts_its_part_of_the_second() {
    let rig = rig();
    // A sample each minute, and hours of 1 to 5 % of a CPU.
    let percent = |time: i64| 1.0 + (time.div_euclid(HOUR) % 5) as f64;
    let samples: Vec<TestSample> = (0..)
        .map(|n| BEGIN - 5 * HOUR + n * MINUTE)
        .take_while(|time| *time <= NOW)
        .map(|time| (time, 1 << 30, percent(time)))
        .collect();
    let rows: Vec<TestSample> = samples.iter().copied().filter(|(time, ..)| time + MINUTE <= NOW).collect();
    insert(&rig.store.connection, "host_sample", &samples, 0);
    insert(&rig.store.connection, "host_minute", &rows, MINUTE);
    for window in [8_414_724, 8_400_000 + 23_001, 8_400_000 + 22_999, 3_600_001, 7_260_000] {
        let report = rig
            .read_report(&ReportQuery { resolution: ReportResolution::Rows(20), ..query(NOW - window, NOW, &[]) });
        let found = crate::summary(&report).unwrap().ksmd_cpu_seconds;
        let expected = sums(&samples, NOW - window).0;
        assert!((found - expected).abs() < 0.001, "{window} ms: {found}, not {expected}");
    }
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
