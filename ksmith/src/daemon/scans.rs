//! Scans on demand: for root at the control socket, for users at theirs, and for balance when memory runs short. The
//! policy waits meanwhile, and finds the settings as it left them.

use std::time::Duration;

use crossbeam_channel::Sender;
use ksmith_core::balance::KsmStep;
use ksmith_core::decide::{Limits, OnDemand, Policy, Share};
use ksmith_core::knobs::{Knob, Knobs};
use tracing::{debug, error, info};

use super::Daemon;
use crate::control::{self, Answer, Figures, Peer, ScanAnswer};
use crate::controller::Tick;

/// A page merges on its second visit.
const BURST_PASSES: u64 = 2;

/// A scan on demand in progress, and the policy that waits for its end.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) waiting: Box<dyn Policy>,
    before: Option<Figures>,
    for_whom: ForWhom,
    /// What the scan changes, as it was.
    settings: Knobs,
    /// Whether everybody was looked at before it is said that nobody offers memory: who has marked some in the last
    /// seconds may not have been.
    has_looked: bool,
}

/// Who waits for a scan.
#[derive(Debug)]
pub(super) enum ForWhom {
    /// Root, at the control socket.
    Control { reply: Sender<Answer>, peer: Peer },
    /// Those whom `user_scans` serves.
    Users,
    /// Balance, which does not wait.
    Balance,
}

/// What a scan changes, to be put back after it: the waiting policy may leave some of it to the operator.
fn changed_by_scan(found: &Knobs) -> Knobs {
    use ksmith_core::knobs::Knob::{AdvisorMode, PagesToScan, Run, SleepMillisecs, SmartScan};
    let is_on = found.get(AdvisorMode) == Some(1);
    let restorable = |(knob, value): &(Knob, u64)| match knob {
        // The kernel refuses it while its advisor is on.
        PagesToScan => !is_on,
        Run => *value <= 1,
        AdvisorMode | SleepMillisecs | SmartScan => true,
        _ => false,
    };
    found.iter().filter(restorable).collect()
}

impl Daemon {
    pub(super) fn begin_scan(&mut self, passes: u64, limits: Limits, for_whom: ForWhom) {
        let waiting = self.controller.replace(Box::new(OnDemand::new(passes)), limits);
        let found = Knobs::current(&self.controller.host_mut().observer.sample().ksm);
        self.scan =
            Some(Scan { waiting, before: None, for_whom, settings: changed_by_scan(&found), has_looked: false });
    }

    /// Begins the scan that users wait for, unless one is under way. Returns whether a turn is to be taken at once.
    pub(super) fn serve_users(&mut self) -> bool {
        if self.scan.is_some() {
            return false;
        }
        let Some(passes) = self.user_scans.begin() else { return false };
        let limits = control::scan_limits(&self.config.limits, self.config.optin.max_cpu);
        debug!("scanning for users: {passes} passes");
        self.begin_scan(passes, limits, ForWhom::Users);
        true
    }

    /// Does what balance wants of merging. Returns whether a turn is to be taken at once.
    pub(super) fn change_merging(&mut self, step: &KsmStep) -> bool {
        match step {
            KsmStep::BurstMerge if self.scan.is_none() => {
                info!("merging what can be merged: the pool is short");
                let limits = control::scan_limits(&self.config.limits, Share::WHOLE);
                self.begin_scan(BURST_PASSES, limits, ForWhom::Balance);
                true
            }
            KsmStep::Unmerge { key } => {
                if let Some(guests) = &self.guests {
                    guests.switch_off(key.clone());
                }
                false
            }
            KsmStep::BurstMerge | KsmStep::RefuseSwitches => false,
        }
    }

    pub(super) fn finish_scan(&mut self, tick: &Tick) {
        let Some(scan) = &mut self.scan else { return };
        let before = *scan.before.get_or_insert_with(|| Figures::of(&tick.sample));
        let state = tick.decision.reason.state;
        let now = Figures::of(&tick.sample);
        let spent = Duration::try_from_secs_f64(now.ksmd_cpu_seconds - before.ksmd_cpu_seconds).unwrap_or_default();
        let is_wanted = match &scan.for_whom {
            ForWhom::Control { peer, .. } => !peer.has_gone(),
            ForWhom::Users => self.user_scans.go_on(spent),
            ForWhom::Balance => true,
        };
        let outcome = if !is_wanted {
            info!("whoever asked for the scan has gone; it ends");
            Err("nobody waits for the scan".to_owned())
        } else if let Some(error) = tick.applied.errors.first() {
            Err(format!("the scan was given up: {error}"))
        } else if control::nothing_to_scan(&tick.sample) && !scan.has_looked {
            scan.has_looked = true;
            self.controller.host_mut().observer.look_at_all();
            return;
        } else if state == OnDemand::STALLED || control::nothing_to_scan(&tick.sample) {
            Err(control::NOTHING_TO_SCAN.to_owned())
        } else if state == OnDemand::DONE {
            Ok(())
        } else {
            return;
        };
        let Some(scan) = self.scan.take() else { return };
        for error in self.controller.put_back(&scan.settings).errors {
            error!("{error}");
        }
        self.controller.replace(scan.waiting, self.config.limits.clone());
        match scan.for_whom {
            ForWhom::Users => self.user_scans.finish(spent, &outcome),
            ForWhom::Balance => debug!("merged what could be merged: {outcome:?}"),
            ForWhom::Control { reply, .. } => {
                let answer = match outcome {
                    Ok(()) => Answer::Scan(ScanAnswer { before, after: now }),
                    Err(message) => Answer::Error { message },
                };
                let _ = reply.send(answer);
            }
        }
        // Those who came meanwhile.
        self.serve_users();
    }
}
