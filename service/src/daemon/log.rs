//! Messages about turns, to the log and to the service manager.

use std::time::Duration;

use ksmith_core::controller::{KEEPS_MERGES, TickOutcome};
use ksmith_core::knobs::KnobChange;
use ksmith_core::printable::OneLine;
use ksmith_core::sample::{GivenUp, GivenUpList};
use ksmith_core::units::TimeSpan;
use ksmith_host::other_controllers::ControllerProcess;
use sd_notify::NotifyState;
use tracing::{debug, error, info, warn};

use super::{Daemon, DaemonHost};

/// The shortest time between two warnings about the same setting.
const SAME_WARNING: Duration = Duration::from_secs(60);

/// The shortest time between two sentences for the service manager.
const SAME_STATUS: Duration = Duration::from_secs(10);

/// A wait that is longer than any batch of ksmd.
const LONG_WAIT: Duration = Duration::from_secs(3);

impl<H: DaemonHost> Daemon<H> {
    pub(super) fn log(&mut self, tick: &TickOutcome) {
        let reason = &tick.decision.reason;
        self.warn_of_other_writers(&tick.foreign);
        self.warn_of_given_up(&tick.sample.given_up);
        self.warn_of_waiting(&tick.applied.waiting);
        let before = self.last.as_ref();
        let is_new_state = before.is_none_or(|before| before.decision.reason.state != reason.state);
        let is_decision = is_new_state || tick.applied.changes.iter().any(|change| !change.knob.is_pace());
        let left_out = if is_decision { self.logged.admit(tick.sample.at) } else { None };
        if let Some(count @ 1..) = left_out {
            info!("{count} decisions before this one were logged at level DEBUG only: there were too many");
        }
        for change in &tick.applied.changes {
            if change.knob.is_pace() || left_out.is_none() {
                debug!("{change} ({reason:#})");
            } else if change.knob.is_of_khugepaged() {
                info!("{change} ({KEEPS_MERGES})");
            } else {
                info!("{change} ({reason})");
            }
        }
        let known = before.map_or(&[][..], |before| &before.unkept);
        for error in tick.unkept.iter().filter(|error| !known.contains(error)) {
            warn!("khugepaged may undo what is merged: {error}");
        }
        // An error that persists is logged once, not at every turn.
        let known = before.map_or(&[][..], |before| &before.applied.errors);
        for error in tick.applied.errors.iter().filter(|error| !known.contains(error)) {
            error!("{error}");
        }
        match before.map(|before| &before.decision.reason) {
            Some(before) if before == reason => {}
            Some(_) if !is_new_state || left_out.is_none() => debug!("{reason:#}"),
            _ => {
                info!("{reason}");
                if let Some(detail) = &reason.detail {
                    debug!("{}: {detail}", reason.state);
                }
            }
        }
        self.tell_service_manager(reason.to_string());
    }

    /// Logs processes that are given up: each once while that lasts, and a few at a time, since any user may have many.
    fn warn_of_given_up(&mut self, list: &GivenUpList) {
        let now = self.environment.now();
        let (then, known) = &mut self.given_up;
        // A user's number of processes changes all the time.
        let as_known = |process: &GivenUp| GivenUp { others: 0, ..process.clone() };
        let news: Vec<&GivenUp> = list.named.iter().filter(|process| !known.contains(&as_known(process))).collect();
        if news.is_empty() {
            *known = list.named.iter().map(as_known).collect();
            return;
        }
        if then.is_some_and(|then| now.duration_since(then) < SAME_STATUS) {
            return;
        }
        for process in &news {
            warn!("{process}");
        }
        let rest = list.rest();
        if rest > 0 {
            warn!("{rest} more processes are given up");
        }
        self.given_up = (Some(now), list.named.iter().map(as_known).collect());
    }

    /// Warns once of a setting that waits for ksmd longer than any batch takes.
    fn warn_of_waiting(&mut self, waiting: &[String]) {
        let now = self.environment.now();
        let Some(sentence) = waiting.first() else {
            self.waiting = None;
            return;
        };
        debug!("{sentence}");
        let (since, is_said) = self.waiting.get_or_insert((now, false));
        if !*is_said && now.duration_since(*since) >= LONG_WAIT {
            *is_said = true;
            warn!("{sentence}; so for {}", TimeSpan(LONG_WAIT));
        }
    }

    /// Returns the time for which a setting has been waiting for ksmd.
    pub(super) fn waits_for(&self) -> Duration {
        self.waiting.map_or(Duration::ZERO, |(since, _)| self.environment.now().duration_since(since))
    }

    /// Warns that another program writes, and names the programs that may do so: once a minute for each setting.
    fn warn_of_other_writers(&mut self, foreign: &[KnobChange]) {
        let now = self.environment.now();
        let warned = &mut self.warned;
        let is_due = |change: &&KnobChange| {
            let is_due = warned.get(&change.knob).is_none_or(|then| now.duration_since(*then) >= SAME_WARNING);
            if is_due {
                warned.insert(change.knob, now);
            }
            is_due
        };
        let due: Vec<&KnobChange> = foreign.iter().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        let suspects = suspects(&self.controller.host().holders());
        for change in due {
            warn!("another program changed a setting: {change}; setting it back; {suspects}");
        }
    }

    /// Sends the newest sentence to the service manager, at most every [`SAME_STATUS`].
    fn tell_service_manager(&mut self, sentence: String) {
        let now = self.environment.now();
        let is_due = self
            .told
            .as_ref()
            .is_none_or(|(then, told)| now.duration_since(*then) >= SAME_STATUS && *told != sentence);
        if is_due {
            self.environment.notify(&[NotifyState::Status(&status_line(&sentence))]);
            self.told = Some((now, sentence));
        }
    }
}

/// Formats the sentence on one line: a line break would begin another assignment to the service manager, such as
/// `MAINPID=`.
fn status_line(sentence: &str) -> String {
    OneLine(sentence).to_string()
}

fn suspects(holders: &[ControllerProcess]) -> String {
    if holders.is_empty() {
        return "no program that is known to control KSM runs here".to_owned();
    }
    let suspects: Vec<String> =
        holders.iter().map(|holder| format!("it may be {holder}: {}", holder.remedy())).collect();
    suspects.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_name_tells_the_service_manager_nothing() {
        assert_eq!(status_line("parked: web\nMAINPID=1 is outside"), "parked: web\\nMAINPID=1 is outside");
    }
}
