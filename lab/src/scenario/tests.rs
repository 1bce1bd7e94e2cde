use super::*;
use crate::{GuestContents, GuestPages, MemoryPart};
use ksmith_core::sim::KhugepagedPace;

const GOOD: &str = r#"
about = "Two clones, one of which leaves"
long = { seconds = 300 }
short = { seconds = 30, memory = 0.5 }
limits = { max_cpu = "20%" }

[guests.clone]
parts = [
  { kind = "equal", size = "8 MiB", seed = 1 },
  { kind = "churn", size = "64 KiB", every_ms = 20 },
  { kind = "work", size = "32 KiB" },
]

[[timeline]]
at = 10
start = "clone"
times = 2
every = 20

[[timeline]]
at = 100
rewrite = "clone"
part = 0

[[timeline]]
at = 200
stop = "clone-1"

[[timeline]]
at = 210
work = "clone"
percent = 30
"#;

fn parse(text: &str, form: ScenarioForm) -> Result<Scenario, String> {
    Scenario::parse(Path::new("dir/two.toml"), text, form).map_err(|error| error.to_string())
}

#[test]
fn a_scenario_means_what_it_says() {
    let scenario = parse(GOOD, ScenarioForm::Long).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.duration), ("two", Duration::from_secs(300)));
    assert_eq!(scenario.limits.max_cpu.part(), 0.2);
    let parts = vec![
        MemoryPart::Equal { seed: 1, pages: 2048 },
        MemoryPart::Churn { pages: 16, every: Duration::from_millis(20) },
        MemoryPart::Work { pages: 8, percent: 0 },
    ];
    let names: Vec<_> = scenario.instances.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["clone-1", "clone-2"]);
    assert_eq!(scenario.instances[0].kind, LabGuestKind::Memory(GuestContents(parts)));
    let deeds: Vec<_> = scenario.actions.iter().map(|a| (a.at.as_secs(), a.deed.clone())).collect();
    let expected = [
        (10, GuestAction::Start(0)),
        (30, GuestAction::Start(1)),
        (100, GuestAction::Rewrite { guest: 0, part: 0 }),
        (100, GuestAction::Rewrite { guest: 1, part: 0 }),
        (200, GuestAction::Stop(0)),
        (210, GuestAction::Work { guest: 1, percent: 30 }),
    ];
    assert_eq!(deeds, expected);
    assert_eq!(scenario.peak_bytes(), 2 * 2072 * 4096);
}

#[test]
fn the_short_form_shrinks_time_and_memory() {
    let short = parse(GOOD, ScenarioForm::Short).unwrap();
    assert_eq!(short.duration, Duration::from_secs(30));
    assert_eq!(short.actions[1].at, Duration::from_secs(3));
    assert_eq!(short.instances[0].kind.contents().unwrap().0[0], MemoryPart::Equal { seed: 1, pages: 1024 });
}

#[test]
fn a_lifetime_ends_a_guest_unless_it_ends_later_than_the_scenario() {
    let text =
        GOOD.replace("every = 20\n", "every = 20\nlifetime = 275\n").replace("at = 200\nstop", "at = 250\nstop");
    let scenario = parse(&text, ScenarioForm::Long).unwrap();
    let stops: Vec<_> = scenario.actions.iter().filter(|a| matches!(a.deed, GuestAction::Stop(_))).collect();
    // The first guest is stopped before its lifetime ends; the second would end after the scenario.
    assert_eq!(stops.len(), 1, "{stops:?}");
    assert_eq!(stops[0].at, Duration::from_secs(250));
}

#[test]
fn every_mistake_is_refused_with_its_place() {
    for (from, to, place, why) in [
        ("about = ", "abot = ", "line 2, column 1", "unknown field `abot`"),
        ("memory = 0.5", "memroy = 0.5", "line 4", "unknown field `memroy`"),
        ("seed = 1", "sed = 1", "line 9", "unknown field `sed`"),
        ("8 MiB", "8 MB", "line 9, column 28", "not a size"),
        (", seed = 1", "", "line 7, column 1", "equal and mixed a seed"),
        ("every_ms = 20", "every_ms = 0", "line 7, column 1", "over 0"),
        ("seconds = 300", "seconds = 0", "line 1, column 1", "over 0"),
        ("at = 10", "at = 299", "line 14, column 1", "after the end"),
        ("times = 2", "times = 0", "line 14, column 1", "times goes from 1"),
        ("start = \"clone\"", "start = \"klon\"", "line 14, column 1", "no guest \"klon\""),
        ("part = 0", "part = 1", "line 20, column 1", "no part 1"),
        ("part = 0", "", "line 20, column 1", "take a part"),
        ("rewrite = \"clone\"", "rewrite = \"clone\"\nstop = \"clone\"", "line 20, column 1", "exactly one of"),
        ("stop = \"clone-1\"", "stop = \"clone-3\"", "line 25, column 1", "no guest \"clone-3\" at 200 s"),
        ("at = 210", "at = 1", "line 29, column 1", "no guest \"clone\" at 1 s"),
        ("percent = 30", "percent = 130", "line 29, column 1", "at most 100"),
        ("max_cpu = \"20%\"", "max_cpu = 20", "line 5", "max_cpu"),
        ("[guests.clone]\n", "[guests.clone]\ncommand = [\"x\"]\n", "line 7, column 1", "exactly one of parts"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = parse(&GOOD.replacen(from, to, 1), ScenarioForm::Long).unwrap_err();
        assert!(error.starts_with("dir/two.toml: "), "{error}");
        assert!(error.contains(place) && error.contains(why), "{to:?} gave {error}");
    }
}

#[test]
fn a_name_is_looked_for_and_the_known_ones_are_listed() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("two.toml"), GOOD).unwrap();
    let places = [tree.path().join("none"), tree.path().to_owned()];
    assert_eq!(find("two", &places).unwrap(), tree.path().join("two.toml"));
    assert_eq!(find("my/own.toml", &places).unwrap(), Path::new("my/own.toml"));
    assert_eq!(find("three", &places).unwrap_err().to_string(), "there is no scenario \"three\"; there are: two");
}

#[test]
fn the_examples_of_large_hosts_can_be_played() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/lab");
    for (name, peak_mib) in [("large", 14 << 10), ("burst-huge", 5 * 900)] {
        let scenario = Scenario::load(&examples.join(name).with_extension("toml"), ScenarioForm::Short).unwrap();
        assert_eq!(scenario.peak_bytes(), peak_mib << 20, "{name}");
    }
    let releases = Scenario::load(&examples.join("debian.toml"), ScenarioForm::Short).unwrap();
    assert_eq!(releases.instances.len(), 6);
}

#[test]
fn every_shipped_scenario_can_be_played_in_both_forms() {
    let places = [Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")];
    let all = list(&places);
    let names: Vec<_> = all.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
    let shipped = [
        "build",
        "burst",
        "capped",
        "churn",
        "clones",
        "diverge",
        "huge",
        "idle",
        "khugepaged",
        "qemu",
        "ranks",
        "trickle",
        "zeros",
    ];
    assert_eq!(names, shipped);
    for path in all {
        let short = Scenario::load(&path, ScenarioForm::Short).unwrap();
        let long = Scenario::load(&path, ScenarioForm::Long).unwrap();
        assert!((30..=90).contains(&short.duration.as_secs()), "{}", short.name);
        assert!((240..=360).contains(&long.duration.as_secs()), "{}", long.name);
        // The memory of a small host.
        assert!(short.peak_bytes() <= 4 << 30 && long.peak_bytes() <= 8 << 30, "{}", long.name);
    }
}

#[test]
fn the_example_of_the_documentation_can_be_played() {
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/internals/lab.md")).unwrap();
    let blocks: Vec<&str> = docs.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert_eq!(blocks.len(), 2);
    let scenario = parse(&blocks.concat(), ScenarioForm::Short).unwrap();
    assert_eq!(scenario.instances.len(), 4);
    assert_eq!(scenario.limits.max_cpu.part(), 0.2);
}

#[test]
fn guests_are_on_huge_pages_and_khugepaged_is_set_where_the_file_says_so() {
    let text = GOOD.replace("[guests.clone]", "[guests.clone]\nhuge = true");
    let hurried = "\n[[timeline]]\nat = 250\nkhugepaged = { pages_to_scan = 512 }\n";
    let scenario = parse(&format!("{text}{hurried}"), ScenarioForm::Short).unwrap();
    assert!(scenario.is_judged_by_page_tables() && scenario.pages() == Some(GuestPages::Huge));
    let small = parse(GOOD, ScenarioForm::Short).unwrap();
    assert!(!small.is_judged_by_page_tables() && small.pages() == Some(GuestPages::Small));
    let last = scenario.actions.last().unwrap();
    let settings = KhugepagedPace { pages_to_scan: 512, ..KhugepagedPace::default() };
    assert_eq!((last.at, &last.deed), (Duration::from_secs(25), &GuestAction::Khugepaged(settings)));
    for (wrong, why) in [
        ("{ pages_to_scan = 0 }", "pages_to_scan is over 0"),
        ("{ max_ptes_none = 511 }", "unknown field"),
        ("{ }\npercent = 3", "khugepaged takes at, times and every"),
    ] {
        let text = format!("{GOOD}\n[[timeline]]\nat = 1\nkhugepaged = {wrong}\n");
        let refused = parse(&text, ScenarioForm::Short).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_guest_goes_before_its_scenario_and_the_caller_before_both() {
    let other = "\n[guests.other]\nhuge = false\nparts = [{ kind = \"unique\", size = \"4 MiB\" }]\n[[timeline]]\nat = 1\nstart = \"other\"\n";
    let mut scenario = parse(&format!("huge = true{GOOD}{other}"), ScenarioForm::Long).unwrap();
    let pages = |scenario: &Scenario| -> Vec<_> {
        scenario.instances.iter().map(|instance| instance.kind.pages().unwrap()).collect()
    };
    let (small, huge) = (GuestPages::Small, GuestPages::Huge);
    assert_eq!((pages(&scenario), scenario.pages()), (vec![huge, huge, small], None));
    assert!(scenario.is_judged_by_page_tables());
    for all in [small, huge] {
        scenario.set_pages(all);
        assert_eq!((pages(&scenario), scenario.pages()), (vec![all; 3], Some(all)));
    }
    let program = "\n[guests.program]\ncommand = [\"true\"]\n[[timeline]]\nat = 1\nstart = \"program\"\n";
    let unknown = parse(&format!("huge = true{GOOD}{program}"), ScenarioForm::Long).unwrap();
    assert!(unknown.pages().is_none() && !unknown.is_judged_by_page_tables());
    let refused =
        parse(&format!("{GOOD}{}", program.replace("command", "huge = true\ncommand")), ScenarioForm::Long);
    assert!(refused.unwrap_err().contains("huge goes with parts"));
}
