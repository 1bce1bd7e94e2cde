//! `ksmith doctor`

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Args;
use ksmith_core::diagnose::{Circumstances, Daemon, Severity, diagnose};
use ksmith_core::field::KernelVersion;

use super::{Global, print};
use crate::act::{self, Journal, JournalError, StateDir};
use crate::config::Config;
use crate::control::{Client, ClientError};
use crate::observe::Observer;

/// Find out why KSM does not do here what it could, and say what to do.
///
/// Looks only. Exit code 0 also when something is found; 1 when something found keeps KSM from its work or
/// endangers the host.
#[derive(Debug, Args)]
pub struct DoctorArgs {}

impl DoctorArgs {
    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let root = global.root();
        let config = Config::load(global.config.as_deref())?;
        let state = StateDir::of(&root);
        let journal = Journal::open(&state);
        let daemon = if root.is_host() {
            in_charge(Client::connect(&config.daemon.control_socket), journal.as_ref().ok())
        } else {
            Daemon::Absent
        };
        let circumstances = Circumstances {
            kernel: root.text("proc/sys/kernel/osrelease").value().and_then(|text| KernelVersion::parse(text)),
            daemon,
            holders: act::find(&root)
                .iter()
                .map(|holder| (holder.to_string(), format!("`{}`", holder.remedy())))
                .collect(),
            unrestored: daemon != Daemon::Present && journal.as_ref().is_ok_and(|journal| !journal.is_empty()),
            damaged_journal: match journal {
                Err(JournalError::Damaged { why, .. }) => Some(why),
                _ => None,
            },
        };
        let mut observer = Observer::new(root);
        let findings = diagnose(&observer.sample(), &circumstances);
        if global.json {
            print::json(&serde_json::json!({ "findings": findings }))?;
        } else if findings.is_empty() {
            print::line("nothing found: KSM can do its work here")?;
        } else {
            for finding in &findings {
                let word = match finding.severity {
                    Severity::Problem => "PROBLEM",
                    Severity::Warning => "warning",
                    Severity::Note => "note",
                };
                print::line(format_args!(
                    "{word}  {} [{}]\n         do: {}",
                    finding.what, finding.code, finding.remedy
                ))?;
            }
        }
        let is_ill = findings.iter().any(|finding| finding.severity == Severity::Problem);
        Ok(if is_ill { ExitCode::from(super::exit::FAILED) } else { ExitCode::SUCCESS })
    }
}

/// Who answers on the control socket is in charge, and so is whoever has settings to restore when it ends: a scan
/// or a demo listens nowhere.
fn in_charge(answer: Result<Client, ClientError>, journal: Option<&Journal>) -> Daemon {
    match answer {
        Ok(_) => Daemon::Present,
        Err(_) if journal.is_some_and(Journal::is_owner_alive) => Daemon::Present,
        Err(ClientError::Connect { source, .. }) if source.kind() == ErrorKind::PermissionDenied => Daemon::Hidden,
        Err(_) => Daemon::Absent,
    }
}
