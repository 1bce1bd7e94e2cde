//! The results of an experiment, which are the content of `results.json`. `docs/internals/lab.md` describes the keys.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::competitor::{Competitor, NO_KSM, REFERENCE};
use super::measure::{
    AttainableStep, BALANCE_FIGURES, COUNTED_FIGURES, FIGURES, HELD_FIGURE, RunCounts, RunMeasures, RunSeries,
    Spread,
};
use super::scenario::{GuestAction, Scenario, ScenarioForm};
use crate::GuestPages;

/// The raw observations of one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct RawRun {
    pub(super) series: RunSeries,
    pub(super) counted: RunCounts,
}

/// The results of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LabResults {
    /// Version of ksmith.
    pub ksmith: &'static str,
    /// The host that was measured.
    pub host: MeasuredHost,
    /// Form of the scenarios: `short` or `long`.
    pub form: &'static str,
    /// Number of runs of each scenario under each competitor.
    pub repeat: u32,
    /// Results of the scenarios, in the order in which they were played.
    pub scenarios: Vec<ScenarioResults>,
}

/// The host that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredHost {
    /// Release of the kernel.
    pub kernel: String,
    /// Number of online CPUs.
    pub cpus: usize,
}

impl MeasuredHost {
    /// Returns this host.
    pub fn current() -> Self {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        Self { kernel, cpus: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

/// The results of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ScenarioResults {
    /// Name on the command line.
    pub name: String,
    /// Description from the scenario file.
    pub about: String,
    /// Pages that the guests' memory is on: `huge` or `small`. `null` if the guests differ or choose for themselves.
    #[schemars(with = "Option<String>")]
    pub pages: Option<GuestPages>,
    /// Duration of a run in seconds.
    pub seconds: f64,
    /// True if the attainable savings are known from the guests' contents. Otherwise they are the most that the
    /// reference saved, or, without the reference, the most that any competitor saved.
    pub is_attainable_known: bool,
    /// The most bytes that can be saved at any time.
    pub attainable_bytes: u64,
    /// Results of the competitors, in the order of the command line.
    pub competitors: Vec<CompetitorResults>,
}

/// The results of one competitor in one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CompetitorResults {
    /// Name on the command line.
    pub name: String,
    /// Median and extremes of each figure over all runs.
    pub summary: BTreeMap<&'static str, Spread>,
    /// `gib_seconds / gib_seconds of the reference`, both medians. `null` without a reference.
    pub share_of_reference: Option<f64>,
    /// `ksmd_cpu_seconds / ksmd_cpu_seconds of the reference`, both medians.
    pub cpu_of_reference: Option<f64>,
    /// Median of the seconds until nine tenths of what the reference saves at the end were saved, from the last guest's start in
    /// the first rise. `null` without a reference, or if the most of the runs did not reach it.
    pub seconds_to_90_of_reference: Option<f64>,
    /// `work_pages / work_pages without KSM`, both medians. `null` without such a run or without work.
    pub work_ratio: Option<f64>,
    /// `rewrite_seconds / rewrite_seconds without KSM`, both medians.
    pub rewrite_ratio: Option<f64>,
    /// Results of each run.
    pub runs: Vec<RunResults>,
}

/// The results of one run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RunResults {
    /// The figures of the run.
    #[serde(flatten)]
    pub measures: RunMeasures,
    /// The run over time.
    pub series: RunSeries,
}

impl LabResults {
    pub(super) fn from_scenarios(form: ScenarioForm, repeat: u32, scenarios: Vec<ScenarioResults>) -> Self {
        let host = MeasuredHost::current();
        Self { ksmith: env!("CARGO_PKG_VERSION"), host, form: form.name(), repeat, scenarios }
    }
}

impl ScenarioResults {
    /// Summarises the runs of each competitor.
    pub(super) fn from_runs(scenario: &Scenario, competitors: &[Competitor], mut runs: Vec<Vec<RawRun>>) -> Self {
        let names: Vec<&str> = competitors.iter().map(|competitor| competitor.name.as_str()).collect();
        let is_attainable_known = scenario.instances.iter().all(|instance| instance.kind.contents().is_some());
        if !is_attainable_known {
            assume_attainable(scenario, competitors, &mut runs);
        }
        let pages = scenario.pages();
        Self {
            pages,
            ..Self::summary(&scenario.name, &scenario.about, scenario.duration, is_attainable_known, &names, runs)
        }
    }

    /// The first line of its results: the name, and the memory that the figures are for.
    pub fn headline(&self) -> String {
        match self.pages {
            Some(pages) => format!("{} on {}", self.name, pages.in_words()),
            None => format!("{} on pages of the guests' choice", self.name),
        }
    }

    /// Summarises the runs of each competitor in the story of that name, without the guests' pages.
    pub(super) fn summary(
        name: &str,
        about: &str,
        duration: Duration,
        is_attainable_known: bool,
        names: &[&str],
        runs: Vec<Vec<RawRun>>,
    ) -> Self {
        let mut results: Vec<CompetitorResults> =
            names.iter().zip(runs).map(|(name, runs)| CompetitorResults::from_runs(name, runs)).collect();
        let median = |results: &[CompetitorResults], name: &str, key: &str| {
            results.iter().find(|result| result.name == name).and_then(|result| result.median(key))
        };
        let reference = |key| median(&results, REFERENCE, key);
        let without_ksm = |key| median(&results, NO_KSM, key);
        let (gib, cpu) = (reference("gib_seconds"), reference("ksmd_cpu_seconds"));
        let (work, rewrite) = (without_ksm("work_pages"), without_ksm("rewrite_seconds"));
        let saved = reference("saved_bytes").filter(|saved| *saved > 0.0);
        for result in &mut results {
            result.seconds_to_90_of_reference = saved.and_then(|saved| result.seconds_to_save(0.9 * saved));
            result.share_of_reference = ratio(result.median("gib_seconds"), gib);
            result.cpu_of_reference = ratio(result.median("ksmd_cpu_seconds"), cpu);
            result.work_ratio = ratio(result.median("work_pages"), work);
            result.rewrite_ratio = ratio(result.median("rewrite_seconds"), rewrite);
        }
        let all = results.iter().flat_map(|result| &result.runs);
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            pages: None,
            seconds: duration.as_secs_f64(),
            is_attainable_known,
            attainable_bytes: all.map(|run| run.measures.attainable_bytes).max().unwrap_or(0),
            competitors: results,
        }
    }
}

/// Takes the peak of the saved bytes as attainable from the first start on, for guests with unknown contents.
fn assume_attainable(scenario: &Scenario, competitors: &[Competitor], runs: &mut [Vec<RawRun>]) {
    let peak = |runs: &[RawRun]| {
        runs.iter().flat_map(|run| &run.series.points).map(|point| point.saved_bytes).max().unwrap_or(0)
    };
    let reference = competitors.iter().position(|competitor| competitor.name == REFERENCE);
    let bytes = match reference.and_then(|place| runs.get(place)) {
        Some(runs) => peak(runs),
        None => runs.iter().map(|runs| peak(runs)).max().unwrap_or(0),
    };
    let starts = scenario.actions.iter().find(|action| matches!(action.deed, GuestAction::Start(_)));
    let at = starts.map_or(0.0, |action| action.at.as_secs_f64());
    for run in runs.iter_mut().flatten() {
        run.series.attainable = vec![AttainableStep { at, bytes }];
    }
}

fn ratio(value: Option<f64>, of: Option<f64>) -> Option<f64> {
    of.filter(|of| *of > 0.0).zip(value).map(|(of, value)| value / of)
}

impl CompetitorResults {
    fn from_runs(name: &str, runs: Vec<RawRun>) -> Self {
        let runs: Vec<RunResults> = runs
            .into_iter()
            .map(|run| RunResults {
                measures: RunMeasures::from_series(&run.series, &run.counted),
                series: run.series,
            })
            .collect();
        let spread =
            |of: fn(&RunMeasures) -> Option<f64>| Spread::from_values(runs.iter().map(|run| of(&run.measures)));
        let is_balanced = runs.iter().any(|run| run.measures.balance.is_some());
        let of_balance = BALANCE_FIGURES.iter().filter(|_| is_balanced);
        let is_counted_apart = runs.iter().any(|run| run.measures.counted_bytes.is_some());
        let of_counters = COUNTED_FIGURES.iter().filter(|_| is_counted_apart);
        let is_held = runs.iter().any(|run| run.measures.held_bytes.is_some());
        let of_guests = [&HELD_FIGURE].into_iter().filter(|_| is_held);
        let summary = FIGURES
            .iter()
            .chain(of_counters)
            .chain(of_guests)
            .chain(of_balance)
            .map(|figure| (figure.key, spread(figure.of)))
            .collect();
        Self {
            name: name.to_owned(),
            summary,
            share_of_reference: None,
            cpu_of_reference: None,
            seconds_to_90_of_reference: None,
            work_ratio: None,
            rewrite_ratio: None,
            runs,
        }
    }

    /// Returns true if its guests were balanced, or have memory that comes and goes.
    pub fn has_balance(&self) -> bool {
        self.summary.contains_key(BALANCE_FIGURES[0].key)
    }

    /// Returns true if KSM's counters are apart from what is really saved: guests are on huge pages.
    pub fn is_counted_apart(&self) -> bool {
        self.summary.contains_key(COUNTED_FIGURES[0].key)
    }

    /// Median of the seconds until the first rise has saved `bytes`. `None` if half of the runs never do.
    fn seconds_to_save(&self, bytes: f64) -> Option<f64> {
        Spread::from_values(self.runs.iter().map(|run| {
            let begin = run.measures.rises.first()?.at;
            let reached = run.series.points.iter().find(|point| point.saved_bytes as f64 >= bytes)?;
            Some((reached.at - begin).max(0.0))
        }))
        .median
    }

    /// Median of a figure over the runs.
    pub fn median(&self, key: &str) -> Option<f64> {
        self.summary.get(key).and_then(|spread| spread.median)
    }

    /// The run with the median of the GiB-seconds, which is drawn for all runs.
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
    use crate::measure::SeriesPoint;

    const TEXT: &str = "about = \"x < y\"\nlong = { seconds = 10 }\nshort = { seconds = 10 }\n\
        guests.a.parts = [{ kind = \"zero\", size = \"1 MiB\" }]\nguests.b.command = [\"true\"]\n\
        timeline = [{ at = 2, start = \"KIND\" }]";

    fn run(gib: u64, cpu: f64, work_pages: u64) -> RawRun {
        let point = |at: f64, saved_bytes, ksmd_cpu_seconds| SeriesPoint {
            at,
            saved_bytes,
            ksmd_cpu_seconds,
            ..SeriesPoint::default()
        };
        let series = RunSeries {
            points: vec![point(0.0, 0, 0.0), point(5.0, gib << 30, cpu / 2.0), point(10.0, gib << 30, cpu)],
            attainable: vec![AttainableStep { at: 1.0, bytes: 2 << 30 }],
            truth: Vec::new(),
            is_restless: false,
        };
        RawRun { series, counted: RunCounts { work_pages, ..RunCounts::default() } }
    }

    fn scenario(kind: &str) -> Scenario {
        Scenario::parse(Path::new("toy.toml"), &TEXT.replace("KIND", kind), ScenarioForm::Short).unwrap()
    }

    fn competitors() -> Vec<Competitor> {
        ["profit", REFERENCE, NO_KSM].map(|name| Competitor::parse(name).unwrap()).to_vec()
    }

    /// Made-up results of two repeats of three competitors.
    pub(crate) fn made_up() -> LabResults {
        let runs = vec![
            vec![run(2, 1.0, 98), run(2, 3.0, 100)],
            vec![run(2, 8.0, 90), run(2, 8.0, 90)],
            vec![run(0, 0.0, 100), run(0, 0.0, 100)],
        ];
        LabResults::from_scenarios(
            ScenarioForm::Short,
            2,
            vec![ScenarioResults::from_runs(&scenario("a"), &competitors(), runs)],
        )
    }

    #[test]
    fn ratios_are_of_medians() {
        let results = made_up();
        let [profit, reference, none] = &results.scenarios[0].competitors[..] else { panic!() };
        assert_eq!(
            profit.summary["ksmd_cpu_seconds"],
            Spread { median: Some(2.0), min: Some(1.0), max: Some(3.0) }
        );
        assert_eq!((profit.share_of_reference, profit.cpu_of_reference), (Some(1.0), Some(0.25)));
        assert_eq!((profit.work_ratio, reference.work_ratio, none.work_ratio), (Some(0.99), Some(0.9), Some(1.0)));
        assert_eq!(none.share_of_reference, Some(0.0));
        assert_eq!(none.rewrite_ratio, None, "nothing was rewritten");
        assert_eq!(none.median("seconds_to_90"), None);
        let times = [profit, reference, none].map(|competitor| competitor.seconds_to_90_of_reference);
        assert_eq!(times, [Some(4.0), Some(4.0), None], "from the guests' start at 1 s to the sample at 5 s");
    }

    #[test]
    fn the_headline_names_the_memory() {
        let results = made_up();
        assert_eq!(results.scenarios[0].headline(), "toy on 4 KiB pages");
        let mut huge = scenario("a");
        huge.set_pages(GuestPages::Huge);
        let headline = |scenario: &Scenario| ScenarioResults::from_runs(scenario, &[], Vec::new()).headline();
        assert_eq!(headline(&huge), "toy on huge pages");
        assert_eq!(headline(&scenario("b")), "toy on pages of the guests' choice");
    }

    #[test]
    fn without_reference_and_a_run_without_ksm_there_are_no_ratios() {
        let results = ScenarioResults::from_runs(&scenario("a"), &competitors()[..1], vec![vec![run(1, 1.0, 1)]]);
        let profit = &results.competitors[0];
        assert_eq!((profit.share_of_reference, profit.work_ratio), (None, None));
        assert!(results.is_attainable_known);
    }

    #[test]
    fn unknown_contents_are_judged_by_what_the_reference_saved() {
        let runs = vec![vec![run(3, 1.0, 0)], vec![run(1, 8.0, 0)], vec![run(0, 0.0, 0)]];
        let results = ScenarioResults::from_runs(&scenario("b"), &competitors(), runs.clone());
        assert!(!results.is_attainable_known);
        assert_eq!(results.attainable_bytes, 1 << 30);
        assert_eq!(results.competitors[0].runs[0].series.attainable, [AttainableStep { at: 2.0, bytes: 1 << 30 }]);
        let alone = ScenarioResults::from_runs(&scenario("b"), &competitors()[..1], runs);
        assert_eq!(alone.attainable_bytes, 3 << 30);
    }

    #[test]
    fn the_keys_are_those_of_the_documentation() {
        let docs = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/internals/lab.md"))
            .unwrap();
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
