use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn point(at: f64, saved_mib: u64, cpu: f64) -> SeriesPoint {
    SeriesPoint { at, saved_bytes: saved_mib * MIB, ksmd_cpu_seconds: cpu, ..SeriesPoint::default() }
}

fn series(points: &[(f64, u64, f64)], attainable: &[(f64, u64)]) -> RunSeries {
    RunSeries {
        points: points.iter().map(|&(at, saved, cpu)| point(at, saved, cpu)).collect(),
        attainable: attainable.iter().map(|&(at, mib)| AttainableStep { at, bytes: mib * MIB }).collect(),
        ..RunSeries::default()
    }
}

fn measures(series: &RunSeries) -> RunMeasures {
    RunMeasures::from_series(series, &RunCounts::default())
}

#[test]
fn time_and_gib_seconds_of_a_burst() {
    let s = series(
        &[(0.0, 0, 0.0), (1.0, 0, 0.1), (2.0, 500, 0.6), (3.0, 900, 1.2), (4.0, 1000, 1.4), (10.0, 1024, 1.4)],
        &[(1.0, 512), (1.5, 1024)],
    );
    let m = measures(&s);
    assert_eq!((m.attainable_bytes, m.saved_bytes), (1024 * MIB, 1024 * MIB));
    assert_eq!((m.seconds_to_50, m.seconds_to_90, m.seconds_to_99), (Some(1.5), Some(2.5), Some(8.5)));
    assert_eq!((m.rises.len(), m.rises[0].at, m.rises[0].missing_bytes), (1, 1.5, 1024 * MIB));
    let expected = (250.0 + 700.0 + 950.0 + 6.0 * 1012.0) / 1024.0;
    assert!((m.gib_seconds - expected).abs() < 1e-9, "{}", m.gib_seconds);
    assert!((m.attainable_gib_seconds - (0.25 + 8.5)).abs() < 1e-9);
    assert_eq!(m.ksmd_cpu_seconds, 1.4);
}

#[test]
fn each_late_clone_is_a_rise_of_its_own_and_the_slowest_counts() {
    let s = series(
        &[(0.0, 0, 0.0), (5.0, 100, 0.0), (20.0, 100, 0.0), (29.0, 199, 0.0), (40.0, 200, 0.0), (60.0, 240, 0.0)],
        &[(1.0, 100), (20.0, 200), (40.0, 300)],
    );
    let m = measures(&s);
    let ninety: Vec<_> = m.rises.iter().map(|rise| rise.seconds_to_90).collect();
    assert_eq!(ninety, [Some(4.0), Some(9.0), None]);
    assert_eq!((m.seconds_to_50, m.seconds_to_90), (None, None));
    assert_eq!(m.rises[2].missing_bytes, 100 * MIB);
}

#[test]
fn what_the_gauge_says_beyond_the_attainable_does_not_count() {
    // The guests end at 5 s, which a parked ksmd does not notice.
    let m = measures(&series(&[(0.0, 1024, 0.0), (10.0, 1024, 0.0)], &[(0.0, 1024), (5.0, 0)]));
    assert_eq!((m.gib_seconds, m.saved_bytes, m.rises.len()), (5.0, 0, 0));
}

#[test]
fn a_fall_ends_a_rise() {
    let s = series(&[(0.0, 0, 0.0), (9.0, 50, 0.0), (11.0, 100, 0.0)], &[(0.0, 100), (10.0, 60)]);
    assert_eq!(measures(&s).rises[0].seconds_to_99, None);
    assert_eq!(measures(&s).rises[0].seconds_to_50, Some(9.0));
}

fn restless(points: &[(f64, u64)], attainable: &[(f64, u64)]) -> RunMeasures {
    let points: Vec<_> = points.iter().map(|&(at, saved)| (at, saved, 0.0)).collect();
    measures(&RunSeries { is_restless: true, ..series(&points, attainable) })
}

#[test]
fn where_savings_can_grow_all_the_time_the_longest_wait_counts() {
    // 10 MiB more each second, and ksmd is four seconds behind.
    let steps: Vec<(f64, u64)> = (0..100).map(|second| (f64::from(second), 1000 + 10 * second as u64)).collect();
    let points: Vec<(f64, u64)> =
        (0..100).map(|second| (f64::from(second), if second < 4 { 0 } else { 960 + 10 * second as u64 })).collect();
    let m = restless(&points, &steps);
    assert_eq!((m.seconds_to_50, m.seconds_to_90, m.seconds_to_99), (Some(4.0), Some(4.0), Some(4.0)));
    assert_eq!(m.rises, []);
    let rises = measures(&series(&points.iter().map(|p| (p.0, p.1, 0.0)).collect::<Vec<_>>(), &steps));
    assert_eq!(rises.seconds_to_50, Some(0.0), "a hundred seconds of growth are one rise");
}

#[test]
fn what_could_be_saved_for_a_moment_only_is_not_waited_for() {
    let m = restless(&[(0.0, 100), (5.0, 100), (9.0, 100), (20.0, 100)], &[(0.0, 100), (4.0, 300), (8.0, 100)]);
    assert_eq!((m.seconds_to_50, m.seconds_to_99), (Some(4.0), Some(4.0)));
}

#[test]
fn a_guest_that_takes_the_place_of_another_is_waited_for_from_then_on() {
    // At each exchange a quarter of what is saved leaves, and ksmd needs ten seconds for what comes.
    let points: Vec<(f64, u64)> =
        (0..300).map(|second| (f64::from(second), if second % 60 < 10 { 75 } else { 100 })).collect();
    let m = restless(&points, &[(0.0, 100)]);
    assert_eq!((m.seconds_to_50, m.seconds_to_90), (Some(0.0), Some(10.0)));
}

#[test]
fn a_wait_may_last_until_the_end_and_never_is_for_what_was_never_saved() {
    let steps = [(0.0, 100), (50.0, 200)];
    let m = |last: f64| restless(&[(0.0, 0), (20.0, 0), (30.0, 100), (49.0, 100), (last, 100)], &steps);
    assert_eq!(m(60.0).seconds_to_90, Some(30.0));
    assert_eq!((m(90.0).seconds_to_90, m(90.0).seconds_to_50), (Some(40.0), Some(30.0)));
    assert_eq!(restless(&[(0.0, 0), (9.0, 0)], &[]).seconds_to_50, None);
    assert_eq!(restless(&[(0.0, 0), (9.0, 0)], &[(1.0, 5)]).seconds_to_50, None);
}

#[test]
fn peaks_and_late_use_are_rates() {
    let s = series(&[(0.0, 0, 0.0), (5.0, 0, 1.0), (10.0, 0, 5.0), (15.0, 0, 5.0), (30.0, 0, 5.3)], &[]);
    let m = measures(&s);
    assert!((m.ksmd_peak_percent - 80.0).abs() < 1e-9, "{}", m.ksmd_peak_percent);
    assert_eq!(m.late_percent, 0.0, "the last look alone is no stretch of time");
    assert!((s.rate_since(15.0, |p| p.ksmd_cpu_seconds) - 0.02).abs() < 1e-9);
    assert_eq!(s.peak_rate(60.0, |p| p.ksmd_cpu_seconds), 0.0);
}

#[test]
fn an_empty_run_amounts_to_nothing() {
    let m = measures(&RunSeries::default());
    assert_eq!((m.gib_seconds, m.seconds_to_50, m.ksmd_peak_percent, m.late_percent), (0.0, None, 0.0, 0.0));
}

#[test]
fn every_figure_is_a_key_of_a_run() {
    let run = serde_json::to_value(measures(&RunSeries::default())).unwrap();
    for figure in FIGURES {
        assert!(run.get(figure.key).is_some(), "{}", figure.key);
    }
}

prop_compose! {
    fn any_series()(
        looks in prop::collection::vec((0.01..3.0_f64, 0_u64..2000, 0.0..1.0_f64), 0..40),
        steps in prop::collection::vec((0.0..20.0_f64, 0_u64..2000), 0..8),
    ) -> RunSeries {
        let (mut at, mut cpu) = (0.0, 0.0);
        let points = looks.into_iter().map(|(gap, saved, share)| {
            at += gap;
            cpu += gap * share;
            point(at, saved, cpu)
        }).collect();
        let mut when = 0.0;
        let attainable = steps.into_iter().map(|(gap, mib)| {
            when += gap;
            AttainableStep { at: when, bytes: mib * MIB }
        }).collect();
        RunSeries { points, attainable, ..RunSeries::default() }
    }
}

#[test]
fn what_was_rewritten_and_came_back_counts_only_once_ksmd_has_been_there() {
    let steps = [(0.0, 100), (10.0, 40), (20.0, 100)].map(|(at, mib)| AttainableStep { at, bytes: mib * MIB });
    // The kernel counts all of the part as merged all the time.
    let looks = [(5.0, 0.0), (15.0, 4.0), (25.0, 4.0), (30.0, 22.0)];
    let points = looks.map(|(at, known_since)| SeriesPoint { known_since, ..point(at, 100, 0.0) });
    let series = RunSeries::new(points.to_vec(), steps.to_vec());
    let saved: Vec<_> = series.points.iter().map(|point| point.saved_bytes / MIB).collect();
    assert_eq!(saved, [100, 40, 40, 100]);
}

proptest! {
    #[test]
    fn no_run_saves_more_than_there_is_nor_uses_more_than_a_cpu(s in any_series()) {
        let m = measures(&s);
        prop_assert!(m.gib_seconds >= 0.0 && m.gib_seconds <= m.attainable_gib_seconds + 1e-9);
        prop_assert!(m.saved_bytes <= m.attainable_bytes);
        prop_assert!((0.0..=100.0 + 1e-6).contains(&m.ksmd_peak_percent));
        prop_assert!((0.0..=100.0 + 1e-6).contains(&m.late_percent));
    }

    #[test]
    fn more_takes_longer(s in any_series()) {
        for rise in measures(&s).rises {
            prop_assert!(rise.missing_bytes > 0);
            let times = [rise.seconds_to_50, rise.seconds_to_90, rise.seconds_to_99];
            let times = times.map(|time| time.unwrap_or(f64::INFINITY));
            prop_assert!(times.is_sorted() && times[0] >= 0.0, "{times:?}");
        }
    }

    #[test]
    fn more_of_a_restless_run_takes_longer(s in any_series()) {
        let m = measures(&RunSeries { is_restless: true, ..s });
        let times = [m.seconds_to_50, m.seconds_to_90, m.seconds_to_99].map(|time| time.unwrap_or(f64::INFINITY));
        prop_assert!(times.is_sorted() && times[0] >= 0.0, "{times:?}");
    }

    #[test]
    fn saving_more_gives_more_gib_seconds(s in any_series(), more in 0_u64..100) {
        let mut richer = s.clone();
        richer.points.iter_mut().for_each(|point| point.saved_bytes += more * MIB);
        prop_assert!(measures(&richer).gib_seconds >= measures(&s).gib_seconds - 1e-9);
    }

    #[test]
    fn a_run_is_the_sum_of_its_parts(s in any_series(), cut in 0_usize..40) {
        let cut = cut.min(s.points.len().saturating_sub(1));
        let part = |points: &[SeriesPoint]| measures(&RunSeries { points: points.to_vec(), ..s.clone() }).gib_seconds;
        let whole = part(&s.points);
        let parts = part(s.points.get(..=cut).unwrap_or(&[])) + part(s.points.get(cut..).unwrap_or(&[]));
        prop_assert!((whole - parts).abs() < 1e-6, "{whole} {parts}");
    }
}

#[test]
fn of_guests_on_huge_pages_the_figures_are_those_of_what_is_really_saved() {
    let sample = |at: f64, counted_mib: u64, truly_mib: u64| TruthPoint {
        at,
        counted_bytes: counted_mib * MIB,
        truly_saved_bytes: truly_mib * MIB,
        ..TruthPoint::default()
    };
    // The counters do not have a quarter of what splits have freed; then khugepaged undoes half, which they do not notice.
    let truth = vec![sample(0.9, 0, 0), sample(2.0, 768, 1024), sample(6.0, 768, 512)];
    let points = (0..=10).map(|second| point(f64::from(second), 768, 0.0)).collect();
    let s = RunSeries::from_truth(points, vec![AttainableStep { at: 0.5, bytes: 1024 * MIB }], truth);
    let saved: Vec<u64> = s.points.iter().map(|point| point.saved_bytes / MIB).collect();
    assert_eq!(saved, [0, 0, 1024, 1024, 1024, 1024, 512, 512, 512, 512, 512]);
    let m = measures(&s);
    assert_eq!((m.seconds_to_99, m.saved_bytes), (Some(1.5), 512 * MIB));
    assert!((m.gib_seconds - (0.5 + 3.0 + 0.75 + 4.0 * 0.5)).abs() < 1e-9, "{}", m.gib_seconds);
    assert_eq!(m.counted_bytes, Some(768 * MIB));
    assert!((m.counted_gib_seconds.unwrap() - 0.75 * (0.55 + 4.0)).abs() < 1e-9, "{:?}", m.counted_gib_seconds);
    assert_eq!(measures(&series(&[(0.0, 1, 0.0)], &[])).counted_bytes, None);
}
