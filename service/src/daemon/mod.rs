//! The daemon: one thread owns its state and waits on one channel with a deadline.
//!
//! At each deadline, which the policy sets, it takes a turn: observe, decide, act. Between two turns it answers
//! requests and handles process events. Threads that wait for signals, sockets, guests and the kernel's events only
//! send. A turn waits for none of them. The settings are restored however the daemon ends:
//! [`ksmith_host::perform_step::ControlProtocol`] does so when dropped.

mod alarms;
mod cpus;
mod end;
mod environment;
mod host;
mod inbox;
mod log;
mod pause;
mod requests;
mod scan_readings;
mod scans;
mod source;
mod start;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::end::EndedDaemon;
pub use self::environment::{DaemonEnvironment, LiveEnvironment};
pub use self::host::DaemonHost;
pub use self::inbox::DaemonMessage;
pub use self::source::ConfigSource;

use self::cpus::KsmdBinding;
use self::pause::{MergingPause, with_ksmd_started};
use self::scan_readings::ScanReadings;
use self::scans::DemandScan;
use crate::balance_service::BalanceService;
use crate::config::Config;
use crate::decision_rate::DecisionRate;
use crate::domains::DomainGuard;
use crate::folder::{FoldedFigures, Folder};
use crate::notifier::Notifier;
use crate::recorder::{RecordedTurn, Recorder};
use crate::registry::GuestRegistry;
use crate::sketcher::Sketcher;
use crate::user_socket::{UserBudgets, UserScans};
use ksmith_core::alarm::{AlarmTracker, AlarmTransition};
use ksmith_core::controller::{PolicyController, TickOutcome};
use ksmith_core::decide::DecisionReason;
use ksmith_core::kernel::RunState;
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::sample::{GivenUp, Sample};
use ksmith_host::guests::{GuestSnapshot, OffList};
use ksmith_host::live::LiveHost;
use ksmith_host::observe::ProcessEvent;
use sd_notify::NotifyState;
use tracing::debug;

/// The longest time between two turns: it bounds the age of the figures shown.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The wait after a turn is at least so many times as long as the turn while ksmd stands: turns then take a tenth of a
/// CPU at most, however many processes there are, and however many of them start and end.
const WAIT_PER_TURN: u32 = 9;

/// The least wait, in turns, before events of processes bring one forward while ksmd runs.
const EVENT_WAIT_PER_TURN: u32 = 1;

/// The daemon, in charge of one host.
#[derive(Debug)]
pub struct Daemon<H = LiveHost> {
    controller: PolicyController<H>,
    environment: Box<dyn DaemonEnvironment>,
    off: Option<OffList>,
    guard: DomainGuard,
    config: Config,
    source: ConfigSource,
    started: Instant,
    /// The time before which no event of processes brings a turn forward.
    event_turn_from: Instant,
    last: Option<TickOutcome>,
    scan: Option<DemandScan>,
    /// The readings before or after a scan of root's; never together with a scan or a pause.
    scan_readings: Option<ScanReadings>,
    /// A pause of merging; never together with a scan.
    pause: Option<MergingPause>,
    /// True if the policy finds ksmd running after a pause, as it was before.
    starts_ksmd: bool,
    /// Settings from before a scan that are not restored yet, since ksmd is busy or they are refused.
    unrestored: Option<KnobSettings>,
    budget: UserBudgets,
    folded: FoldedFigures,
    user_scans: UserScans,
    guests: Option<GuestRegistry>,
    balance: Option<BalanceService>,
    recorder: Option<Recorder>,
    sketcher: Option<Sketcher>,
    folder: Option<Folder>,
    /// The command of the fold worker; `None` if the processes of this host are not real.
    fold_command: Option<Vec<String>>,
    alarms: AlarmTracker,
    notifier: Option<Notifier>,
    /// Time of the last check of the domains, and the breach that was found.
    breach: (Option<Duration>, Option<String>),
    /// The newest sample for answers since the last turn, and its time.
    sampled: Option<(Instant, Sample)>,
    warned: BTreeMap<Knob, Instant>,
    binding: KsmdBinding,
    /// Processes that were reported as given up, and the time of the report.
    given_up: (Option<Instant>, BTreeSet<GivenUp>),
    /// Start of a setting's wait for ksmd, and true once the wait was reported.
    waiting: Option<(Instant, bool)>,
    told: Option<(Instant, String)>,
    logged: DecisionRate,
}

impl<H: DaemonHost> Daemon<H> {
    /// Observes, decides and acts once. Returns how long to wait for the next turn.
    fn turn(&mut self) -> Duration {
        let began = self.environment.now();
        let known = self.known_guests();
        let starts_ksmd = self.starts_ksmd && self.pause.is_none();
        let Self { controller, guard, folded, pause, environment, .. } = self;
        let unknown = guard.take_unknown();
        if !unknown.is_empty() {
            controller.host_mut().notice(unknown.into_iter().map(ProcessEvent::Exec).collect());
        }
        if let Some(balance) = &self.balance {
            controller.host_mut().set_pool_shortness(balance.shared().shortness());
        }
        controller.host_mut().set_folded(folded.of_folder());
        let tick = controller.tick_guarded(|sample, decision| {
            let decision = if starts_ksmd { with_ksmd_started(decision, sample) } else { decision };
            // It stays when the guard of the domains parks ksmd too.
            let of_pause = pause.as_mut().map(|pause| pause.reason(sample, environment.day_clock()));
            let mut decision = guard.guard(sample, &known, decision);
            decision.reason = of_pause.unwrap_or(decision.reason);
            decision
        });
        self.follow_spare_cpus(&tick);
        self.log(&tick);
        let watchdog = self.environment.watchdog();
        if watchdog.is_some() {
            self.environment.notify(&[NotifyState::Watchdog]);
        }
        self.finish_pause(&tick);
        self.finish_scan(&tick);
        let of_readings = self.follow_readings(&tick.sample).unwrap_or(LONGEST_WAIT);
        self.sampled = None;
        if let Some(guests) = &mut self.guests {
            for (pid, on) in self.guard.take_switched() {
                guests.was_switched(pid, on);
            }
            guests.offer_sample(&tick.sample);
        }
        let notices = self.watch_for_alarms(&tick.sample, &known);
        self.record(&tick, &notices);
        if let Some(sketcher) = &mut self.sketcher {
            sketcher.offer_sample(&tick.sample);
        }
        self.folded.follow_sample(&tick.sample);
        if let Some(folder) = &mut self.folder {
            folder.offer_sample(&tick.sample);
        }
        let wait = watchdog.map_or(LONGEST_WAIT, |period| (period / 3).min(LONGEST_WAIT));
        let took = self.environment.now().duration_since(began);
        let of_readings =
            if of_readings.is_zero() { of_readings } else { of_readings.max(took.saturating_mul(WAIT_PER_TURN)) };
        let next = tick.decision.check_after.min(wait).min(self.guard.longest_wait()).min(of_readings);
        // While ksmd runs, the guard and the policy need their looks on time.
        let has_stood = tick.sample.ksm.run_state() != Some(RunState::Running);
        let stands = has_stood && tick.decision.knobs.get(Knob::Run) != Some(1);
        self.last = Some(tick);
        debug!("a turn took {} us", took.as_micros());
        let per_turn = if stands { WAIT_PER_TURN } else { EVENT_WAIT_PER_TURN };
        self.event_turn_from = self.environment.now() + took.saturating_mul(per_turn).min(wait);
        if stands { stretch_wait(next, took, wait) } else { next }
    }

    /// Hands the turn over to the recorder, without waiting.
    fn record(&mut self, tick: &TickOutcome, notices: &[AlarmTransition]) {
        // Also without a recorder: notes are not collected for ever.
        let folds = self.folder.as_ref().map(Folder::drain_notes).unwrap_or_default();
        let prunes = self.guests.as_ref().map(GuestRegistry::drain_notes).unwrap_or_default();
        let Some(recorder) = &mut self.recorder else { return };
        recorder.record_turn(&RecordedTurn {
            tick,
            notices,
            folds: &folds,
            prunes: &prunes,
            policy: self.controller.policy_name(),
            ksmd_cpu_percent: self.controller.history().ksmd_share().map(|share| share * 100.0),
            day_clock: self.environment.day_clock(),
            uptime: self.environment.now().duration_since(self.started),
        });
    }

    /// Returns the newest snapshot of the guests, which is empty without a registry.
    fn known_guests(&self) -> Arc<GuestSnapshot> {
        self.guests.as_ref().map(GuestRegistry::newest).unwrap_or_default()
    }
}

/// Returns the wait after a turn that took so long, `longest` at most.
fn stretch_wait(wait: Duration, took: Duration, longest: Duration) -> Duration {
    wait.max(took.saturating_mul(WAIT_PER_TURN)).min(longest)
}

/// Returns the content of a dry run: the reason of the decision, and the settings that it would change.
pub fn plan(tick: &TickOutcome) -> (DecisionReason, KnobSettings) {
    (tick.decision.reason.clone(), tick.decision.knobs.differing_from(&tick.sample.ksm))
}
