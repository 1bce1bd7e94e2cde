//! Live runs of the lab's scenarios against the same runs simulated: what was recorded, and how far the two are apart.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One run over time, live or simulated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Complete passes of ksmd.
    pub passes: u64,
    /// For each sample: seconds, saved bytes, and ksmd's CPU time in seconds.
    pub points: Vec<(f64, u64, f64)>,
}

/// A recorded live run with what is needed to simulate it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Name of the scenario in `scenarios/`.
    pub scenario: String,
    /// The competitor, as `ksmith lab` names it.
    pub policy: String,
    /// The time that the scenario's short form was given.
    pub seconds: f64,
    /// Release of the kernel.
    pub kernel: String,
    /// Costs of the host's ksmd at that time, as in a file for `ksmith sim --costs`.
    pub costs: toml::Table,
    /// CPU time that ksmd had used since boot when the run began, in milliseconds: the kernel's advisor counts it.
    pub ksmd_before_ms: u64,
    /// The run.
    #[serde(flatten)]
    pub run: Run,
}

/// How far a simulated run is from the live one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The greatest difference of saved memory over all samples, as a part of what the live run saved in the end (or at most, where
    /// it saved nothing in the end; or the simulated one at most, where it never did).
    pub saved: f64,
    /// The moment of that difference, in seconds.
    pub at: f64,
    /// The mean difference of saved memory over the run, in the same measure. It has a sign: above 0 the simulated one saved more.
    pub mean: f64,
    /// ksmd's CPU time, simulated and live, in seconds.
    pub cpu: [f64; 2],
    /// Passes, simulated and live.
    pub passes: [u64; 2],
}

/// ksmd's CPU time in seconds that is next to nothing: the ratio of two such figures means nothing.
const LITTLE_CPU: f64 = 0.05;

impl Run {
    /// The runs of a competitor in what `ksmith lab run --json` and `ksmith sim --json` print.
    pub fn all_of(results: &Value) -> Vec<Self> {
        let runs = results["scenarios"][0]["competitors"][0]["runs"].as_array().expect("runs");
        let of = |run: &Value| {
            let points = run["series"]["points"].as_array().expect("points").iter().map(|point| {
                let number = |key: &str| point[key].as_f64().expect("a number");
                let thousandths = |key: &str| (number(key) * 1000.0).round() / 1000.0;
                (thousandths("at"), point["saved_bytes"].as_u64().expect("bytes"), thousandths("ksmd_cpu_seconds"))
            });
            Self { passes: run["passes"].as_u64().expect("passes"), points: points.collect() }
        };
        runs.iter().map(of).collect()
    }

    /// Saved bytes at a moment, linear between two samples.
    fn saved_at(&self, at: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 < at);
        let (before, after) = (self.points.get(after.saturating_sub(1)), self.points.get(after));
        match (before, after) {
            (Some(a), Some(b)) if b.0 > a.0 => a.1 as f64 + (b.1 as f64 - a.1 as f64) * (at - a.0) / (b.0 - a.0),
            (Some(a), _) => a.1 as f64,
            _ => 0.0,
        }
    }

    fn cpu(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.2)
    }
}

impl Difference {
    /// Compares a simulated run with a live one, at the samples of the live one.
    pub fn of(simulated: &Run, live: &Run) -> Self {
        let last = live.points.last().map_or(0, |point| point.1);
        let most = |run: &Run| run.points.iter().map(|point| point.1).max().unwrap_or(0);
        let unit = [last, most(live), most(simulated)].into_iter().find(|bytes| *bytes > 0).unwrap_or(1) as f64;
        let apart =
            live.points.iter().map(|point| (point.0, (simulated.saved_at(point.0) - point.1 as f64) / unit));
        let (at, saved) = apart.clone().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap_or_default();
        let mean = apart.map(|(_, apart)| apart).sum::<f64>() / live.points.len().max(1) as f64;
        Self {
            saved: saved.abs(),
            at,
            mean,
            cpu: [simulated.cpu(), live.cpu()],
            passes: [simulated.passes, live.passes],
        }
    }

    /// ksmd's CPU time, simulated over live. 1 where both are next to nothing.
    pub fn cpu_ratio(&self) -> f64 {
        let [simulated, live] = self.cpu;
        if simulated.max(live) < LITTLE_CPU { 1.0 } else { simulated / live.max(f64::MIN_POSITIVE) }
    }

    /// Whether the simulator's aim is met: saved memory within 5 % at each sample, ksmd's CPU within 10 %, passes within one.
    pub fn is_within_aim(&self) -> bool {
        self.saved <= 0.05
            && (0.9..=1.1).contains(&self.cpu_ratio())
            && self.passes[0].abs_diff(self.passes[1]) <= 1
    }
}

/// The cells of a row: greatest and mean difference, CPU, passes, and whether the aim is met.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { saved, at, mean, cpu: [simulated, live], passes: [passes, live_passes] } = self;
        let (saved, mean, ratio) = (100.0 * saved, 100.0 * mean, self.cpu_ratio());
        let met = if self.is_within_aim() { "yes" } else { "no" };
        write!(
            f,
            "{saved:.1} % at {at:.1} s | {mean:+.1} % | {simulated:.2} / {live:.2} s = {ratio:.2} | {passes} / {live_passes} | {met}"
        )
    }
}

/// Writes a shipped scenario of which the short form takes so many seconds into `directory`, and returns its path.
pub fn scaled(scenario: &str, seconds: f64, directory: &Path) -> PathBuf {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../scenarios/{scenario}.toml"));
    let text = fs::read_to_string(&shipped).unwrap_or_else(|why| panic!("{}: {why}", shipped.display()));
    let mut table: toml::Table = text.parse().expect("a scenario");
    let short = table.get_mut("short").and_then(toml::Value::as_table_mut).expect("a short form");
    short.insert("seconds".to_owned(), seconds.into());
    let path = directory.join(format!("{scenario}.toml"));
    fs::write(&path, table.to_string()).expect("a file");
    path
}
