//! The rule of the soak: steady use passes, and every kind of growth fails.

#[path = "../../benches/soak/flat.rs"]
mod flat;

use flat::{DaemonUsage, FIGURES, UsageFigure, UsageTrend};

/// The usage of a daemon over time, as a function of the part of the soak that has passed.
type At = fn(f64) -> DaemonUsage;

/// An hour of a daemon that uses this much at each moment, as a part of the soak.
fn series(used: impl Fn(f64) -> DaemonUsage) -> Vec<DaemonUsage> {
    (0..1200).map(|at| used(f64::from(at) / 1200.0)).collect()
}

fn figure(name: &str) -> &'static UsageFigure {
    FIGURES.iter().find(|figure| figure.name == name).unwrap()
}

fn steady(wave: f64) -> DaemonUsage {
    DaemonUsage {
        rss_kib: 9000.0 + wave,
        descriptors: 40.0,
        threads: 12.0,
        children: 1.0,
        ..DaemonUsage::default()
    }
}

#[test]
fn a_daemon_that_is_steady_after_its_start_is_flat() {
    // It fills its caches in the first quarter, and each look is a little different.
    let filling = |part: f64| steady(2000.0 * (part * 8.0).min(1.0) + 300.0 * (part * 400.0).sin());
    for figure in &FIGURES {
        let trend = UsageTrend::from_series(figure, &series(filling)).unwrap();
        assert!(trend.is_flat(), "{}: {trend:?}", figure.name);
    }
}

#[test]
fn each_figure_that_grows_all_the_time_is_found() {
    let leaks: [(&str, At); 5] = [
        ("rss_kib", |part| steady(3000.0 * part)),
        ("child_rss_kib", |part| DaemonUsage { child_rss_kib: 5000.0 + 3000.0 * part, ..steady(0.0) }),
        ("descriptors", |part| DaemonUsage { descriptors: 40.0 + (20.0 * part).floor(), ..steady(0.0) }),
        ("threads", |part| DaemonUsage { threads: 12.0 + (10.0 * part).floor(), ..steady(0.0) }),
        ("children", |part| DaemonUsage { children: 1.0 + (5.0 * part).floor(), ..steady(0.0) }),
    ];
    for (name, leak) in leaks {
        for figure in &FIGURES {
            let trend = UsageTrend::from_series(figure, &series(leak)).unwrap();
            assert_eq!(trend.is_flat(), figure.name != name, "{} while {name} grows: {trend:?}", figure.name);
        }
    }
}

#[test]
fn one_large_moment_is_no_growth_and_no_samples_are_no_verdict() {
    let moment = |part: f64| steady(if (0.90..0.95).contains(&part) { 50_000.0 } else { 0.0 });
    assert!(UsageTrend::from_series(figure("rss_kib"), &series(moment)).unwrap().is_flat());
    assert_eq!(UsageTrend::from_series(figure("rss_kib"), &[DaemonUsage::default()]), None);
    // What may grow has no bound.
    assert_eq!(UsageTrend::from_series(figure("saved_mib"), &series(steady)).unwrap().bound, None);
}
