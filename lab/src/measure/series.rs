//! The saved and the attainable memory of one run over time.

use schemars::JsonSchema;
use serde::Serialize;

/// One sample of a run. Counters count from the first sample.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct SeriesPoint {
    /// Seconds since the start of the run.
    pub at: f64,
    /// `(pages_sharing + ksm_zero_pages) * page_size`, at most the attainable bytes. Where guests are on huge pages, what is really
    /// saved.
    pub saved_bytes: u64,
    /// Start of the last complete pass. Each page that the kernel counts as merged was merged at some moment
    /// since.
    #[serde(skip)]
    pub known_since: f64,
    /// CPU time of ksmd.
    pub ksmd_cpu_seconds: f64,
    /// CPU time of the controller.
    pub controller_cpu_seconds: f64,
    /// Merged pages that were copied on a write (`cow_ksm`).
    pub breaks: u64,
}

/// A change of the attainable savings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct AttainableStep {
    /// Seconds since the start of the run.
    pub at: f64,
    /// Bytes that can be saved from then on.
    pub bytes: u64,
}

/// One sample of what is really saved, beside what KSM counts.
///
/// The two differ where guests are in huge pages: no counter has the empty pages that a split frees, and a parked ksmd does not
/// see that khugepaged has copied merged pages.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct TruthPoint {
    /// Seconds since the start of the run.
    pub at: f64,
    /// `(pages_sharing + ksm_zero_pages) * page_size`.
    pub counted_bytes: u64,
    /// Memory of the guests' contents less their proportional set size.
    pub truly_saved_bytes: u64,
    /// Memory of the guests in huge pages.
    pub huge_bytes: u64,
    /// Free memory of the host.
    pub free_bytes: u64,
}

/// A run over time, with points and steps in order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct RunSeries {
    /// Samples of the run.
    pub points: Vec<SeriesPoint>,
    /// Changes of the attainable savings, which are 0 before the first step.
    pub attainable: Vec<AttainableStep>,
    /// Samples of what is really saved beside the counters, where guests are on huge pages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub truth: Vec<TruthPoint>,
    /// True if the attainable savings change all the time, as in a fleet: no rise then lasts until it is saved.
    #[serde(skip)]
    pub is_restless: bool,
}

impl RunSeries {
    /// Makes a series of the kernel's counts. The kernel counts a page that was written to as merged until ksmd
    /// visits it, and a parked ksmd visits none. So each count is bounded by the least that was attainable since
    /// the last complete pass began.
    pub fn new(mut points: Vec<SeriesPoint>, attainable: Vec<AttainableStep>) -> Self {
        for point in &mut points {
            let begin = attainable.iter().rposition(|step| step.at <= point.known_since);
            let since = attainable[begin.unwrap_or(0)..].iter().take_while(|step| step.at <= point.at);
            if begin.is_some()
                && let Some(least) = since.map(|step| step.bytes).min()
            {
                point.saved_bytes = point.saved_bytes.min(least);
            }
        }
        Self { points, attainable, truth: Vec::new(), is_restless: false }
    }

    /// Makes a series of what is really saved: each point has the savings of the last sample of `truth`.
    pub fn from_truth(
        mut points: Vec<SeriesPoint>,
        attainable: Vec<AttainableStep>,
        truth: Vec<TruthPoint>,
    ) -> Self {
        for point in &mut points {
            let last = truth.partition_point(|sample| sample.at <= point.at).checked_sub(1);
            point.saved_bytes = last.and_then(|last| truth.get(last)).map_or(0, |sample| sample.truly_saved_bytes);
        }
        Self { points, attainable, truth, is_restless: false }
    }

    /// The integral over time of what KSM counts, in bytes x seconds, where it is not what is really saved.
    pub fn counted_integral(&self) -> Option<f64> {
        let areas = self.truth.windows(2).map(|pair| match pair {
            [from, to] => (to.at - from.at) * (from.counted_bytes + to.counted_bytes) as f64 / 2.0,
            _ => 0.0,
        });
        (!self.truth.is_empty()).then(|| areas.sum())
    }

    /// Bytes that could be saved at that moment.
    pub fn attainable_at(&self, at: f64) -> u64 {
        self.attainable.iter().take_while(|step| step.at <= at).last().map_or(0, |step| step.bytes)
    }

    /// The integral over time of `value(saved, attainable)`, in bytes x seconds. `saved` is linear between two
    /// samples.
    pub fn integral(&self, value: impl Fn(f64, f64) -> f64) -> f64 {
        let mut sum = 0.0;
        for pair in self.points.windows(2) {
            let [from, to] = pair else { continue };
            let length = to.at - from.at;
            if length <= 0.0 {
                continue;
            }
            let inside = self.attainable.iter().map(|step| step.at).filter(|at| *at > from.at && *at < to.at);
            let mut edges: Vec<f64> = [from.at].into_iter().chain(inside).collect();
            edges.push(to.at);
            for edge in edges.windows(2) {
                let [begin, end] = edge else { continue };
                let middle = (begin + end) / 2.0;
                let part = (middle - from.at) / length;
                let saved = from.saved_bytes as f64 * (1.0 - part) + to.saved_bytes as f64 * part;
                sum += value(saved, self.attainable_at(*begin) as f64) * (end - begin);
            }
        }
        sum
    }

    /// The greatest growth of a counter in any window of `seconds`, per second. 0 for a shorter run.
    pub fn peak_rate(&self, seconds: f64, counter: impl Fn(&SeriesPoint) -> f64) -> f64 {
        let mut begin = 0;
        let mut peak = 0.0_f64;
        for to in &self.points {
            while self.points.get(begin + 1).is_some_and(|next| to.at - next.at >= seconds) {
                begin += 1;
            }
            let Some(from) = self.points.get(begin) else { break };
            if to.at - from.at >= seconds {
                peak = peak.max((counter(to) - counter(from)) / (to.at - from.at));
            }
        }
        peak
    }

    /// The growth of a counter from `since` to the end of the run, per second.
    pub fn rate_since(&self, since: f64, counter: impl Fn(&SeriesPoint) -> f64) -> f64 {
        let from = self.points.iter().find(|point| point.at >= since);
        let (Some(from), Some(to)) = (from, self.points.last()) else { return 0.0 };
        if to.at <= from.at { 0.0 } else { (counter(to) - counter(from)) / (to.at - from.at) }
    }
}
