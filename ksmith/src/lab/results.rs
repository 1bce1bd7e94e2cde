//! What an experiment showed: the content of `results.json`. `docs/lab.md` describes the keys.

use std::collections::BTreeMap;

use serde::Serialize;

use super::competitor::{Competitor, NOBODY, REFERENCE};
use super::measure::{Counted, FIGURES, Measures, Series, Spread, Step};
use super::scenario::{Deed, Form, Scenario};

/// One run as it was seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct RawRun {
    pub(super) series: Series,
    pub(super) counted: Counted,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// The version of ksmith.
    pub ksmith: &'static str,
    /// Where it was measured.
    pub host: Host,
    /// `short` or `long`.
    pub form: &'static str,
    /// Runs of each scenario under each competitor.
    pub repeat: u32,
    /// In the order in which they were played.
    pub scenarios: Vec<ScenarioResults>,
}

/// Where it was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Host {
    /// The kernel's release.
    pub kernel: String,
    /// CPUs online.
    pub cpus: usize,
}

/// What one scenario showed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioResults {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// Seconds of a run.
    pub seconds: f64,
    /// Whether what can be saved is known from the guests' contents. Otherwise it is what was saved at most: by the
    /// reference, or by anybody where that did not take part.
    pub is_attainable_known: bool,
    /// The most that can be saved at any time.
    pub attainable_bytes: u64,
    /// In the order of the command line.
    pub competitors: Vec<CompetitorResults>,
}

/// What one competitor did with a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompetitorResults {
    /// Its name.
    pub name: String,
    /// Each figure over all runs.
    pub summary: BTreeMap<&'static str, Spread>,
    /// GiB-seconds divided by those of the reference, medians of both. `None` without a reference.
    pub share_of_reference: Option<f64>,
    /// ksmd's CPU divided by the reference's.
    pub cpu_of_reference: Option<f64>,
    /// Work of the guests divided by their work without KSM. `None` without such a run or without work.
    pub work_ratio: Option<f64>,
    /// Time of the guests for rewriting, divided by that without KSM.
    pub rewrite_ratio: Option<f64>,
    /// Each run.
    pub runs: Vec<RunResults>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunResults {
    /// What it amounts to.
    #[serde(flatten)]
    pub measures: Measures,
    /// Its lines over time.
    pub series: Series,
}

impl Results {
    pub(super) fn of(form: Form, repeat: u32, scenarios: Vec<ScenarioResults>) -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let host = Host { kernel: release, cpus };
        Self { ksmith: env!("CARGO_PKG_VERSION"), host, form: form.name(), repeat, scenarios }
    }
}

impl ScenarioResults {
    /// Brings the runs of each competitor together.
    pub(super) fn of(scenario: &Scenario, competitors: &[Competitor], mut runs: Vec<Vec<RawRun>>) -> Self {
        let is_attainable_known = scenario.instances.iter().all(|instance| instance.kind.contents().is_some());
        if !is_attainable_known {
            assume_attainable(scenario, competitors, &mut runs);
        }
        let mut results: Vec<CompetitorResults> = competitors
            .iter()
            .zip(runs)
            .map(|(competitor, runs)| CompetitorResults::of(&competitor.name, runs))
            .collect();
        let median = |results: &[CompetitorResults], name: &str, key: &str| {
            results.iter().find(|result| result.name == name).and_then(|result| result.median(key))
        };
        let reference = |key| median(&results, REFERENCE, key);
        let nobody = |key| median(&results, NOBODY, key);
        let (gib, cpu) = (reference("gib_seconds"), reference("ksmd_cpu_seconds"));
        let (work, rewrite) = (nobody("work_pages"), nobody("rewrite_seconds"));
        for result in &mut results {
            result.share_of_reference = ratio(result.median("gib_seconds"), gib);
            result.cpu_of_reference = ratio(result.median("ksmd_cpu_seconds"), cpu);
            result.work_ratio = ratio(result.median("work_pages"), work);
            result.rewrite_ratio = ratio(result.median("rewrite_seconds"), rewrite);
        }
        let all = results.iter().flat_map(|result| &result.runs);
        Self {
            name: scenario.name.clone(),
            about: scenario.about.clone(),
            seconds: scenario.duration.as_secs_f64(),
            is_attainable_known,
            attainable_bytes: all.map(|run| run.measures.attainable_bytes).max().unwrap_or(0),
            competitors: results,
        }
    }
}

/// Where nobody knows what the guests hold, the most that was saved counts as what can be saved, from the first start on.
fn assume_attainable(scenario: &Scenario, competitors: &[Competitor], runs: &mut [Vec<RawRun>]) {
    let peak = |runs: &[RawRun]| {
        runs.iter().flat_map(|run| &run.series.points).map(|point| point.saved_bytes).max().unwrap_or(0)
    };
    let reference = competitors.iter().position(|competitor| competitor.name == REFERENCE);
    let bytes = match reference.and_then(|place| runs.get(place)) {
        Some(runs) => peak(runs),
        None => runs.iter().map(|runs| peak(runs)).max().unwrap_or(0),
    };
    let starts = scenario.actions.iter().find(|action| matches!(action.deed, Deed::Start(_)));
    let at = starts.map_or(0.0, |action| action.at.as_secs_f64());
    for run in runs.iter_mut().flatten() {
        run.series.attainable = vec![Step { at, bytes }];
    }
}

fn ratio(value: Option<f64>, of: Option<f64>) -> Option<f64> {
    of.filter(|of| *of > 0.0).zip(value).map(|(of, value)| value / of)
}

impl CompetitorResults {
    fn of(name: &str, runs: Vec<RawRun>) -> Self {
        let runs: Vec<RunResults> = runs
            .into_iter()
            .map(|run| RunResults { measures: Measures::of(&run.series, &run.counted), series: run.series })
            .collect();
        let spread = |of: fn(&Measures) -> Option<f64>| Spread::of(runs.iter().map(|run| of(&run.measures)));
        let summary = FIGURES.iter().map(|figure| (figure.key, spread(figure.of))).collect();
        Self {
            name: name.to_owned(),
            summary,
            share_of_reference: None,
            cpu_of_reference: None,
            work_ratio: None,
            rewrite_ratio: None,
            runs,
        }
    }

    /// The median of a figure.
    pub fn median(&self, key: &str) -> Option<f64> {
        self.summary.get(key).and_then(|spread| spread.median)
    }

    /// The run whose GiB-seconds are in the middle, to be shown for all.
    pub fn middle_run(&self) -> Option<&RunResults> {
        let mut runs: Vec<&RunResults> = self.runs.iter().collect();
        runs.sort_by(|a, b| a.measures.gib_seconds.total_cmp(&b.measures.gib_seconds));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::lab::measure::Point;

    const TEXT: &str = "about = \"x < y\"\nlong = { seconds = 10 }\nshort = { seconds = 10 }\n\
        guests.a.parts = [{ kind = \"zero\", size = \"1 MiB\" }]\nguests.b.command = [\"true\"]\n\
        timeline = [{ at = 2, start = \"KIND\" }]";

    fn run(gib: u64, cpu: f64, work_pages: u64) -> RawRun {
        let point = |at: f64, saved_bytes, ksmd_cpu_seconds| Point {
            at,
            saved_bytes,
            ksmd_cpu_seconds,
            ..Point::default()
        };
        let series = Series {
            points: vec![point(0.0, 0, 0.0), point(5.0, gib << 30, cpu / 2.0), point(10.0, gib << 30, cpu)],
            attainable: vec![Step { at: 1.0, bytes: 2 << 30 }],
        };
        RawRun { series, counted: Counted { work_pages, ..Counted::default() } }
    }

    fn scenario(kind: &str) -> Scenario {
        Scenario::parse(Path::new("toy.toml"), &TEXT.replace("KIND", kind), Form::Short).unwrap()
    }

    fn competitors() -> Vec<Competitor> {
        ["profit", REFERENCE, NOBODY].map(|name| Competitor::parse(name).unwrap()).to_vec()
    }

    /// Made up: two repeats of three competitors.
    pub(in crate::lab) fn made_up() -> Results {
        let runs = vec![
            vec![run(2, 1.0, 98), run(2, 3.0, 100)],
            vec![run(2, 8.0, 90), run(2, 8.0, 90)],
            vec![run(0, 0.0, 100), run(0, 0.0, 100)],
        ];
        Results::of(Form::Short, 2, vec![ScenarioResults::of(&scenario("a"), &competitors(), runs)])
    }

    #[test]
    fn ratios_are_of_medians() {
        let results = made_up();
        let [profit, reference, nobody] = &results.scenarios[0].competitors[..] else { panic!() };
        assert_eq!(
            profit.summary["ksmd_cpu_seconds"],
            Spread { median: Some(2.0), min: Some(1.0), max: Some(3.0) }
        );
        assert_eq!((profit.share_of_reference, profit.cpu_of_reference), (Some(1.0), Some(0.25)));
        assert_eq!(
            (profit.work_ratio, reference.work_ratio, nobody.work_ratio),
            (Some(0.99), Some(0.9), Some(1.0))
        );
        assert_eq!(nobody.share_of_reference, Some(0.0));
        assert_eq!(nobody.rewrite_ratio, None, "nothing was rewritten");
        assert_eq!(nobody.median("seconds_to_90"), None);
    }

    #[test]
    fn without_reference_and_nobody_there_are_no_ratios() {
        let results = ScenarioResults::of(&scenario("a"), &competitors()[..1], vec![vec![run(1, 1.0, 1)]]);
        let profit = &results.competitors[0];
        assert_eq!((profit.share_of_reference, profit.work_ratio), (None, None));
        assert!(results.is_attainable_known);
    }

    #[test]
    fn what_nobody_knows_is_what_the_reference_saved() {
        let runs = vec![vec![run(3, 1.0, 0)], vec![run(1, 8.0, 0)], vec![run(0, 0.0, 0)]];
        let results = ScenarioResults::of(&scenario("b"), &competitors(), runs.clone());
        assert!(!results.is_attainable_known);
        assert_eq!(results.attainable_bytes, 1 << 30);
        assert_eq!(results.competitors[0].runs[0].series.attainable, [Step { at: 2.0, bytes: 1 << 30 }]);
        let alone = ScenarioResults::of(&scenario("b"), &competitors()[..1], runs);
        assert_eq!(alone.attainable_bytes, 3 << 30);
    }

    #[test]
    fn the_keys_are_those_of_the_documentation() {
        let docs = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/lab.md")).unwrap();
        fn keys(value: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
            match value {
                serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| {
                    found.insert(key.clone());
                    keys(value, found);
                }),
                serde_json::Value::Array(all) => all.iter().for_each(|value| keys(value, found)),
                _ => {}
            }
        }
        let mut found = std::collections::BTreeSet::new();
        keys(&serde_json::to_value(made_up()).unwrap(), &mut found);
        assert!(found.len() > 40, "{found:?}");
        let missing: Vec<_> = found.iter().filter(|key| !docs.contains(&format!("`{key}`"))).collect();
        assert_eq!(missing, Vec::<&String>::new());
    }
}
