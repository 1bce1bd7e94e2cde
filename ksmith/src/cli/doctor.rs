//! The command `ksmith doctor`.

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ksmith_core::decide::domains::{DomainsReport, GUARDED};
use ksmith_core::diagnose::{DaemonPresence, Finding, HostCircumstances, Severity, diagnose};
use ksmith_core::field::KernelVersion;
use ksmith_core::kernel::Meminfo;
use ksmith_core::model::StatusReport;
use ksmith_core::printable::{TextPage, TextTone};
use ksmith_core::units::Bytes;

use super::page_tables::fill_readings;
use super::progress::TickingProgress;
use super::{CommandFailure, GlobalArgs, amounts, naming, patience, print};
use crate::exit;
use crate::show::controllers;
use ksmith_host::act::{KsmJournal, StateDir, UndoError};
use ksmith_host::doctor::{
    ExaminationOptions, examine, find, huge_page_circumstances, ksmd_placement_now, memory_nodes,
};
use ksmith_host::guests::{Guest, GuestTracker};
use ksmith_host::observe::HostObserver;
use ksmith_host::other_controllers::survey;
use ksmith_service::balance::MemoryLedger;
use ksmith_service::config::Config;
use ksmith_service::control::{ClientError, ControlClient};
use ksmith_service::domains::sharing;

/// Diagnose why KSM saves less than it could on this host, and name the remedies.
///
/// For a guest or a process, it says why memory does not merge, with cause, evidence and remedy for each part. As root
/// it reads some of the pages, and compares them with all mergeable memory of the host. It tells other users what they
/// can't see.
///
/// It only reads: no page is faulted in, and merged pages stay merged. The exit code is 0 even if something is found,
/// and 6 if a finding stops KSM from working or endangers the host.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A guest or a process, by name, UUID, PID, kind:name or VMID
    #[arg(value_name = "GUEST")]
    subject: Option<String>,
    /// Watch a process for at most this long: three passes of ksmd make most answers certain
    #[arg(long, value_name = "TIME", default_value = "10", requires = "subject", value_parser = amounts::wait)]
    seconds: Duration,
    /// Print one line, and exit with the code of a Nagios plugin: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN
    #[arg(long, conflicts_with_all = ["subject", "json"])]
    check: bool,
}

impl DoctorArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        if self.check {
            let [.., unknown] = exit::CHECK;
            patience::watch_with(unknown);
            return check(global);
        }
        global.check_root()?;
        patience::watch();
        match &self.subject {
            Some(subject) => self.examine(global, subject),
            None => of_host(global),
        }
    }

    fn examine(&self, global: &GlobalArgs, subject: &str) -> anyhow::Result<ExitCode> {
        let longest = self.seconds;
        let root = global.root();
        let mut reports = Vec::new();
        let config = global.load_config_to_read()?;
        // A daemon that this user may not ask runs all the same.
        let daemon_runs = root.is_host()
            && in_charge(ControlClient::connect(&config.daemon.control_socket), None) != DaemonPresence::Absent;
        let processes = naming::processes(&root, &config, subject)?.into_iter();
        let found = processes.map(|pid| find(&root, &pid.to_string()).map_err(CommandFailure::from));
        for patient in found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            let (subject, end) = (format!("{} (pid {})", patient.name, patient.pid), Instant::now() + longest);
            let watching = TickingProgress::start(move || {
                let left = end.saturating_duration_since(Instant::now()).as_secs();
                Some(format!("watching the memory of {subject}, at most {left} s left"))
            });
            let report = examine(&root, &patient, ExaminationOptions { longest, daemon_runs });
            drop(watching);
            reports.push(report.map_err(CommandFailure::from)?);
        }
        if global.json {
            print::json(&serde_json::json!({ "processes": reports }))?;
        } else {
            for report in &reports {
                print::page(&report.page())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The longest wait for hypervisors to report their UUID.
const PATIENCE: Duration = Duration::from_secs(1);

/// Diagnoses this host.
pub(super) fn findings(global: &GlobalArgs, config: &Config) -> anyhow::Result<Vec<Finding>> {
    let root = global.root();
    let state = StateDir::from_root(&root);
    let journal = KsmJournal::open(&state);
    let mut client = root.is_host().then(|| ControlClient::connect(&config.daemon.control_socket));
    let status = client.as_mut().and_then(|client| client.as_mut().ok()?.status().ok());
    let guarded = status.as_ref().and_then(guarded);
    let daemon = client.map_or(DaemonPresence::Absent, |client| in_charge(client, journal.as_ref().ok()));
    let mut sample = HostObserver::new(root.clone()).sample();
    fill_readings(&mut sample, &root, status.as_ref());
    // Only a hypervisor that answers shows what is switched off.
    let is_enforced = config.domains.is_enforced();
    let patience = if is_enforced { PATIENCE } else { Duration::ZERO };
    let guests =
        GuestTracker::new(root.clone(), config.guests.libvirt_uri.clone()).list_within(&sample, patience).guests;
    let mut domains = DomainsReport::from_guests(&config.domains, &guests, None);
    // A user without access to frames is told what is possible, not what is shared now.
    let across = sharing(&root, &config.domains, &guests).ok().map(|sharing| sharing.across_bytes);
    if let Some(across) = across {
        domains.meaning = format!("{}; {} are shared across now", domains.meaning, Bytes::from(across));
    }
    let release = root.text("proc/sys/kernel/osrelease");
    let kernel = release.value().and_then(|text| KernelVersion::parse(text));
    let circumstances = HostCircumstances {
        kernel,
        domains_refused: config.domains.refused_on(kernel),
        daemon,
        others: survey(&root),
        unrestored: daemon != DaemonPresence::Present && journal.as_ref().is_ok_and(|journal| !journal.is_empty()),
        damaged_journal: match journal {
            Err(UndoError::Damaged { why, .. }) => Some(why),
            _ => None,
        },
        placement: ksmd_placement_now(&root, &sample),
        memory_nodes: memory_nodes(&root),
        huge_pages: huge_page_circumstances(&root, config.huge_pages.keep),
        impossible_lines: root
            .text("proc/meminfo")
            .value()
            .map(|text| Meminfo::impossible_lines(text))
            .unwrap_or_default(),
        unreturned_guests: MemoryLedger::open(&state).map_or(0, |ledger| ledger.entries().len()),
        shared_across_bytes: across.filter(|_| is_enforced).unwrap_or(0),
        remaining_mergeable: guests
            .iter()
            .filter(|guest| is_enforced && guest.has_remaining_mergeable)
            .map(Guest::title)
            .collect(),
        guarded,
        side_channel: domains.may_share_across.then_some(domains.meaning),
    };
    Ok(diagnose(&sample, &circumstances))
}

/// Prints the findings in one line, as a Nagios plugin does. A host that can't be examined is UNKNOWN.
fn check(global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let [ok, warning, critical, unknown] = exit::CHECK;
    let found = || findings(global, &global.load_config_to_read()?);
    let findings = match global.check_root().map_err(anyhow::Error::from).and_then(|()| found()) {
        Ok(findings) => findings,
        Err(error) => {
            print::line(format_args!("KSM {} - {}", unknown.name, super::sentence(&error)))?;
            return Ok(unknown.into());
        }
    };
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).collect::<Vec<_>>();
    let (problems, warnings) = (of(Severity::Problem), of(Severity::Warning));
    let (code, named) = match (problems.is_empty(), warnings.is_empty()) {
        (false, _) => (critical, &problems),
        (true, false) => (warning, &warnings),
        (true, true) => (ok, &warnings),
    };
    let what: Vec<String> = named.iter().map(|finding| format!("{} [{}]", finding.what, finding.code)).collect();
    let what = if what.is_empty() { "KSM can do its work here".to_owned() } else { what.join("; ") };
    // A bar begins the plugin's figures.
    let what = what.replace('|', "/");
    print::line(format_args!(
        "KSM {} - {what} | problems={} warnings={}",
        code.name,
        problems.len(),
        warnings.len()
    ))?;
    Ok(code.into())
}

fn of_host(global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let findings = findings(global, &global.load_config_to_read()?)?;
    if global.json {
        print::json(
            &serde_json::json!({ "findings": findings, "controllers": controllers::json(&survey(&global.root())) }),
        )?;
    } else {
        print::page(&page(&findings))?;
    }
    let is_ill = findings.iter().any(|finding| finding.severity == Severity::Problem);
    Ok(if is_ill { exit::PROBLEM.into() } else { ExitCode::SUCCESS })
}

/// Returns the findings as text, problems and warnings in their tones.
fn page(findings: &[Finding]) -> TextPage {
    let mut page = TextPage::new();
    if findings.is_empty() {
        page.toned(TextTone::Good, "nothing found: KSM can do its work here");
    }
    for finding in findings {
        let rest = format!("  {} [{}]", finding.what, finding.code);
        match finding.severity {
            Severity::Problem => page.partly_toned("", TextTone::Problem, "PROBLEM", rest),
            Severity::Warning => page.partly_toned("", TextTone::Warning, "warning", rest),
            Severity::Note => page.partly_toned("", TextTone::Faint, "note", rest),
        }
        page.line(format_args!("         do: {}", finding.remedy));
    }
    page
}

/// Returns the daemon's reason for keeping ksmd parked because of the domains, if it does so.
fn guarded(status: &StatusReport) -> Option<String> {
    let daemon = status.daemon.as_ref()?;
    (daemon.state == GUARDED).then(|| daemon.reason.clone())
}

/// Finds the ksmith that controls KSM: the daemon that answers on the control socket, or a process with settings
/// to restore at its end. A scan or a demo listens on no socket.
fn in_charge(answer: Result<ControlClient, ClientError>, journal: Option<&KsmJournal>) -> DaemonPresence {
    match answer {
        Ok(_) => DaemonPresence::Present,
        Err(_) if journal.is_some_and(KsmJournal::is_owner_alive) => DaemonPresence::Present,
        Err(ClientError::Connect { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            DaemonPresence::Hidden
        }
        Err(_) => DaemonPresence::Absent,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_daemon_that_this_user_may_not_ask_is_no_absent_one() {
        let refused = |kind: ErrorKind| {
            in_charge(Err(ClientError::Connect { path: "/run/x".into(), source: io::Error::from(kind) }), None)
        };
        assert_eq!(refused(ErrorKind::PermissionDenied), DaemonPresence::Hidden);
        assert_eq!(refused(ErrorKind::NotFound), DaemonPresence::Absent);
        assert_eq!(refused(ErrorKind::ConnectionRefused), DaemonPresence::Absent);
    }
}
