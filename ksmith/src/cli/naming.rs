//! Resolves names on the command line to processes: those of a guest, by the convention of
//! [`ksmith_core::guest::find`], or those of any other program.

use std::time::Duration;

use ksmith_core::guest::{FindGuestError, Guest, WAYS, describe, find, suggest_names};
use ksmith_host::doctor::{self, ExaminationError};
use ksmith_host::guests::GuestTracker;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_service::config::Config;

use super::CommandFailure;
use crate::exit;

/// The longest wait for hypervisors to report their UUID.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the PIDs of the guest, the process or the program that `wanted` names. A PID means this process alone,
/// unless it is a guest's VMID too. The guest is then meant if the process is a kernel thread; otherwise the name is
/// ambiguous.
///
/// # Errors
/// There is none, or several have this name.
pub(super) fn processes(root: &Root, config: &Config, wanted: &str) -> Result<Vec<u32>, CommandFailure> {
    if let Ok(pid) = wanted.parse::<u32>()
        && root.path(format!("proc/{pid}")).is_dir()
    {
        let Some(guest) = with_vmid(root, config, pid) else { return Ok(vec![pid]) };
        return match doctor::find(root, wanted).map(|found| found.first().map(|it| it.name.clone())) {
            Ok(Some(name)) => {
                let which = vec![describe(&guest), format!("process:{name} pid {pid}")];
                Err(FindGuestError::Several { wanted: wanted.to_owned(), which }.into())
            }
            Ok(None) | Err(_) => Ok(guest.processes.iter().map(|process| process.pid).collect()),
        };
    }
    let near = match find(&guests(root, config), wanted) {
        Ok(guest) => return Ok(guest.processes.iter().map(|process| process.pid).collect()),
        Err(FindGuestError::None { near, .. }) => suggest_names(&near),
        Err(several) => return Err(several.into()),
    };
    // A program that is no guest: nothing of it may merge.
    let name = wanted.strip_prefix("process:").unwrap_or(wanted);
    let found = match doctor::find(root, name) {
        Ok(found) => found,
        Err(ExaminationError::Unknown(_)) => {
            return Err(hidden(root, wanted).unwrap_or_else(|| {
                let why = format!(
                    "there is no guest and no process {wanted:?}{near}: `ksmith guests` lists the guests; name one by {WAYS}"
                );
                CommandFailure::with_code(exit::UNKNOWN_GUEST, why)
            }));
        }
        Err(error) => return Err(CommandFailure::from(error)),
    };
    match &found[..] {
        [one] => Ok(vec![one.pid]),
        _ => {
            let which = found.iter().map(|it| format!("process:{name} pid {}", it.pid)).collect();
            Err(FindGuestError::Several { wanted: wanted.to_owned(), which }.into())
        }
    }
}

/// Returns the failure of a search for one guest. What other users have shows its name to root only.
pub(super) fn not_found(root: &Root, why: FindGuestError) -> CommandFailure {
    match &why {
        FindGuestError::None { wanted, .. } => hidden(root, wanted).unwrap_or_else(|| why.into()),
        FindGuestError::Several { .. } => why.into(),
    }
}

/// Returns the failure of a user who may not see the guest that this name means; `None` if this user sees all.
fn hidden(root: &Root, wanted: &str) -> Option<CommandFailure> {
    let is_hidden = root.is_host() && !rustix::process::geteuid().is_root();
    is_hidden.then(|| {
        let why = format!("this user sees no guest {wanted:?}: run it as root, which sees those of all users");
        CommandFailure::no_privilege(why)
    })
}

/// Returns the guest with this VMID, unless the number is its own PID.
fn with_vmid(root: &Root, config: &Config, vmid: u32) -> Option<Guest> {
    let sample = HostObserver::new(root.clone()).sample();
    let list = GuestTracker::new(root.clone(), config.guests.libvirt_uri.clone()).list_unasked(&sample);
    let is_its = |guest: &Guest| {
        guest.is_verified && guest.number == Some(vmid) && guest.processes.iter().all(|process| process.pid != vmid)
    };
    list.guests.into_iter().find(is_its)
}

/// Returns the guests of the host, with the answers of their hypervisors within a second.
fn guests(root: &Root, config: &Config) -> Vec<Guest> {
    let sample = HostObserver::new(root.clone()).sample();
    GuestTracker::new(root.clone(), config.guests.libvirt_uri.clone()).list_within(&sample, PATIENCE).guests
}

impl From<ExaminationError> for CommandFailure {
    fn from(error: ExaminationError) -> Self {
        let code = match error {
            ExaminationError::Unknown(_) => exit::UNKNOWN_GUEST,
            ExaminationError::Denied(_) => exit::NO_PRIVILEGE,
            ExaminationError::KernelThread(_) | ExaminationError::Uncaptured { .. } => exit::IMPOSSIBLE,
            ExaminationError::Exited(_) | ExaminationError::Malformed { .. } => exit::FAILED,
        };
        Self::with_code(code, error.to_string())
    }
}
