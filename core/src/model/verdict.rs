//! The verdict on a host: fine, or something to look at or to act on, in one sentence.

use std::cmp::Reverse;

use super::StatusReport;
use crate::account::HostTotals;
use crate::alarm::{ALERTS, AlarmCause, AlarmInput, AlarmOnset, AlertSeverity};
use crate::decide::domains::DomainsReport;
use crate::units::Bytes;

/// Part of the headroom from which on the exposure asks for a look.
const NEAR: f64 = 0.8;

/// Per cent of the last ten seconds in which work waited for memory, from which on that asks for a look.
const PRESSURE: f32 = 10.0;

/// The level of a verdict, the mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictLevel {
    /// Nothing needs the operator.
    Fine,
    /// Something should be looked at soon.
    Look,
    /// Guests are at risk: the operator should act.
    Act,
}

impl VerdictLevel {
    /// Returns its stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Look => "look",
            Self::Act => "act",
        }
    }
}

/// The verdict on a host at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVerdict {
    /// The level: that of the gravest finding.
    pub level: VerdictLevel,
    /// The gravest finding with its remedy, or the savings where nothing was found, in a sentence in lower case.
    pub sentence: String,
}

impl HostVerdict {
    fn look(sentence: impl Into<String>) -> Self {
        Self { level: VerdictLevel::Look, sentence: sentence.into() }
    }
}

impl StatusReport {
    /// Returns the verdict: the gravest finding, or what merging saves.
    pub fn verdict(&self) -> HostVerdict {
        self.findings().into_iter().next().unwrap_or_else(|| HostVerdict {
            level: VerdictLevel::Fine,
            sentence: describe_savings(&HostTotals::from_sample(&self.sample)),
        })
    }

    /// Returns all that needs the operator, the gravest first.
    pub fn findings(&self) -> Vec<HostVerdict> {
        let totals = &HostTotals::from_sample(&self.sample);
        let mut findings = Vec::new();
        if !self.sample.ksm.is_present() {
            findings.push(HostVerdict::look("this kernel shows no KSM: no memory can be merged here"));
        }
        if !totals.is_unknown {
            findings.extend(self.alarms(totals));
            findings.extend(describe_near_exposure(totals));
        }
        let pressure = self.sample.host.memory_pressure.value().and_then(|pressure| pressure.some.avg10);
        if let Some(percent) = pressure.filter(|percent| *percent >= PRESSURE) {
            findings.push(HostVerdict::look(format!(
                "memory is short: in {percent:.0} % of the last ten seconds some work waited for it (`ksmith balance`)"
            )));
        }
        let exposed = self.balance.as_ref().and_then(|balance| balance.exposed.clone());
        findings.extend(exposed.map(HostVerdict::look));
        findings.extend(self.errors().into_iter().map(HostVerdict::look));
        // Stable: findings of one level stay in their order.
        findings.sort_by_key(|finding| Reverse(finding.level));
        findings
    }

    /// Returns the present causes of the daemon's own alarms, as far as a sample shows them.
    fn alarms(&self, totals: &HostTotals) -> impl Iterator<Item = HostVerdict> {
        // Without configured domains the operator has not asked for guests to be kept apart.
        let is_of_domain = |report: &&DomainsReport| {
            let mut domains = report.domains.iter();
            report.may_share_across
                && domains.any(|figures| figures.domain.is_some() && figures.mergeable_guests > 0)
        };
        let breach = self.domains.as_ref().filter(is_of_domain).map(|report| report.meaning.as_str());
        let input = AlarmInput { at: self.sample.at, totals: *totals, breach };
        let alarms = ALERTS.iter().filter_map(|row| Some((row, row.alarm.as_ref()?)));
        // One sample does not tell a lasting loss from that of a first pass, which costs metadata before it saves.
        let judged = alarms.filter(|(_, alarm)| !matches!(alarm.onset, AlarmOnset::ProfitMinutes));
        judged.filter_map(move |(row, alarm)| match (alarm.cause)(&input) {
            AlarmCause::Present(sentence) => {
                let level = match row.severity {
                    AlertSeverity::Critical => VerdictLevel::Act,
                    AlertSeverity::Warning | AlertSeverity::Info => VerdictLevel::Look,
                };
                Some(HostVerdict { level, sentence })
            }
            AlarmCause::Unknown | AlarmCause::Absent => None,
        })
    }
}

fn describe_near_exposure(totals: &HostTotals) -> Option<HostVerdict> {
    let headroom = totals.headroom_bytes?;
    let is_near = totals.exposure_bytes as f64 > NEAR * headroom as f64;
    (is_near && !totals.is_overexposed()).then(|| {
        HostVerdict::look(format!(
            "merging saves {}, and the host has only {} if guests write to all of it: give it swap or memory",
            Bytes::from(totals.exposure_bytes),
            Bytes::from(headroom)
        ))
    })
}

fn describe_savings(totals: &HostTotals) -> String {
    let saved = Bytes::from(totals.saved_bytes);
    match totals.headroom_bytes {
        _ if totals.is_unknown => "KSM's counters can't be read".to_owned(),
        _ if totals.saved_bytes == 0 => "nothing is merged now".to_owned(),
        Some(headroom) => {
            let headroom = Bytes::from(headroom);
            format!("merging saves {saved}, and the host has {headroom} if guests write to all of it")
        }
        None => format!("merging saves {saved}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::domains::{DomainFigures, DomainMode};
    use crate::kernel::{Meminfo, Psi, StallTimes};
    use crate::reading::Reading;

    const MIB: u64 = 1 << 20;

    /// A host that saves so many MiB, tracks so many pages that merge with none, and has so many MiB left.
    fn host(saved_mib: u64, unshared: u64, left_mib: u64) -> StatusReport {
        let mut status = StatusReport::default();
        let sample = &mut status.sample;
        sample.page_size = 4096;
        sample.ksm.run = Reading::Value(1);
        sample.ksm.pages_sharing = Reading::Value(saved_mib * MIB / 4096);
        sample.ksm.pages_shared = Reading::Value(1);
        sample.ksm.pages_unshared = Reading::Value(unshared);
        let memory = Meminfo { total: Some(1 << 40), available: Some(left_mib * MIB), ..Meminfo::default() };
        sample.host.memory = Reading::Value(memory);
        status
    }

    fn levels(status: &StatusReport) -> (VerdictLevel, String) {
        let HostVerdict { level, sentence } = status.verdict();
        (level, sentence)
    }

    #[test]
    fn the_gravest_finding_is_the_verdict() {
        let saves = |saved, unshared, left| {
            let mut status = host(saved, unshared, left);
            // Without hidden processes nobody would map what is merged.
            status.sample.hidden_processes = 1;
            status
        };
        let (level, sentence) = levels(&saves(64, 0, 32));
        assert_eq!(level, VerdictLevel::Act, "the exposure is over the headroom: {sentence}");
        assert!(sentence.contains("64.0 MiB") && sentence.contains("swap"), "{sentence}");
        let mut both = saves(64, 0, 32);
        both.sample.host.vmstat = Reading::Denied;
        let levels_found: Vec<VerdictLevel> = both.findings().iter().map(|finding| finding.level).collect();
        assert_eq!(levels_found.first(), Some(&VerdictLevel::Act));
        assert!(levels_found.len() > 1 && levels_found.is_sorted_by(|graver, milder| graver >= milder));
        let (level, sentence) = levels(&saves(64, 0, 70));
        assert_eq!(level, VerdictLevel::Look);
        assert!(sentence.contains("only 70.0 MiB"), "{sentence}");
    }

    #[test]
    fn a_host_without_findings_is_fine_and_says_what_it_saves() {
        // Metadata of 64 MiB, as of a first pass, asks for no look.
        for unshared in [0, MIB] {
            assert_eq!(levels(&host(0, unshared, 4096)), (VerdictLevel::Fine, "nothing is merged now".to_owned()));
        }
        let totals = HostTotals { saved_bytes: 64 * MIB, ..HostTotals::from_sample(&host(0, 0, 4096).sample) };
        assert_eq!(
            describe_savings(&totals),
            "merging saves 64.0 MiB, and the host has 4.00 GiB if guests write to all of it"
        );
    }

    #[test]
    fn short_memory_a_missing_kernel_and_errors_ask_for_a_look() {
        let mut status = host(0, 0, 4096);
        let some = StallTimes { avg10: Some(12.5), ..StallTimes::default() };
        status.sample.host.memory_pressure = Reading::Value(Psi { some });
        let (level, sentence) = levels(&status);
        assert_eq!(level, VerdictLevel::Look);
        assert!(sentence.contains("12 %"), "{sentence}");
        let mut status = host(0, 0, 4096);
        status.sample.host.vmstat = Reading::Denied;
        let denied = "/proc/vmstat: permission denied; run as root".to_owned();
        assert_eq!(levels(&status), (VerdictLevel::Look, denied));
        assert_eq!(StatusReport::default().verdict().level, VerdictLevel::Look);
    }

    #[test]
    fn domains_that_share_ask_to_act_where_they_are_configured_and_have_guests() {
        let report = |domain: Option<&str>, mergeable_guests| DomainsReport {
            mode: DomainMode::Report,
            domains: vec![DomainFigures {
                domain: domain.map(str::to_owned),
                guests: 2,
                mergeable_guests,
                merged_bytes: 0,
                saved_bytes: 0,
            }],
            may_share_across: true,
            meaning: "they may share pages".to_owned(),
        };
        let level = |domain, guests| {
            let status = StatusReport { domains: Some(report(domain, guests)), ..host(0, 0, 4096) };
            status.verdict().level
        };
        let levels = [level(None, 2), level(Some("acme"), 0), level(Some("acme"), 2)];
        assert_eq!(levels, [VerdictLevel::Fine, VerdictLevel::Fine, VerdictLevel::Act], "as the alert is critical");
    }
}
