//! Scans on demand: for root at the control socket, for users at theirs, and for balance when memory runs short. The
//! policy waits meanwhile, and finds the settings as it left them.

use std::time::Duration;

use crossbeam_channel::Sender;
use ksmith_core::balance::KsmStep;
use ksmith_core::decide::{CpuShare, OnDemandPolicy, PolicyLimits};
use ksmith_core::knobs::KnobSettings;
use ksmith_core::scan::ScanJob;
use tracing::{debug, error, info};

use super::pause::PAUSED;
use super::{Daemon, DaemonHost};
use crate::control::{self, ControlReply, PeerWatch, ScanFigures, ScanReply};
use ksmith_core::controller::{ApplyOutcome, TickOutcome, WaitingPolicy};

/// Passes of a burst: a page merges on its second visit.
const BURST_PASSES: u64 = 2;

/// The longest wait of a scan for ksmd. A batch takes milliseconds, and seconds on a host short of CPU.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A scan on demand in progress, and the policy that waits for its end.
#[derive(Debug)]
pub(super) struct DemandScan {
    pub(super) waiting: WaitingPolicy,
    before: Option<ScanFigures>,
    requester: ScanRequester,
    /// True once all processes were looked at. A process that has marked memory in the last seconds shows only then.
    has_looked: bool,
}

/// The requester of a scan.
#[derive(Debug)]
pub(super) enum ScanRequester {
    /// Root, at the control socket.
    Control { reply: Sender<ControlReply>, peer: PeerWatch },
    /// The users that `user_scans` serves.
    Users,
    /// Balance, which does not wait.
    Balance,
}

/// Returns the CPU time of ksmd between two moments.
fn spent(before: &ScanFigures, now: &ScanFigures) -> Duration {
    Duration::try_from_secs_f64(now.ksmd_cpu_seconds - before.ksmd_cpu_seconds).unwrap_or_default()
}

impl<H: DaemonHost> Daemon<H> {
    pub(super) fn begin_scan(&mut self, job: ScanJob, limits: PolicyLimits, requester: ScanRequester) {
        let found = KnobSettings::current(&self.controller.host_mut().sample_now(false).ksm);
        let mut waiting = self.controller.begin_scan(job, limits, &found);
        // What an earlier scan has changed and could not put back yet.
        for (knob, value) in self.unrestored.take().iter().flat_map(KnobSettings::iter) {
            waiting.set_original(knob, value);
        }
        self.scan = Some(DemandScan { waiting, before: None, requester, has_looked: false });
    }

    /// Makes way for a scan of root's or balance's, and returns true unless another such scan is in progress. A scan
    /// for users is interrupted, and made again afterwards.
    pub(super) fn make_way(&mut self) -> bool {
        if self.scan_readings.is_some() {
            return false;
        }
        match self.scan.take() {
            None => true,
            Some(DemandScan { waiting, before, requester: ScanRequester::Users, .. }) => {
                let now = ScanFigures::from_sample(&self.controller.host_mut().sample_now(false));
                let spent = before.map_or(Duration::ZERO, |before| spent(&before, &now));
                info!("the scan for users makes way for another");
                self.end_scan(waiting);
                self.user_scans.interrupt(spent);
                true
            }
            scan => {
                self.scan = scan;
                false
            }
        }
    }

    /// Makes way for a scan of balance's, as [`Self::make_way`] does. A scan of root's that is done is answered at once.
    fn make_way_for_balance(&mut self) -> bool {
        self.answer_done_scan();
        self.make_way()
    }

    /// Ends the scan that is in progress, if there is one, for a pause.
    pub(super) fn give_up_scan(&mut self) {
        self.give_up_readings();
        if self.make_way() {
            return;
        }
        let Some(scan) = self.scan.take() else { return };
        self.end_scan(scan.waiting);
        if let ScanRequester::Control { reply, .. } = scan.requester {
            let _ = reply.send(ControlReply::error(format!("the scan was given up: {PAUSED}")));
        }
    }

    /// Restores the settings that a scan has changed, and the policy that has waited for its end.
    fn end_scan(&mut self, waiting: WaitingPolicy) {
        let (settings, applied) = self.controller.end_scan(waiting, self.config.limits.clone());
        applied.errors.iter().for_each(|error| error!("{error}; it is tried again once it can be written"));
        self.note_unrestored(settings, &applied);
    }

    /// Restores settings from before a scan, none of which the policy decides. Those that wait for ksmd are tried again at each
    /// turn, and those whose files can't be written once they can.
    fn put_back(&mut self, settings: KnobSettings) {
        let applied = self.controller.host_mut().apply(&settings);
        // They were errors at the end of the scan.
        applied.errors.iter().for_each(|error| debug!("{error}"));
        self.note_unrestored(settings, &applied);
    }

    fn note_unrestored(&mut self, settings: KnobSettings, applied: &ApplyOutcome) {
        self.unrestored = if !applied.waiting.is_empty() {
            Some(settings)
        } else if !applied.errors.is_empty() {
            // What another program writes meanwhile is its doing, and not written against.
            let sample = self.controller.host_mut().sample_now(false);
            let left = settings.differing_from(&sample.ksm);
            Some(left).filter(|left| sample.is_ksm_read_only && !left.is_empty())
        } else {
            None
        };
    }

    /// Begins the scan that users wait for, unless one is under way. Returns true if a turn is to be taken at once.
    pub(super) fn serve_users(&mut self) -> bool {
        if self.scan.is_some() || self.scan_readings.is_some() {
            return false;
        }
        let Some(passes) = self.user_scans.begin() else { return false };
        if self.pause.is_some() {
            self.user_scans.finish(Duration::ZERO, &Err(PAUSED.to_owned()));
            return false;
        }
        let limits = control::scan_limits(&self.config.limits, self.config.optin.max_cpu);
        debug!("scanning for users: {passes} passes");
        // Each pass is paid for, and users split huge pages at will.
        let job = ScanJob { extra_passes: 0, ..ScanJob::all_pages(passes) };
        self.begin_scan(job, limits, ScanRequester::Users);
        true
    }

    /// Carries out a step of balance for merging. Returns true if a turn is to be taken at once.
    pub(super) fn change_merging(&mut self, step: &KsmStep) -> bool {
        match step {
            KsmStep::BurstMerge if self.pause.is_none() && self.make_way_for_balance() => {
                info!("merging what can be merged: the pool is short");
                let limits = control::scan_limits(&self.config.limits, CpuShare::WHOLE);
                self.begin_scan(ScanJob::all_pages(BURST_PASSES), limits, ScanRequester::Balance);
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

    pub(super) fn finish_scan(&mut self, tick: &TickOutcome) {
        if let Some(settings) = self.unrestored.take() {
            if tick.sample.is_ksm_read_only {
                self.unrestored = Some(settings);
            } else {
                // What the turn has decided holds, such as a parked ksmd.
                let decided = &tick.decision.knobs;
                self.put_back(settings.iter().filter(|(knob, _)| decided.get(*knob).is_none()).collect());
            }
        }
        let may_wait = self.waits_for() < LONGEST_WAIT;
        let Some(scan) = &mut self.scan else { return };
        let before = *scan.before.get_or_insert_with(|| ScanFigures::from_sample(&tick.sample));
        if may_wait && !tick.applied.waiting.is_empty() {
            // What the scan has changed can be put back once ksmd has ended its batch.
            return;
        }
        let state = tick.decision.reason.state;
        // A scan with all passes made is done, however late ksmd stops.
        let waiting = tick.applied.waiting.first().filter(|_| state != OnDemandPolicy::DONE);
        let now = ScanFigures::from_sample(&tick.sample);
        let spent = spent(&before, &now);
        let is_wanted = match &scan.requester {
            ScanRequester::Control { peer, .. } => !peer.has_gone(),
            ScanRequester::Users => self.user_scans.go_on(spent),
            ScanRequester::Balance => true,
        };
        let outcome = if !is_wanted {
            info!("the peer that asked for the scan has gone; it ends");
            Err("no peer waits for the scan".to_owned())
        } else if let Some(error) = tick.applied.errors.first().or(waiting) {
            Err(format!("the scan was given up: {error}"))
        } else if tick.sample.is_ksm_read_only {
            Err(format!("the scan was given up: {}", tick.decision.reason.text))
        } else if control::nothing_to_scan(&tick.sample) && !scan.has_looked {
            scan.has_looked = true;
            self.controller.host_mut().look_at_all();
            return;
        } else if state == OnDemandPolicy::STALLED
            || control::nothing_to_scan(&tick.sample) && tick.sample.shows_mergeable
        {
            Err(control::NOTHING_TO_SCAN.to_owned())
        } else if state == OnDemandPolicy::DONE {
            Ok(())
        } else {
            return;
        };
        let Some(scan) = self.scan.take() else { return };
        self.end_scan(scan.waiting);
        match scan.requester {
            ScanRequester::Users => self.user_scans.finish(spent, &outcome),
            ScanRequester::Balance => debug!("merged what could be merged: {outcome:?}"),
            ScanRequester::Control { reply, .. } => match outcome {
                Ok(()) => self.answer_read_scan(ScanReply { before, after: now }, reply),
                Err(message) => drop(reply.send(ControlReply::Error { message })),
            },
        }
        // Users may have asked meanwhile.
        self.serve_users();
    }
}
