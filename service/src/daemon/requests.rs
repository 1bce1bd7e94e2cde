//! Answers to requests from the control socket.

use std::time::Duration;

use crossbeam_channel::Sender;
use ksmith_core::decide::domains::DomainsReport;
use ksmith_core::decide::{CpuShare, PausePolicy};
use ksmith_core::model::{DaemonStatus, StatusReport, committed_bytes};
use ksmith_core::sample::Sample;
use ksmith_core::scan::ScanJob;
use ksmith_host::own_use::OwnUse;
use tracing::info;

use super::pause::PAUSED;
use super::{Daemon, DaemonHost};
use crate::balance_service::{BalanceRequest, BalanceService};
use crate::control::{self, ControlReply, ControlRequest, PendingRequest};
use crate::recorder::Recorder;
use crate::sketcher::Sketcher;

/// The greatest age of the sample of an answer.
const FRESH: Duration = Duration::from_millis(100);

impl<H: DaemonHost> Daemon<H> {
    /// Answers a request. Returns true if a turn is to be taken at once.
    pub(super) fn answer(&mut self, asked: PendingRequest) -> bool {
        let (request, reply, peer) = asked.into_parts();
        // A peer that has hung up meanwhile loses its answer.
        let refuse = |message: &str| drop(reply.send(ControlReply::error(message)));
        if matches!(request, ControlRequest::Status | ControlRequest::Guests) && peer.has_gone() {
            // It has waited for too long, and its answer would cost a sample.
            return false;
        }
        match request {
            ControlRequest::Status => {
                let status = self.status();
                let _ = reply.send(status);
            }
            ControlRequest::Guests if self.guests.is_none() => refuse("guests are not watched"),
            ControlRequest::Guests => {
                let sample = self.sample_for_answer();
                if let Some(guests) = &self.guests {
                    guests.report(sample, self.config.domains.clone(), reply);
                }
            }
            ControlRequest::Balance => self.ask_balance(BalanceRequest::Report, reply),
            ControlRequest::Hold(hold) => self.ask_balance(BalanceRequest::Hold(hold), reply),
            ControlRequest::Resize(resize) => self.ask_balance(BalanceRequest::Resize(resize), reply),
            ControlRequest::Switched { pid, on } => {
                self.sampled = None;
                if let Some(guests) = &self.guests {
                    guests.was_switched(pid, on);
                }
                let _ = reply.send(ControlReply::Noted);
                let sample = on.then(|| self.controller.host_mut().sample_now(true));
                let switched = sample.and_then(|sample| sample.processes.into_iter().find(|it| it.id.pid == pid));
                if let Some(process) = switched {
                    // ksmd has not visited it since, and would only at the next probe.
                    self.controller.note_offer(process.id);
                    return true;
                }
            }
            ControlRequest::Scan { passes, max_cpu } => {
                let Some(max_cpu) = max_cpu.map_or(Some(CpuShare::WHOLE), CpuShare::new) else {
                    refuse("max_cpu must be over 0 and at most 1");
                    return false;
                };
                if self.pause.is_some() {
                    refuse(PAUSED);
                    return false;
                }
                if !self.make_way() {
                    refuse("a scan is in progress already");
                    return false;
                }
                let limits = control::scan_limits(&self.config.limits, max_cpu);
                info!("scanning on demand: {passes} passes with at most {} of a CPU", limits.max_cpu);
                self.begin_read_scan(ScanJob::all_pages(passes.clamp(1, 1000)), limits, reply, peer);
                return true;
            }
            ControlRequest::Pause { seconds } => {
                let time = seconds.map(|seconds| Duration::try_from_secs_f64(seconds).ok());
                if time.is_some_and(|time| time.is_none_or(|time| time.is_zero())) {
                    refuse("the time of a pause must be over 0: name seconds, or none");
                    return false;
                }
                let message = self.begin_pause(time.flatten());
                let _ = reply.send(ControlReply::Done { message });
                return true;
            }
            ControlRequest::Resume => {
                let was_paused = self.end_pause();
                let message = if was_paused { "merging continues" } else { "merging is not paused" };
                let _ = reply.send(ControlReply::Done { message: message.to_owned() });
                return was_paused;
            }
        }
        false
    }

    fn ask_balance(&self, ask: BalanceRequest, reply: Sender<ControlReply>) {
        match &self.balance {
            Some(balance) => balance.send_request(ask, reply),
            None => {
                let _ = reply.send(ControlReply::error("guests are not balanced: the daemon's log says why"));
            }
        }
    }

    /// Returns a sample that is at most [`FRESH`] old. So requests without end do not make the daemon sample without end,
    /// and status and guests, which are requested together, are of one sample. It is newer than the last turn, whose
    /// sample is from before its own changes.
    fn sample_for_answer(&mut self) -> Sample {
        let now = self.environment.now();
        if let Some((_, sample)) = self.sampled.as_ref().filter(|(then, _)| now.duration_since(*then) < FRESH) {
            return sample.clone();
        }
        self.controller.host_mut().set_folded(self.folded.of_folder());
        let sample = self.controller.host_mut().sample_now(true);
        // The time after the sample: one that takes long is not taken again for each request that waits.
        self.sampled = Some((self.environment.now(), sample.clone()));
        sample
    }

    fn status(&mut self) -> ControlReply {
        let sample = self.sample_for_answer();
        let Some(tick) = &self.last else { return ControlReply::error("the daemon has not taken a sample yet") };
        let own = OwnUse::now();
        let day_clock = self.environment.day_clock();
        let pause = self.pause.as_mut().filter(|_| tick.decision.reason.state == PausePolicy::STATE);
        let of_pause = pause.map(|pause| (pause.reason(&sample, day_clock), pause.day_end()));
        let (of_pause, paused_until) = of_pause.map_or((None, None), |(reason, end)| (Some(reason), end));
        let reason = of_pause.as_ref().unwrap_or(&tick.decision.reason);
        let guests = self.known_guests().name(&sample).guests;
        let domains = DomainsReport::from_guests(&self.config.domains, &guests, self.guard.admitted());
        let status = StatusReport {
            sample,
            domains: Some(domains),
            committed_bytes: committed_bytes(&guests),
            balance: self.balance.as_ref().and_then(BalanceService::status),
            history: self.recorder.as_ref().map(Recorder::status),
            sketch: self.sketcher.as_ref().map(Sketcher::status),
            ksmd_cpu_percent: self.controller.history().ksmd_share().map(|share| share * 100.0),
            daemon: Some(DaemonStatus {
                pid: std::process::id(),
                policy: self.controller.policy_name().to_owned(),
                state: reason.state.to_owned(),
                reason: reason.text.clone(),
                reason_detail: reason.detail.clone(),
                cpu_seconds: own.cpu.as_secs_f64(),
                rss_bytes: own.rss_bytes,
                uptime_seconds: self.environment.now().duration_since(self.started).as_secs_f64(),
                max_cpu: Some(self.config.limits.max_cpu.part()),
                paused_until: paused_until.map(|end| end as f64 / 1e3),
            }),
        };
        ControlReply::Status(Box::new(status))
    }
}
