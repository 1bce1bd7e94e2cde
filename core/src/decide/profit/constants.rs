//! The constants of `profit`, each with its unit and meaning, and with what set it where that is known. What an
//! operator may want to change is in [`super::ProfitConfig`].
//!
//! `cargo bench -p ksmith-core --bench hour` and `ksmith sim` say what another value would save and cost; what was
//! tried is in docs/measurements/2026-11-sim.md. What is called a convention decides what people are shown or when
//! ksmith looks, and not what is merged.

use std::time::Duration;

// When ksmith looks.

/// Time between two looks at the guests while ksmd is parked. A convention: an arrival waits half of it on average.
pub const WATCH: Duration = Duration::from_secs(1);

/// The same once ksmd has been parked for [`QUIET`]: half the cost of looking.
pub const CALM_WATCH: Duration = Duration::from_secs(2);

/// Time parked after which ksmith looks less often.
pub const QUIET: Duration = Duration::from_secs(20);

/// The least time to a look while ksmd is parked, so that a due scan starts at once.
pub const SOONEST_LOOK: Duration = Duration::from_millis(50);

/// CPUs that all guests together use while they are idle, at most: a timer's tick now and then.
pub const IDLE_CPUS: f64 = 0.002;

// How short of memory the host is.

/// Available memory, as a part of all memory, above which the host is not short of memory.
pub const PLENTY: f64 = 0.5;

/// Available memory, as a part of all memory, below which the pressure is full.
pub const SHORT: f64 = 0.1;

/// Per cent of the last ten seconds in which work waited for memory that count as full pressure.
pub const FULL_STALL: f64 = 10.0;

/// The available memory that ends a shortage, by the one that begins it. What a burst frees must not end it: ksmd would
/// wait, and start anew, every few samples.
pub const RELIEVED: f64 = 1.25;

// What ksmd's work costs: mm/ksm.c and `ksmith sim calibrate`.

/// Passes with `smart_scan` in which an old page is visited once (`skip_age()` in mm/ksm.c: 8 are skipped).
pub const SMART_PERIOD: f64 = 9.0;

/// Passes with `smart_scan` before a page is old enough to be skipped (`should_skip_rmap_item()` in mm/ksm.c). Clean
/// passes do not age pages.
pub const YOUNG_PASSES: u64 = 3;

/// CPU-seconds of ksmd for an old page that is skipped.
pub const SKIP_SECONDS: f64 = 150e-9;

// What memory is worth a scan.

/// The part of all mergeable memory that merging may split, however little it saves.
pub const SPLIT_PART: f64 = 1.0 / 16.0;

/// The merged part of the processes' memory of which less counts as nothing merged yet.
pub const NEXT_TO_NOTHING: f64 = 1.0 / 100.0;

/// The part of all memory that is worth a burst however often growth was wasted.
pub const MOST_GROWTH_PART: f64 = 1.0 / 2.0;

/// The part of the sampled pages that counts as nearly all.
pub const NEARLY_ALL: f64 = 0.9;

/// Pages in no tree that a pass may leave without a retry. On fewer, page samples and counters are not exact.
pub const FEW_PAGES: u64 = 64;

/// Half of the longest time for which freed memory still counts as held. Iterations of solvers take seconds.
pub const LEVEL_HALF: Duration = Duration::from_secs(30);

// What comes of promises.

/// Of pages that changed between two visits, the part that may be stable by now, where no pages are sampled.
pub const STABLE_PART: f64 = 0.2;

/// The part of a guest's memory that was there before, from which on it has filled its memory.
pub const KNOWN_PART: f64 = 7.0 / 8.0;

// The constants by which much is saved for little CPU.

/// Pause before memory is visited that was changing in the last pass, so that it can become stable. Guests' writes in the
/// lab's scenarios come once a second.
pub const PAUSE_OF_CHANGES: Duration = Duration::from_secs(2);

/// The part of all memory that is worth a burst where it is less than `growth_mib`.
pub const GROWTH_PART: f64 = 1.0 / 8.0;

/// Of `growth_mib` and of the budget of probes, the part that is worth a scan which has no new memory to visit, or none
/// that can pay for itself.
pub const SMALL_PART: f64 = 1.0 / 4.0;

/// The probability that contents merge of which it is not known, before anything was learned.
pub const UNKNOWN_AT_FIRST: f64 = 0.05;

/// Of pages that are stable with recurring contents, the part that is still so when ksmd comes, at most.
pub const RECURRING_PART: f64 = 0.8;

/// The trials that a scan of all memory counts as, where its outcome and not that of sampled pages is learned from.
pub const TRIALS_OF_SCAN: f64 = 3.0;

/// Seconds for which saved memory counts against the CPU time that saving it takes.
pub const HORIZON_SECONDS: f64 = 200.0;

/// The time constant of the rate at which memory appears, in seconds.
pub const RATE_SECONDS: f64 = 300.0;

/// CPU-seconds that a clean pass has to cost beyond a smart one before arrivals share their passes.
pub const DEAR_SECONDS: f64 = 2.0;
