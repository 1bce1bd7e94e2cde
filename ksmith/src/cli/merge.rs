//! The command `ksmith merge on|off GUEST`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use crossbeam_channel::bounded;
use ksmith_core::balance::KsmStep;
use ksmith_core::units::Bytes;

use super::progress::TimeLeftEstimator;
use super::{CommandFailure, GlobalArgs, is_denied, naming, print};
use crate::show::orders::MergeReply;
use ksmith_host::act::{StateDir, UnmergeHeadroom};
use ksmith_host::guests::{
    Guest, GuestTarget, GuestTracker, OffList, SwitchError, SwitchedBackend, find, merged_now,
};
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_service::control::ControlClient;

/// Switch merging of one guest on or off while it runs.
///
/// Works on QEMU, through its QMP socket or through libvirt. Off gives the guest its own copy of every merged page
/// before it returns: about a second for each merged GiB, in which the guest's devices wait. So ksmith first checks
/// that memory suffices. A guest that offered its memory itself can't be switched from outside: then the exit code is
/// 3, and the message names what works.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// On or off
    #[arg(value_enum, value_name = "on|off")]
    to: OnOff,
    /// The guest, by name, UUID, PID, kind:name or VMID
    guest: String,
    /// Also from its next start on (libvirt: <nosharepages/> in its definition)
    #[arg(long)]
    permanent: bool,
    /// Switch even if memory may not suffice
    #[arg(long)]
    force: bool,
    /// Say what would be switched, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// The two states of the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnOff {
    /// Offer its memory to KSM
    On,
    /// Withdraw its memory from KSM
    Off,
}

/// Time between two updates of the progress.
const TICK: Duration = Duration::from_millis(200);

impl MergeArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = global.live_root()?;
        let config = global.load_config()?;
        let mut guests = GuestTracker::new(root.clone(), config.guests.libvirt_uri.clone());
        let list = guests.list(&HostObserver::new(root.clone()).sample());
        let guest = find(&list.guests, &self.guest).map_err(|why| naming::not_found(&root, why))?;
        let gone = || CommandFailure::impossible(format!("{} has ended meanwhile", guest.name));
        let target = guests.target(guest).ok_or_else(gone)?;
        let on = self.to == OnOff::On;
        target.check(on).map_err(failure)?;
        if self.permanent {
            // Before anything is switched: what can't be made permanent must not be half done.
            target.make_permanent(on, true).map_err(failure)?;
        }
        if on && !self.force && !self.dry_run {
            refuse_while_exposed(&config.daemon.control_socket)?;
        }
        let counted = merged_now(&root, guest.id().process()).or(guest.figures.counted_merged_bytes());
        let merged = counted.unwrap_or(guest.figures.merged_bytes);
        if !on && !self.force {
            let headroom = UnmergeHeadroom::for_guest(&root, counted);
            headroom.check().map_err(|why| CommandFailure::impossible(format!("{}: {why}", guest.name)))?;
        }
        let switched = self.switch_with_progress(&root, guest, &target, on)?;
        if !self.dry_run {
            notify_daemon(&config.daemon.control_socket, &root, &target, on);
        }
        let is_made_permanent = match self.permanent {
            true => Some(target.make_permanent(on, self.dry_run).map_err(failure)?),
            false => None,
        };
        let left = merged_now(&root, guest.id().process()).unwrap_or(0);
        self.report(global, guest, &switched, is_made_permanent, [merged.saturating_sub(left), left])?;
        Ok(ExitCode::SUCCESS)
    }

    /// Switches merging in a thread, and meanwhile shows the memory left to unmerge.
    fn switch_with_progress(
        &self,
        root: &Root,
        guest: &Guest,
        target: &GuestTarget,
        on: bool,
    ) -> anyhow::Result<Vec<SwitchedBackend>> {
        let (sender, done) = bounded(1);
        let (root_there, target_there, dry_run) = (root.clone(), target.clone(), self.dry_run);
        std::thread::Builder::new().name("switch".to_owned()).spawn(move || {
            // Send can't fail: the receiver waits for this.
            let _ = sender.send(target_there.switch(&root_there, on, dry_run));
        })?;
        let shows_progress = print::is_watched() && !on && !self.dry_run;
        let (mut has_shown, mut pace) = (false, TimeLeftEstimator::new());
        loop {
            match done.recv_timeout(TICK) {
                Ok(outcome) => {
                    if has_shown {
                        print::end_progress();
                    }
                    return outcome.map_err(failure);
                }
                Err(crossbeam_channel::RecvTimeoutError::Timeout) if shows_progress => {
                    let left = merged_now(root, guest.id().process()).unwrap_or(0);
                    let time = pace.left(left);
                    print::progress(format_args!("{} left to unmerge{time}", Bytes::from(left)));
                    has_shown = true;
                }
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn report(
        &self,
        global: &GlobalArgs,
        guest: &Guest,
        switched: &[SwitchedBackend],
        is_made_permanent: Option<bool>,
        [unmerged_bytes, left_bytes]: [u64; 2],
    ) -> anyhow::Result<()> {
        let word = if self.to == OnOff::On { "on" } else { "off" };
        if global.json {
            return print::json(&MergeReply {
                guest: &guest.name,
                pid: guest.id().pid(),
                merge: word,
                backends: switched.iter().map(|switched| switched.backend.as_str()).collect(),
                unmerged_bytes,
                left_bytes,
                permanent_changed: is_made_permanent,
                dry_run: self.dry_run,
            });
        }
        let name = guest.title();
        let backends: Vec<String> =
            switched.iter().map(|it| format!("{} ({})", it.backend, Bytes::from(it.bytes))).collect();
        match (switched.is_empty(), self.dry_run, self.to) {
            (true, ..) => print::line(format_args!("{name}: merging was {word} already"))?,
            (_, true, _) => print::line(format_args!("{name}: would switch {word}: {}", backends.join(", ")))?,
            (_, _, OnOff::On) => {
                print::line(format_args!("{name}: merging is on: {}", backends.join(", ")))?;
            }
            (_, _, OnOff::Off) => print::line(format_args!(
                "{name}: merging is off: {}; {} went back to it. KSM's own counters follow when ksmd scans next.",
                backends.join(", "),
                Bytes::from(unmerged_bytes),
            ))?,
        }
        if self.to == OnOff::Off && !self.dry_run && left_bytes > 0 {
            print::line(format_args!(
                "{} stay merged: firmware and video memory, which QEMU offers for good unless it is started with \
                 -machine mem-merge=off (libvirt: --permanent)",
                Bytes::from(left_bytes)
            ))?;
        }
        match is_made_permanent {
            Some(true) if self.dry_run => print::line("libvirt's definition would be changed"),
            Some(true) => print::line(format_args!("libvirt starts it with merging {word} from now on")),
            Some(false) => print::line("libvirt's definition says so already"),
            None => Ok(()),
        }
    }
}

/// Refuses more mergeable memory while a balancing daemon finds that unmerging could need more than the host
/// has.
fn refuse_while_exposed(socket: &Path) -> Result<(), CommandFailure> {
    // Without a daemon the exposure is not known.
    let report = ControlClient::connect(socket).ok().and_then(|mut client| client.balance().ok());
    let refusal = report
        .filter(|report| report.is_enabled)
        .and_then(|report| report.merging.into_iter().find(|(step, _)| *step == KsmStep::RefuseSwitches));
    match refusal {
        Some((_, why)) => Err(CommandFailure::impossible(format!("{why}; --force offers it anyway"))),
        None => Ok(()),
    }
}

/// Notifies a running daemon of the switch, or updates the list of guests that were switched off. A failure is
/// ignored, because the daemon asks the hypervisor itself before long.
fn notify_daemon(socket: &Path, root: &Root, target: &GuestTarget, on: bool) {
    let outcome = match ControlClient::connect(socket) {
        Ok(mut daemon) => daemon.switched(target.id.pid(), on).map_err(|error| error.to_string()),
        Err(_) if on => OffList::open(&StateDir::from_root(root))
            .and_then(|off| off.remove_processes(&[target.id.process()].into()))
            .map_err(|error| error.to_string()),
        Err(_) => Ok(()),
    };
    if let Err(why) = outcome {
        tracing::warn!("{why}");
    }
}

fn failure(error: SwitchError) -> anyhow::Error {
    match error {
        SwitchError::NoSwitch { .. } | SwitchError::Gone { .. } => {
            CommandFailure::impossible(error.to_string()).into()
        }
        error @ SwitchError::Monitor { .. } if is_denied(&error) => {
            CommandFailure::no_privilege(format!("{error}: run it as root, or as the guest's user")).into()
        }
        // The sentence includes its causes.
        error @ (SwitchError::Monitor { .. } | SwitchError::Unreadable { .. }) => {
            anyhow::Error::msg(error.to_string())
        }
    }
}
