//! Alarms, checked at each turn.

use std::time::Duration;

use ksmith_core::account::HostTotals;
use ksmith_core::alarm::{AlarmInput, AlarmTransition};
use ksmith_core::decide::domains::{DomainsConfig, DomainsReport};
use ksmith_core::sample::Sample;
use ksmith_host::guests::GuestSnapshot;
use tracing::warn;

use super::{Daemon, DaemonHost};

/// The interval between two checks of the domains, each of which names all guests.
const DOMAINS: Duration = Duration::from_secs(60);

impl<H: DaemonHost> Daemon<H> {
    /// Detects alarms that begin or end, and hands them to the notifier.
    pub(super) fn watch_for_alarms(&mut self, sample: &Sample, known: &GuestSnapshot) -> Vec<AlarmTransition> {
        if !sample.ksm.is_present() {
            return Vec::new();
        }
        self.look_at_domains(sample, known);
        let facts =
            AlarmInput { at: sample.at, totals: HostTotals::from_sample(sample), breach: self.breach.1.as_deref() };
        let notices = self.alarms.update(&facts);
        for notice in &notices {
            warn!("{notice}");
            if let Some(notifier) = &self.notifier {
                notifier.queue_notice(notice.clone());
            }
        }
        notices
    }

    fn look_at_domains(&mut self, sample: &Sample, known: &GuestSnapshot) {
        let (last, found) = &mut self.breach;
        if self.config.domains.is_unconfigured() {
            *found = None;
            return;
        }
        if last.is_some_and(|last| sample.at.saturating_sub(last) < DOMAINS) {
            return;
        }
        *last = Some(sample.at);
        *found = breach(&self.config.domains, sample, known);
    }
}

/// Describes how guests of different domains may share pages in spite of the rules; `None` if they may not.
fn breach(config: &DomainsConfig, sample: &Sample, known: &GuestSnapshot) -> Option<String> {
    let report = DomainsReport::from_guests(config, &known.name(sample).guests, None);
    report.may_share_across.then_some(report.meaning)
}
