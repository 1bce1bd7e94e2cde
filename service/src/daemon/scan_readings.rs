//! Readings of page tables before and after a scan that root requests: its answer says what is really saved.
//!
//! No turn waits for them. Turns come in short intervals until they are there.

use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use ksmith_core::decide::PolicyLimits;
use ksmith_core::sample::Sample;
use ksmith_core::scan::ScanJob;
use tracing::{info, warn};

use super::pause::PAUSED;
use super::scans::ScanRequester;
use super::{Daemon, DaemonHost};
use crate::control::{ControlReply, PeerWatch, ScanFigures, ScanReply};

/// The longest wait for readings: those of some TiB. After that, those count that are there.
const LONGEST_READING: Duration = Duration::from_secs(30);

/// The time between two turns that wait for readings.
const READING_POLL: Duration = Duration::from_millis(50);

/// A scan whose readings are awaited.
#[derive(Debug)]
pub(super) struct ScanReadings {
    step: ReadScanStep,
    deadline: Instant,
}

/// The step of the scan that comes after the readings.
#[derive(Debug)]
enum ReadScanStep {
    /// It begins.
    Begin { job: ScanJob, limits: PolicyLimits, reply: Sender<ControlReply>, peer: PeerWatch },
    /// It is done, and is answered.
    Answer { scan: ScanReply, reply: Sender<ControlReply> },
}

impl ReadScanStep {
    /// Returns true if nobody waits any more for a scan that has not begun.
    fn has_lost_peer(&self) -> bool {
        matches!(self, Self::Begin { peer, .. } if peer.has_gone())
    }
}

impl<H: DaemonHost> Daemon<H> {
    /// Begins a scan for root once all page tables were read.
    pub(super) fn begin_read_scan(
        &mut self,
        job: ScanJob,
        limits: PolicyLimits,
        reply: Sender<ControlReply>,
        peer: PeerWatch,
    ) {
        self.await_readings(ReadScanStep::Begin { job, limits, reply, peer });
    }

    /// Answers a scan of root's that is done once all page tables were read again.
    pub(super) fn answer_read_scan(&mut self, scan: ScanReply, reply: Sender<ControlReply>) {
        self.await_readings(ReadScanStep::Answer { scan, reply });
    }

    fn await_readings(&mut self, step: ReadScanStep) {
        self.controller.host_mut().renew_readings();
        if self.controller.host().is_renewing_readings() {
            let deadline = self.environment.now() + LONGEST_READING;
            self.scan_readings = Some(ScanReadings { step, deadline });
        } else {
            self.take_step(step, None);
        }
    }

    /// Goes on with a scan whose readings are in this sample of the turn. Returns the longest wait for the next turn, if one
    /// is to come soon.
    pub(super) fn follow_readings(&mut self, sample: &Sample) -> Option<Duration> {
        let readings = self.scan_readings.take()?;
        if readings.step.has_lost_peer() {
            self.controller.host_mut().cancel_readings();
            self.take_step(readings.step, Some(sample));
            return Some(Duration::ZERO);
        }
        let is_late = self.environment.now() >= readings.deadline;
        if self.controller.host().is_renewing_readings() && !is_late {
            self.scan_readings = Some(readings);
            return Some(READING_POLL);
        }
        if is_late {
            self.controller.host_mut().cancel_readings();
            warn!("the scan goes by page tables as far as they were read within {LONGEST_READING:?}");
        }
        self.take_step(readings.step, Some(sample));
        Some(Duration::ZERO)
    }

    fn take_step(&mut self, step: ReadScanStep, sample: Option<&Sample>) {
        match step {
            ReadScanStep::Begin { peer, .. } if peer.has_gone() => {
                info!("the peer that asked for the scan has gone; it does not begin");
            }
            ReadScanStep::Begin { job, limits, reply, peer } => {
                self.begin_scan(job, limits, ScanRequester::Control { reply, peer });
            }
            ReadScanStep::Answer { mut scan, reply } => {
                if let Some(sample) = sample {
                    // ksmd's CPU time since the end is not the scan's.
                    let ksmd_cpu_seconds = scan.after.ksmd_cpu_seconds;
                    scan.after = ScanFigures { ksmd_cpu_seconds, ..ScanFigures::from_sample(sample) };
                }
                let _ = reply.send(ControlReply::Scan(scan));
            }
        }
        // Users may have asked meanwhile.
        self.serve_users();
    }

    /// Gives up a scan that has not begun, for a pause, and answers one that is done.
    pub(super) fn give_up_readings(&mut self) {
        let Some(ScanReadings { step, .. }) = self.scan_readings.take() else { return };
        self.controller.host_mut().cancel_readings();
        let _ = match step {
            ReadScanStep::Begin { reply, .. } => {
                reply.send(ControlReply::error(format!("the scan was given up: {PAUSED}")))
            }
            ReadScanStep::Answer { scan, reply } => reply.send(ControlReply::Scan(scan)),
        };
    }

    /// Answers a scan that is done by what was read so far.
    pub(super) fn answer_done_scan(&mut self) {
        if matches!(&self.scan_readings, Some(ScanReadings { step: ReadScanStep::Answer { .. }, .. })) {
            self.give_up_readings();
        }
    }
}
