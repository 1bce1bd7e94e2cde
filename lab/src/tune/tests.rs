//! Small searches from end to end.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::scenario::ScenarioForm;
use crate::simulate::StoryOverrides;

const TWINS: &str = r#"
about = "Twins, and a third one later"
long = { seconds = 20 }
short = { seconds = 20 }
[guests.twin]
parts = [
  { kind = "equal", size = "4 MiB", seed = 1 },
  { kind = "unique", size = "4 MiB" },
  { kind = "churn", size = "1 MiB", every_ms = 2000 },
]
[[timeline]]
at = 1
start = "twin"
times = 2
[[timeline]]
at = 12
start = "twin"
times = 1
"#;

fn story(text: &str) -> SimulationStory {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("twins.toml");
    std::fs::write(&path, text).unwrap();
    SimulationStory::load(&path, ScenarioForm::Short, StoryOverrides::default()).unwrap()
}

fn keys() -> Vec<TuneKey> {
    let of = |name, default, low, high| TuneKey { low, high, ..TuneKey::from_default(name, default).unwrap() };
    vec![
        // The search begins where half of all pairs contradict each other.
        of("price_mib_per_cpu_second", "8.0", 0.1, 10.0),
        of("pressed_price_mib_per_cpu_second", "6.0", 0.1, 10.0),
        of("first_probe_seconds", "15.0", 1.0, 60.0),
        TuneKey { is_constant: true, ..of("recurring_part", "0.8", 0.1, 1.0) },
    ]
}

fn tuning(points: usize) -> TuneSearch {
    TuneSearch {
        policy: "profit".to_owned(),
        keys: keys(),
        stories: vec![story(TWINS)],
        host: SimulatedHost::default(),
        points,
        seed: 7,
        jobs: Some(2),
    }
}

#[test]
fn a_search_finds_a_front_within_bounds_that_holds_the_defaults_to_account() {
    let tuned = tuning(40).search(&|| false).unwrap();
    assert!(tuned.points.len() + tuned.refused > 30, "{} and {}", tuned.points.len(), tuned.refused);
    assert!(tuned.points.contains(&tuned.defaults) && !tuned.is_stopped);
    assert!((tuned.defaults.cpu - 1.0).abs() < 1e-9 && tuned.defaults.share > 0.5, "{:?}", tuned.defaults);
    assert_eq!(tuned.defaults.values, [8.0, 6.0, 15.0, 0.8]);
    for point in &tuned.points {
        for (key, value) in tuned.keys.iter().zip(&point.values) {
            assert!((key.low..=key.high).contains(value), "{} = {value}", key.name);
        }
        assert!(point.values[1] <= point.values[0], "a contradiction was played: {:?}", point.values);
        let is_beaten = tuned.points.iter().any(|other| front::dominates(other, point));
        assert!(is_beaten || tuned.front.iter().any(|on| (on.share, on.cpu) == (point.share, point.cpu)));
    }
    assert!(tuned.refused > 0, "the bounds have contradictions");
    assert_eq!(tuned.place.is_on_front, tuned.place.dominated_by == 0);

    let directory = tempfile::tempdir().unwrap();
    tuned.write(directory.path()).unwrap();
    let page = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 1);
    assert!(page.contains("first probe seconds") && !page.contains("NaN") && !page.contains("<script"), "{page}");
    let text = std::fs::read_to_string(directory.path().join("results.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["points"].as_array().unwrap().len(), tuned.points.len());
}

#[test]
fn the_same_seed_gives_the_same_results_whatever_the_threads() {
    let first = tuning(20).search(&|| false).unwrap();
    let alone = TuneSearch { jobs: Some(1), ..tuning(20) };
    assert_eq!(alone.search(&|| false).unwrap(), first);
    let other = TuneSearch { seed: 8, ..tuning(20) }.search(&|| false).unwrap();
    assert_ne!(other.points, first.points);
}

#[test]
fn a_search_that_is_ended_returns_what_was_found_and_one_ended_at_once_says_so() {
    let looks = AtomicUsize::new(0);
    // A run of the story has 100 steps: the defaults and some points are played.
    let tuned = tuning(100_000).search(&|| looks.fetch_add(1, Ordering::Relaxed) > 1000).unwrap();
    assert!(tuned.is_stopped && (2..20).contains(&tuned.points.len()), "{}", tuned.points.len());
    let ended = AtomicBool::new(true);
    let error = tuning(10).search(&|| ended.load(Ordering::Relaxed)).unwrap_err();
    assert!(matches!(error, TuneError::TooEarly), "{error}");
}

#[test]
fn stories_without_savings_and_keys_that_are_none_are_refused() {
    let text = TWINS.replace("\"equal\"", "\"unique\"").replace(", seed = 1", "");
    let alone = TuneSearch { stories: vec![story(&text)], ..tuning(10) };
    assert!(matches!(alone.search(&|| false), Err(TuneError::NothingToSave)));
    let wrong = TuneSearch { keys: vec![TuneKey::from_default("prise", "8.0").unwrap()], ..tuning(10) };
    let error = wrong.search(&|| false).unwrap_err().to_string();
    assert!(error.starts_with("profit: ") && error.contains("prise"), "{error}");
}

#[test]
fn the_verdict_says_by_how_much() {
    let mut tuned = tuning(1).search(&|| false).unwrap();
    let defaults = TunePoint { share: 0.9, cpu: 1.0, ..tuned.defaults.clone() };
    tuned.place = DefaultsPosition::from_points(&defaults, std::slice::from_ref(&defaults));
    assert!(tuned.verdict().starts_with("The defaults lie on the front"), "{}", tuned.verdict());
    let better = TunePoint { share: 0.92, cpu: 0.75, ..defaults.clone() };
    tuned.place = DefaultsPosition::from_points(&defaults, &[better]);
    tuned.defaults = defaults;
    assert_eq!(
        tuned.verdict(),
        "The defaults (90.00 %) are dominated by 1 point. As much or more (92.00 %) is saved for 0.750 of their CPU, and \
         92.00 % for 0.750. No worse in any story: 1 point, the cheapest of which saves 92.00 % for 0.750."
    );
}
