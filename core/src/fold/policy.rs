//! The decisions: the process that is looked at or folded next, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::belief::{FIRST_PAUSE, FoldBelief, expectation, pass_cpu_seconds};
use super::{FoldLook, FoldPass};
use crate::sample::ProcessId;
use crate::token_bucket::TokenBucket;
use crate::units::{Bytes, TimeSpan};

/// A full budget holds the share of this time.
const WINDOW: Duration = Duration::from_secs(300);

/// CPU time that a step needs at least.
const LEAST_CPU_SECONDS: f64 = 0.02;

/// CPU time for which other work on huge pages waits: less does not pay for the start of a child.
const OTHER_PASS_SECONDS: f64 = 0.2;

/// The most CPU time of one pass: the rest is left to the next one.
const LONGEST_PASS: Duration = Duration::from_secs(10);

/// The part of the budget that looks at folded memory may take.
const REFRESH_PART: f64 = 0.25;

/// Bounds of the cost of passes relative to the usual one.
const COST_SCALES: (f64, f64) = (0.1, 30.0);

/// The weight of a new pass in the cost of passes.
const COST_WEIGHT: f64 = 0.3;

/// The most notes that wait to be fetched. The oldest are lost.
const MOST_NOTES: usize = 256;

/// Failures that are remembered at most.
const MOST_FAILURES: usize = 64;

/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The terms of folding, as an operator has set them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FoldTerms {
    /// True if processes may be folded. Otherwise folded memory is only looked at.
    pub may_fold: bool,
    /// The part of one CPU that folding may take in the long run.
    pub max_cpu_share: f64,
    /// The memory that a CPU-second must be expected to free, in bytes.
    pub price_bytes: f64,
}

/// A process that may be folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldCandidate {
    /// PID and start of the process.
    pub id: ProcessId,
    /// Its name for people.
    pub name: String,
    /// Its resident memory.
    pub rss_bytes: u64,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldStep {
    /// Reads the figures of a process and some of its huge pages.
    Look {
        /// The process to look at.
        id: ProcessId,
    },
    /// Folds a process.
    Fold {
        /// The process to fold.
        id: ProcessId,
        /// CPU time after which the pass ends.
        cpu_limit: Duration,
    },
    /// Nothing is due for so long.
    Wait(Duration),
}

/// A decision or its outcome, for the log and the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldNote {
    /// The state in a word: `fold`, `folded`, `idle`, `silent`, `refused` or `hindered`.
    pub state: &'static str,
    /// The reason or the outcome, in a sentence.
    pub text: String,
}

/// Decides which process is looked at or folded next.
///
/// New processes are looked at first, so that the best one of all is folded. Time arrives as an argument, since boot.
#[derive(Debug)]
pub struct FoldPolicy {
    terms: FoldTerms,
    /// CPU-seconds that may be used now.
    budget: TokenBucket,
    beliefs: BTreeMap<ProcessId, FoldBelief>,
    /// The cost of passes on this host, as a multiple of the usual one.
    cost_scale: f64,
    /// CPU time of the last look.
    look_cpu: Duration,
    notes: Vec<FoldNote>,
    /// True if it was said that nothing is worth folding.
    has_said_idle: bool,
    /// The failures that were said.
    said_failures: BTreeSet<String>,
}

fn full_budget(terms: &FoldTerms) -> TokenBucket {
    TokenBucket::new(terms.max_cpu_share * WINDOW.as_secs_f64(), terms.max_cpu_share)
}

impl FoldPolicy {
    /// Creates a policy that knows no process.
    pub fn new(terms: FoldTerms) -> Self {
        Self {
            budget: full_budget(&terms),
            terms,
            beliefs: BTreeMap::new(),
            cost_scale: 1.0,
            look_cpu: Duration::ZERO,
            notes: Vec::new(),
            has_said_idle: false,
            said_failures: BTreeSet::new(),
        }
    }

    /// Replaces the terms. The used CPU time stays used.
    pub fn configure(&mut self, terms: FoldTerms) {
        let used = self.budget.capacity() - self.budget.tokens();
        self.budget = full_budget(&terms);
        self.budget.charge(used);
        self.terms = terms;
        self.has_said_idle = false;
        self.said_failures.clear();
        // What was judged by the old terms is judged anew.
        for belief in self.beliefs.values_mut() {
            *belief = FoldBelief::new(belief.name.clone(), Duration::ZERO, belief.rss_bytes);
        }
    }

    /// Sets the processes that may be folded. The state of all others is forgotten.
    pub fn set_candidates(&mut self, at: Duration, candidates: &[FoldCandidate]) {
        let mut before = std::mem::take(&mut self.beliefs);
        for FoldCandidate { id, name, rss_bytes } in candidates {
            let mut belief = before.remove(id).unwrap_or_else(|| FoldBelief::new(name.clone(), at, *rss_bytes));
            belief.name.clone_from(name);
            belief.see_rss(*rss_bytes);
            self.beliefs.insert(*id, belief);
        }
    }

    /// True if this process is one of the candidates.
    pub fn is_candidate(&self, id: ProcessId) -> bool {
        self.beliefs.contains_key(&id)
    }

    /// Decides what to do now.
    pub fn next_step(&mut self, at: Duration) -> FoldStep {
        self.budget.refill(at);
        let wait = self.wait_for(LEAST_CPU_SECONDS);
        if wait > Duration::ZERO {
            return FoldStep::Wait(wait.min(LONGEST_WAIT));
        }
        let is_due = |belief: &FoldBelief| belief.next_look <= at;
        let new = self.beliefs.iter().find(|(_, belief)| belief.is_new() && is_due(belief));
        if let Some((id, _)) = new {
            return FoldStep::Look { id: *id };
        }
        if let Some((id, cpu_seconds)) = self.best() {
            // A pass that is cut short brings its part. So a large process does not wait for a full bucket.
            let needed = cpu_seconds.min(self.budget.capacity() / 2.0);
            let wait = self.wait_for(needed);
            if wait > Duration::ZERO {
                return FoldStep::Wait(wait.min(LONGEST_WAIT));
            }
            self.note_fold(id);
            return FoldStep::Fold { id, cpu_limit: self.pass_cpu_limit() };
        }
        let next = self.beliefs.iter().min_by_key(|(_, belief)| belief.next_look);
        match next {
            Some((id, belief)) if is_due(belief) => FoldStep::Look { id: *id },
            Some((_, belief)) => {
                let wait = belief.next_look.saturating_sub(at);
                self.note_idle();
                FoldStep::Wait(wait.min(LONGEST_WAIT))
            }
            None => FoldStep::Wait(LONGEST_WAIT),
        }
    }

    /// Returns the time until other work on huge pages may begin, zero if it may now.
    pub fn time_until_pass(&mut self, at: Duration) -> Duration {
        self.budget.refill(at);
        self.wait_for(OTHER_PASS_SECONDS)
    }

    /// Returns the CPU time that a pass may take now.
    pub fn pass_cpu_limit(&self) -> Duration {
        Duration::try_from_secs_f64(self.budget.tokens()).unwrap_or_default().min(LONGEST_PASS)
    }

    /// The time until so many CPU-seconds may be used, or the budget is full.
    fn wait_for(&self, cpu_seconds: f64) -> Duration {
        self.budget.time_until(cpu_seconds.min(self.budget.capacity())).unwrap_or(WINDOW)
    }

    /// The process with the best rate of those that are worth folding, and the CPU time that it needs.
    fn best(&self) -> Option<(ProcessId, f64)> {
        if !self.terms.may_fold {
            return None;
        }
        let worth = self.beliefs.iter().filter(|(_, belief)| belief.wants_fold);
        let expected = worth.map(|(id, belief)| (*id, belief.expectation(self.cost_scale)));
        let best = expected.max_by(|(_, a), (_, b)| a.rate().total_cmp(&b.rate()));
        best.map(|(id, expected)| (id, expected.cpu_seconds))
    }

    /// Records a look. `folded_bytes` is the memory of the process that is folded now.
    pub fn record_look(&mut self, at: Duration, id: ProcessId, look: FoldLook, folded_bytes: u64, cpu: Duration) {
        self.look_cpu = cpu;
        let refresh = (folded_bytes > 0).then(|| self.refresh());
        let pays = self.terms.may_fold && expectation(&look, self.cost_scale).rate() >= self.terms.price_bytes;
        if let Some(belief) = self.beliefs.get_mut(&id) {
            belief.see_look(at, look, refresh, pays);
        }
    }

    /// The time between two looks at folded memory.
    fn refresh(&self) -> Duration {
        let share = (self.terms.max_cpu_share * REFRESH_PART).max(1e-6);
        let by_cost = Duration::try_from_secs_f64(self.look_cpu.as_secs_f64() / share).unwrap_or(LONGEST_WAIT);
        by_cost.clamp(FIRST_PAUSE, LONGEST_WAIT)
    }

    /// Records the outcome of a pass.
    pub fn record_pass(&mut self, at: Duration, id: ProcessId, pass: &FoldPass) {
        let usual = pass_cpu_seconds(pass.looked_bytes as f64, pass.split_pages as f64);
        if usual > 0.001 && pass.cpu_seconds.is_finite() {
            let found = (pass.cpu_seconds / usual).clamp(COST_SCALES.0, COST_SCALES.1);
            self.cost_scale += COST_WEIGHT * (found - self.cost_scale);
        }
        let Some(belief) = self.beliefs.get_mut(&id) else { return };
        // Half the price: an estimate that is too high by less is no reason to rest.
        let rate = pass.freed_bytes as f64 / pass.cpu_seconds.max(1e-6);
        belief.see_pass(at, pass.freed_bytes > 0 && rate >= self.terms.price_bytes / 2.0);
        let text = format!(
            "{} was freed in {} for {} of CPU, {} huge pages were split",
            Bytes::from(pass.freed_bytes),
            belief.name,
            TimeSpan(Duration::try_from_secs_f64(pass.cpu_seconds).unwrap_or_default()),
            pass.split_pages
        );
        self.add_note("folded", text);
    }

    /// Records that a process can't be read or folded, and the reason. It rests.
    pub fn record_failure(&mut self, at: Duration, id: ProcessId, why: &str) {
        let Some(belief) = self.beliefs.get_mut(&id) else { return };
        belief.see_failure(at);
        // One reason may be that of all processes.
        if self.said_failures.len() >= MOST_FAILURES {
            self.said_failures.clear();
        }
        if self.said_failures.insert(why.to_owned()) {
            let text = format!("{} is not folded: {why}", belief.name);
            self.add_note("refused", text);
        }
    }

    /// Records that a process held its reader up. It rests for long.
    pub fn record_silence(&mut self, at: Duration, id: ProcessId) {
        let Some(belief) = self.beliefs.get_mut(&id) else { return };
        let pause = belief.see_silence(at);
        let text = format!("{} does not let its memory be read; next look in {}", belief.name, TimeSpan(pause));
        self.add_note("silent", text);
    }

    /// Records that a process has ended.
    pub fn forget(&mut self, id: ProcessId) {
        self.beliefs.remove(&id);
    }

    /// Charges CPU time to the budget.
    pub fn charge(&mut self, cpu: Duration) {
        self.budget.charge(cpu.as_secs_f64());
    }

    fn note_fold(&mut self, id: ProcessId) {
        let Some(belief) = self.beliefs.get(&id) else { return };
        let expected = belief.expectation(self.cost_scale);
        let text = format!(
            "fold {}: {:.0} % of sampled huge pages hold zeros, about {} for {} of CPU",
            belief.name,
            expected.foldable_percent,
            Bytes::from(expected.gain_bytes as u64),
            TimeSpan(Duration::try_from_secs_f64(expected.cpu_seconds).unwrap_or_default()),
        );
        self.has_said_idle = false;
        self.add_note("fold", text);
    }

    /// Notes once that all processes were looked at and none is worth folding.
    fn note_idle(&mut self) {
        if self.has_said_idle || !self.terms.may_fold || self.beliefs.values().all(FoldBelief::is_new) {
            return;
        }
        self.has_said_idle = true;
        let expected = self.beliefs.values().map(|belief| (belief, belief.expectation(self.cost_scale)));
        let most = expected.max_by(|(_, a), (_, b)| a.gain_bytes.total_cmp(&b.gain_bytes));
        let most = most.filter(|(_, most)| most.gain_bytes >= 1.0);
        let most = most.map_or("no sampled huge page has enough zeros".to_owned(), |(belief, most)| {
            format!("at most {} of {} would be freed", Bytes::from(most.gain_bytes as u64), belief.name)
        });
        let text = format!("nothing is worth folding in {} processes: {most}", self.beliefs.len());
        self.add_note("idle", text);
    }

    /// Adds a note.
    pub fn add_note(&mut self, state: &'static str, text: String) {
        if self.notes.len() >= MOST_NOTES {
            self.notes.remove(0);
        }
        self.notes.push(FoldNote { state, text });
    }

    /// Takes the notes that were added since the last call.
    pub fn drain_notes(&mut self) -> Vec<FoldNote> {
        std::mem::take(&mut self.notes)
    }
}
