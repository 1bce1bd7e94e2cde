//! `ksmith demo` shows merging on four small guests with known memory.

mod live;
mod report;
mod script;
mod simulated;
mod stage;
mod view;

use std::io;
use std::time::Duration;

use ksmith_core::decide::{FixedPolicy, Policy, PolicyLimits, ProfitConfig, ProfitPolicy};
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::units::Bytes;

pub use live::LiveStage;
pub use report::DemoReport;
pub use script::DemoScript;
pub use simulated::SimulatedStage;
pub use stage::{DemoMode, DemoStage};
pub use view::DemoView;

use self::script::EmptyPages;
use self::view::DemoMoment;
use crate::filled::rewriting_time;
use crate::{GuestError, GuestPages};
use ksmith_core::controller::{PolicyController, TickOutcome};
use ksmith_host::act::RestoreError;
use ksmith_host::own_use::OwnUse;

/// An error that ends the demo early. The settings are restored in any case.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A guest did not start or did not obey.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The path of the ksmith program, which runs as the guests, is not known.
    #[error("can't find the ksmith program, which guests are started with: {0}")]
    Program(#[source] io::Error),
    /// The pace of this machine could not be measured.
    #[error("no memory to measure how fast this machine writes: {0}")]
    Pace(#[source] io::Error),
    /// A setting could not be changed.
    #[error("{0}; the settings are being restored")]
    Setting(String),
    /// Ctrl-C or SIGTERM ended the demo.
    #[error("interrupted; the settings are being restored")]
    Interrupted,
    /// A setting could not be restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// The longest that a part of the demo goes on while ksmd is parked and not all is saved.
const PATIENCE: Duration = Duration::from_secs(15);

/// The longest that a part of the demo takes. An emulated machine may need most of it.
const LONGEST: Duration = Duration::from_secs(120);

/// The share of the attainable savings at which a part of the demo ends.
const ENOUGH: f64 = 0.995;

/// The share of the attainable savings that the demo must save.
const GOOD: f64 = 0.95;

/// Plays the demo.
///
/// # Errors
/// A guest or a setting failed, or the user interrupted the demo.
pub fn play<S: DemoStage>(stage: S, script: &DemoScript, mut view: DemoView) -> Result<DemoReport, DemoError> {
    let own_before = OwnUse::now();
    let (mode, pages) = (stage.mode(), stage.pages());
    let keep_terms = stage.keep_terms();
    let rewriting = if mode == DemoMode::Live {
        rewriting_time(script.changing_pages()).map_err(DemoError::Pace)?
    } else {
        Duration::ZERO
    };
    let script = &script.clone().paced(rewriting);
    let profit = Box::new(ProfitPolicy::new(ProfitConfig::default()));
    let mut act = DemoAct {
        controller: PolicyController::new(stage, profit, PolicyLimits::default()),
        view: &mut view,
        script,
        state: "",
    };
    act.controller.set_keep_terms(keep_terms);

    let (early, late) = script.guests().split_at(script::EARLY);
    for (number, contents) in early.iter().enumerate() {
        act.controller.host_mut().start(&format!("guest-{}", number + 1), contents)?;
    }
    act.view.say(&format!("{} guests have started; the policy is profit", early.len()));
    let first = act.until_saved(early.len(), 1.0)?;

    // Ages pages in a second as hours under the kernel's own settings would.
    act.view.say(&format!(
        "ksmd makes {} passes the kernel's way (smart_scan=1), after which it hardly visits old pages",
        script::AGEING_PASSES
    ));
    let ageing_cpu = act.age()?;

    for contents in late {
        act.controller.host_mut().start(&format!("guest-{}", script.guests().len()), contents)?;
    }
    let late_start = act.controller.host_mut().elapsed();
    act.view.say("the late guest has started; an eighth of its memory equals old pages of the first guest");
    let second = act.until_saved(script.guests().len(), act.part_before(early.len()))?;

    let mut stage = act.controller.into_host();
    let wrong_pages = stage.wrong_pages()?;
    let seconds = stage.elapsed().as_secs_f64();
    view.finish();
    let restored = stage.strike()?;
    let own = OwnUse::now();
    Ok(DemoReport {
        mode,
        pages,
        mergeable_bytes: second.mergeable_bytes,
        saved_bytes: second.saved_bytes,
        seconds_to_90: second.reached_90.map(|at| at.as_secs_f64()),
        late_seconds_to_90: second.reached_part.map(|at| at.saturating_sub(late_start).as_secs_f64()),
        seconds,
        missed: second.missed,
        ksmd_cpu_seconds: second
            .ksmd_cpu
            .saturating_sub(first.ksmd_cpu_before)
            .saturating_sub(ageing_cpu)
            .as_secs_f64(),
        ksmith_cpu_seconds: own.cpu.saturating_sub(own_before.cpu).as_secs_f64(),
        ksmith_rss_bytes: own.rss_bytes,
        wrong_pages,
        restored,
    })
}

/// A demo in progress.
struct DemoAct<'a, S> {
    controller: PolicyController<S>,
    view: &'a mut DemoView,
    script: &'a DemoScript,
    state: &'static str,
}

/// The figures of one part of the demo at its end.
struct ActFigures {
    mergeable_bytes: u64,
    saved_bytes: u64,
    reached_90: Option<Duration>,
    reached_part: Option<Duration>,
    ksmd_cpu_before: Duration,
    ksmd_cpu: Duration,
    /// The unsaved memory and the reason, if more than the tolerance is left.
    missed: Option<String>,
}

/// Saved and attainable memory with the time, CPU and passes that they took.
#[derive(Debug, Clone, Copy)]
struct SavingEffort<'a> {
    saved_bytes: u64,
    mergeable_bytes: u64,
    took: Duration,
    ksmd_cpu: Duration,
    /// Passes that ended meanwhile.
    passes: u64,
    /// State of the policy at the end, in one word, and its reason.
    state: &'a str,
    reason: &'a str,
}

impl SavingEffort<'_> {
    /// Describes the unsaved memory and the reason, if less than [`GOOD`] was saved.
    fn missed(self) -> Option<String> {
        let Self { saved_bytes, mergeable_bytes, took, ksmd_cpu, passes, state, reason } = self;
        let share = saved_bytes as f64 / mergeable_bytes.max(1) as f64;
        if share >= GOOD {
            return None;
        }
        let missing = Bytes::from(mergeable_bytes.saturating_sub(saved_bytes));
        let percent = 100.0 * (1.0 - share);
        let cpu = 100.0 * ksmd_cpu.as_secs_f64() / took.as_secs_f64().max(f64::MIN_POSITIVE);
        let why = match state {
            "parked" => format!("the policy found no more to merge ({reason})"),
            _ => format!("the time was up while ksmd was at work ({state}: {reason})"),
        };
        let seconds = took.as_secs_f64();
        Some(format!(
            "{missing} ({percent:.1} %) of what can be saved was missed: {why}; in {seconds:.0} s since the late guest's start \
             ksmd made {passes} passes with {cpu:.0} % of a CPU"
        ))
    }
}

impl<S: DemoStage> DemoAct<'_, S> {
    /// Runs the policy until nearly all is saved that `guests` guests can save. Notes when 90 % and when `part`
    /// of it is saved.
    fn until_saved(&mut self, guests: usize, part: f64) -> Result<ActFigures, DemoError> {
        let began = self.controller.host_mut().elapsed();
        let (mut reached_90, mut reached_part, mut ksmd_cpu_before) = (None, None, None);
        let (mut worked, mut passes_before) = (began, None);
        loop {
            let (tick, saved_bytes) = self.turn(guests)?;
            let at = self.controller.host_mut().elapsed();
            let mergeable_bytes = self.mergeable_bytes(guests, &tick);
            let ksmd_cpu = Duration::from_nanos(tick.sample.ksmd_cpu_ns.get().unwrap_or(0));
            let before = *ksmd_cpu_before.get_or_insert(ksmd_cpu);
            let saved_part = saved_bytes as f64 / mergeable_bytes.max(1) as f64;
            if saved_part >= 0.9 {
                reached_90.get_or_insert(at);
            }
            if saved_part >= part {
                reached_part.get_or_insert(at);
            }
            let passes = tick.sample.ksm.full_scans.get().unwrap_or(0);
            let passes_before = *passes_before.get_or_insert(passes);
            let reason = &tick.decision.reason;
            let is_parked = reason.state == "parked";
            if !is_parked {
                worked = at;
            }
            let (took, stood) = (at.saturating_sub(began), at.saturating_sub(worked));
            if saved_part >= ENOUGH && is_parked || stood > PATIENCE || took > LONGEST {
                let effort = SavingEffort {
                    saved_bytes,
                    mergeable_bytes,
                    took,
                    ksmd_cpu: ksmd_cpu.saturating_sub(before),
                    passes: passes.saturating_sub(passes_before),
                    state: reason.state,
                    reason: &reason.text,
                };
                let ending = ActFigures {
                    mergeable_bytes,
                    saved_bytes,
                    reached_90,
                    reached_part,
                    ksmd_cpu_before: before,
                    ksmd_cpu,
                    missed: effort.missed(),
                };
                return Ok(ending);
            }
            self.controller.host_mut().wait(tick.decision.check_after)?;
        }
    }

    /// Makes ksmd do passes with `smart_scan`, as it does by itself over hours. Returns the CPU time of these
    /// passes.
    fn age(&mut self) -> Result<Duration, DemoError> {
        let kernels_way = KnobSettings::none()
            .with(Knob::SmartScan, 1)
            .with(Knob::PagesToScan, 20_000)
            .with(Knob::SleepMillisecs, 1)
            .with(Knob::Run, 1);
        let profit = self.controller.replace(Box::new(FixedPolicy::new(kernels_way)), PolicyLimits::default());
        let began = self.controller.host_mut().elapsed();
        let mut first = None;
        let cpu = loop {
            let (tick, _) = self.turn(script::EARLY)?;
            let passes = tick.sample.ksm.full_scans.get().unwrap_or(0);
            let cpu = tick.sample.ksmd_cpu_ns.get().unwrap_or(0);
            let (passes_before, cpu_before) = *first.get_or_insert((passes, cpu));
            let is_done = passes.saturating_sub(passes_before) >= script::AGEING_PASSES;
            if is_done || self.controller.host_mut().elapsed().saturating_sub(began) > LONGEST {
                break cpu.saturating_sub(cpu_before);
            }
            self.controller.host_mut().wait(Duration::from_millis(50))?;
        };
        self.controller.replace(profit as Box<dyn Policy>, PolicyLimits::default());
        Ok(Duration::from_nanos(cpu))
    }

    /// Takes a turn. Returns its outcome, and the bytes that are saved.
    fn turn(&mut self, guests: usize) -> Result<(TickOutcome, u64), DemoError> {
        let tick = self.controller.tick();
        if let Some(error) = tick.applied.errors.first() {
            return Err(DemoError::Setting(error.clone()));
        }
        let counted_bytes = tick.sample.ksm.saved_pages() * tick.sample.page_size;
        let mergeable_bytes = self.mergeable_bytes(guests, &tick);
        // No more can be saved; what a guest's program takes besides its contents is known to some KiB only.
        let truly = self.controller.host_mut().truly_saved_bytes().map(|bytes| bytes.min(mergeable_bytes));
        let saved_bytes = truly.unwrap_or(counted_bytes);
        let reason = &tick.decision.reason;
        let moment = DemoMoment {
            at: self.controller.host_mut().elapsed(),
            state: reason.state,
            reason: &reason.text,
            saved_bytes,
            mergeable_bytes,
            ksmd_share: self.controller.history().ksmd_share().unwrap_or(0.0),
        };
        self.view.show(moment, reason.state != self.state);
        self.state = reason.state;
        Ok((tick, saved_bytes))
    }

    fn mergeable_bytes(&self, guests: usize, tick: &TickOutcome) -> u64 {
        let ksm = &tick.sample.ksm;
        let limit = ksm.max_page_sharing.get().unwrap_or(u64::MAX);
        let empty = match (EmptyPages::from_ksm(ksm), self.controller.host().pages()) {
            // Page tables tell what no counter does.
            (EmptyPages::Uncounted, GuestPages::Huge) => EmptyPages::ZeroPage,
            (empty, _) => empty,
        };
        self.script.mergeable_pages(guests, limit, empty) * tick.sample.page_size
    }

    /// The share of all savings when 90 % of the late guest's own savings are reached, with all of the `early`
    /// guests'.
    fn part_before(&self, early: usize) -> f64 {
        let pages = |guests| self.script.mergeable_pages(guests, 256, EmptyPages::ZeroPage) as f64;
        let (before, all) = (pages(early), pages(self.script.guests().len()));
        (before + 0.9 * (all - before)) / all
    }
}

/// The first sentence of the demo.
pub fn opening(mode: DemoMode, guest_bytes: u64, pages: GuestPages) -> String {
    let (size, pages) = (Bytes::from(guest_bytes), pages.in_words());
    let host = match mode {
        DemoMode::Live => "this host's KSM; every setting is restored",
        DemoMode::Simulated => "a SIMULATED ksmd; this host is not touched",
    };
    format!("ksmith demo: four guests of {size} on {pages}, with {host}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ksmith_core::controller::KsmHost;

    const EFFORT: SavingEffort<'static> = SavingEffort {
        saved_bytes: 89 << 20,
        mergeable_bytes: 100 << 20,
        took: Duration::from_secs(20),
        ksmd_cpu: Duration::from_secs(2),
        passes: 3,
        state: "parked",
        reason: "another pass would not pay",
    };

    #[test]
    fn a_guest_has_the_pages_that_its_host_shows() {
        let shown = SimulatedStage::new(GuestPages::Small).sample().page_size;
        assert_eq!(DemoMode::Simulated.page_bytes(), shown);
        assert_eq!(DemoMode::Live.page_bytes(), rustix::param::page_size() as u64);
    }

    #[test]
    fn what_was_missed_is_said_with_the_reason_and_what_ksmd_had() {
        let missed = EFFORT.missed().unwrap();
        assert!(
            missed.starts_with("11.0 MiB (11.0 %) of what can be saved was missed: the policy found"),
            "{missed}"
        );
        assert!(missed.contains("another pass would not pay"), "{missed}");
        assert!(missed.ends_with("ksmd made 3 passes with 10 % of a CPU"), "{missed}");
        let missed = SavingEffort { state: "burst", ..EFFORT }.missed().unwrap();
        assert!(missed.contains("the time was up while ksmd was at work (burst: "), "{missed}");
        assert_eq!(SavingEffort { saved_bytes: 95 << 20, ..EFFORT }.missed(), None);
    }
}
