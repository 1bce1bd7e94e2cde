//! Small stories, simulated.

use std::path::{Path, PathBuf};

use super::*;
use crate::GuestPages;
use crate::measure::{KnownGuests, TruthPoint};
use crate::scenario::{self, GuestAction, Scenario};

fn shipped(place: &str) -> Vec<PathBuf> {
    let found = scenario::list(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios").join(place)]);
    assert!(found.len() >= 3, "{found:?}");
    found
}

fn competitors(names: &[&str]) -> Vec<Competitor> {
    names.iter().map(|name| Competitor::parse(name).unwrap()).collect()
}

fn loaded(text: &str, wishes: StoryOverrides) -> Result<SimulationStory, StoryError> {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(file.path(), text).unwrap();
    SimulationStory::load(file.path(), ScenarioForm::Short, wishes)
}

const TWINS: &str = r#"
about = "Twins, one of which leaves"
long = { seconds = 60 }
short = { seconds = 60 }
[guests.twin]
parts = [
  { kind = "equal", size = "8 MiB", seed = 1 },
  { kind = "zero", size = "1 MiB" },
  { kind = "unique", size = "2 MiB" },
  { kind = "work", size = "1 MiB", percent = 5 },
]
[[timeline]]
at = 1
start = "twin"
times = 2
[[timeline]]
at = 20
rewrite = "twin-1"
part = 0
[[timeline]]
at = 30
refill = "twin-1"
part = 0
[[timeline]]
at = 40
stop = "twin-2"
"#;

#[test]
fn a_scenario_of_the_lab_gives_results_of_the_lab() {
    let story = loaded(TWINS, StoryOverrides::default()).unwrap();
    let simulation = Simulation {
        stories: vec![story],
        form: ScenarioForm::Short,
        competitors: competitors(&["profit", "reference", "none"]),
        balances: Vec::new(),
        host: SimulatedHost::default(),
    };
    let results = simulation.play().unwrap();
    let [profit, reference, none] = &results.scenarios[0].competitors[..] else { panic!() };
    assert_eq!(results.scenarios[0].attainable_bytes, 10 << 20, "8 MiB once, and two of zeros");
    let attainable: Vec<_> =
        profit.runs[0].series.attainable.iter().map(|step| (step.at.round(), step.bytes >> 20)).collect();
    assert_eq!(attainable, [(1.0, 10), (20.0, 2), (30.0, 10), (40.0, 1)]);
    assert!(profit.share_of_reference.unwrap() > 0.8, "{:?}", profit.share_of_reference);
    assert!(profit.median("ksmd_cpu_seconds") < reference.median("ksmd_cpu_seconds"));
    assert!(profit.median("breaks") > Some(0.0));
    assert_eq!((none.median("gib_seconds"), none.median("ksmd_cpu_seconds")), (Some(0.0), Some(0.0)));
    assert_eq!(simulation.play().unwrap(), results, "the same again");
}

#[test]
fn shipped_scenarios_can_save_as_much_as_on_the_live_kernel() {
    let mut simulated = 0;
    for path in shipped("") {
        let Ok(story) = SimulationStory::load(&path, ScenarioForm::Short, StoryOverrides::default()) else {
            assert!(path.ends_with("qemu.toml"), "{}", path.display());
            continue;
        };
        let scenario = Scenario::load(&path, ScenarioForm::Short).unwrap();
        let (mut known, mut most) = (KnownGuests::default(), 0);
        for action in &scenario.actions {
            match action.deed {
                GuestAction::Start(guest) => {
                    known.start(guest, scenario.instances[guest].kind.contents().unwrap());
                }
                GuestAction::Stop(guest) => known.stop(guest),
                GuestAction::Rewrite { guest, part } => known.rewritten(guest, part, true),
                GuestAction::Refill { guest, part } => known.rewritten(guest, part, false),
                GuestAction::Work { .. } | GuestAction::Khugepaged(_) => {}
            }
            most = most.max(known.attainable_bytes());
        }
        let competitors = competitors(&["none"]);
        let host = SimulatedHost::default();
        let results =
            Simulation { stories: vec![story], form: ScenarioForm::Short, competitors, balances: Vec::new(), host }
                .play()
                .unwrap();
        assert_eq!(results.scenarios[0].attainable_bytes, most, "{}", path.display());
        simulated += 1;
    }
    assert!(simulated >= 9);
}

#[test]
fn shipped_fleets_are_read_and_the_command_line_comes_first() {
    for path in shipped("fleet") {
        let wishes = StoryOverrides {
            host_bytes: Some(8 << 30),
            duration: Some(Duration::from_secs(7200)),
            seed: Some(5),
            pages: None,
        };
        let SimulationStory::Planned { guests, duration, host_bytes, .. } =
            SimulationStory::load(&path, ScenarioForm::Short, wishes).unwrap()
        else {
            panic!("{} is no fleet", path.display());
        };
        assert_eq!((duration, host_bytes), (wishes.duration.unwrap(), 8 << 30));
        let bytes: u64 = guests.iter().map(|(_, demand)| demand.whole_bytes).sum();
        assert!(bytes > 6 << 30, "{}: {bytes}", path.display());
        assert_ne!(
            SimulationStory::load(&path, ScenarioForm::Short, StoryOverrides { seed: Some(6), ..wishes }).unwrap(),
            SimulationStory::load(&path, ScenarioForm::Short, wishes).unwrap()
        );
    }
}

#[test]
fn a_fleet_is_simulated() {
    let text = "about = \"a\"\n[fleet]\nhost = \"1 GiB\"\nstep = \"64 MiB\"\nsmallest = \"64 MiB\"\nlargest = \"128 MiB\"\n\
        images = 2\nduration = \"3min\"\nexchange_from = \"2min\"";
    let simulation = Simulation {
        stories: vec![loaded(text, StoryOverrides::default()).unwrap()],
        form: ScenarioForm::Short,
        competitors: competitors(&["profit", "none"]),
        balances: Vec::new(),
        host: SimulatedHost::default(),
    };
    let results = simulation.play().unwrap();
    let profit = &results.scenarios[0].competitors[0];
    let run = &profit.runs[0].measures;
    let share = run.gib_seconds / run.attainable_gib_seconds;
    assert!(share > 0.8 && share <= 1.0, "{share}");
    assert!(run.passes > 2);
    let none = &results.scenarios[0].competitors[1];
    assert_eq!((none.median("seconds_to_50"), run.rises.len()), (None, 0));
    assert!(profit.median("seconds_to_90") > profit.median("seconds_to_50"), "{run:?}");
}

#[test]
fn a_fleet_is_simulated_under_each_balance_policy() {
    let text = "about = \"a\"\n[fleet]\nhost = \"1 GiB\"\nstep = \"32 MiB\"\nsmallest = \"32 MiB\"\nlargest = \"64 MiB\"\n\
        images = 2\nduration = \"4min\"\nfull = 2.0\ncold = 0.3\nhot = 0.1\nbursting = 0.1\ngrowing_over = \"60s\"\n\
        start_every = \"1s\"\nexchange_from = \"2min\"";
    let simulation = Simulation {
        stories: vec![loaded(text, StoryOverrides::default()).unwrap()],
        form: ScenarioForm::Short,
        competitors: competitors(&["profit", "none"]),
        balances: ["none", "no-swap"].map(|name| SimulatedBalance::parse(name).unwrap()).to_vec(),
        host: SimulatedHost::default(),
    };
    let results = simulation.play().unwrap();
    let all = &results.scenarios[0].competitors;
    let names: Vec<_> = all.iter().map(|competitor| competitor.name.as_str()).collect();
    assert_eq!(names, ["profit + none", "profit + no-swap", "none + none", "none + no-swap"]);
    let of = |place: usize, key| all[place].median(key).unwrap();
    assert!(of(1, "overflow_gib_seconds") < of(0, "overflow_gib_seconds"));
    assert!(of(0, "overflow_gib_seconds") < of(2, "overflow_gib_seconds"));
    assert_eq!((of(0, "taken_bytes"), of(0, "away_gib_seconds")), (0.0, 0.0));
    assert!(of(1, "taken_bytes") > 0.0 && of(3, "taken_bytes") > 0.0);
    assert!(crate::report::page(&results).unwrap().contains("Memory of the host and of its guests"));
    assert_eq!(simulation.play().unwrap(), results, "the same again");
}

#[test]
fn what_is_no_fleet_is_refused_with_the_reason() {
    for (text, part) in [
        ("images = 0", "images go from 1"),
        ("smallest = \"1.5 GiB\"", "no multiple of step"),
        ("common = 1.5", "not a part from 0 to 1"),
        ("common = 0.6\nimage = 0.6", "more than the whole"),
        ("boot = \"soon\"", "not a time"),
        ("host = \"big\"", "not a size"),
        ("cloud = true", "unknown field"),
        ("full = 0", "not a part of the host's memory"),
        ("hot = 0.5\ncold = 0.5", "more than the whole"),
        ("smallest = \"4 GiB\"\nlargest = \"1 GiB\"", "more than largest"),
    ] {
        let error =
            loaded(&format!("about = \"a\"\n[fleet]\n{text}"), StoryOverrides::default()).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn guests_of_unknown_contents_and_programs_are_refused() {
    let text = "about = \"a\"\nlong = { seconds = 9 }\nshort = { seconds = 9 }\nguests.a.command = [\"true\"]\n\
        timeline = [{ at = 2, start = \"a\" }]";
    let error = loaded(text, StoryOverrides::default()).unwrap_err().to_string();
    assert!(error.contains("guest a-1 with contents that are not known"), "{error}");
    let program = Competitor {
        name: "script:ksmtuned".to_owned(),
        kind: CompetitorKind::Ksmtuned { script: PathBuf::new(), is_eager: false },
    };
    assert!(prepare(&program).unwrap_err().to_string().contains("ksmith lab run"));
}

#[test]
fn costs_are_read_and_a_wrong_key_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "checksum = 900\nskip = 10\n").unwrap();
    let costs = load_costs(file.path()).unwrap();
    assert_eq!((costs.checksum, costs.skip, costs.merge), (900, 10, SimCosts::default().merge));
    fs::write(file.path(), "chksum = 900\n").unwrap();
    assert!(load_costs(file.path()).unwrap_err().to_string().contains("unknown field"));
}

#[test]
fn of_guests_in_huge_pages_the_results_have_what_is_really_saved() {
    let huge = TWINS.replace("[guests", "huge = true\n[guests").replace("equal", "mixed");
    let huge = huge.split("[[timeline]]\nat = 20").next().unwrap();
    // Of four huge pages in six a quarter is equal and a quarter empty.
    let played = |text: &str, pages| {
        let story = loaded(text, StoryOverrides { pages, ..StoryOverrides::default() }).unwrap();
        let policy = competitors(&["profit"]);
        let simulation = Simulation {
            stories: vec![story],
            form: ScenarioForm::Short,
            competitors: policy,
            balances: Vec::new(),
            host: SimulatedHost::default(),
        };
        simulation.play().unwrap().scenarios.remove(0)
    };
    let results = played(huge, None);
    assert!(results.headline().ends_with(" on huge pages"), "{}", results.headline());
    let run = &results.competitors[0].runs[0];
    let truth = &run.series.truth;
    let most = truth.iter().max_by_key(|point| point.truly_saved_bytes).unwrap();
    assert!(most.truly_saved_bytes >= most.counted_bytes + (3 << 20) && most.huge_bytes < 24 << 20, "{most:?}");
    // khugepaged would put so little memory together again within a minute, at its usual pace. The simulated daemon holds it.
    let falls = |pair: &[TruthPoint]| pair[1].truly_saved_bytes < pair[0].truly_saved_bytes;
    assert!(!truth.windows(2).any(falls), "{truth:?}");
    // Its figures are those of what is really saved.
    assert_eq!(run.series.points.last().unwrap().saved_bytes, truth.last().unwrap().truly_saved_bytes);
    let (saved, counted) = (results.competitors[0].median("gib_seconds"), run.measures.counted_gib_seconds);
    assert!(saved > counted && counted > Some(0.0), "{saved:?} {counted:?}");
    for small in [played(TWINS, None), played(huge, Some(GuestPages::Small))] {
        assert!(small.headline().ends_with(" on 4 KiB pages"), "{}", small.headline());
        assert_eq!(small.competitors[0].runs[0].series.truth, [], "the counters tell the truth of small pages");
    }
}
