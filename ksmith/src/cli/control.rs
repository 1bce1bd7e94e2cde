//! Takes control of KSM for a command, or returns the reason why it can't.

use super::{CommandFailure, GlobalArgs};
use ksmith_host::act::{KsmControl, LastingControl, StateDir};
use ksmith_host::ksm_counts::ksm_as_counted;
use ksmith_host::other_controllers;
use ksmith_host::root::Root;

/// Returns the host to act on, which has KSM and on which this user may act.
///
/// # Errors
/// The host has no KSM, or the user is not root (exit code 3).
pub fn require(global: &GlobalArgs) -> Result<Root, CommandFailure> {
    let root = global.live_root()?;
    if !ksm_as_counted(&root).is_present() {
        return Err(CommandFailure::impossible(
            "this kernel has no KSM (no /sys/kernel/mm/ksm): it needs CONFIG_KSM=y; in a container, ask on the host",
        ));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(CommandFailure::no_privilege("changing KSM's settings needs root: run it with sudo"));
    }
    Ok(root)
}

/// Takes control of KSM until the value is dropped. Warnings go to standard error.
///
/// # Errors
/// As [`require`], or another program controls KSM.
pub fn take_control(global: &GlobalArgs, dry_run: bool, take_over: bool) -> anyhow::Result<KsmControl> {
    let root = require(global)?;
    take_in(&StateDir::from_root(&root), global, dry_run, take_over)
}

/// Takes control of KSM until the value is dropped, with lock and journal in the given directory.
///
/// # Errors
/// As [`take`].
pub fn take_in(
    directory: &StateDir,
    global: &GlobalArgs,
    dry_run: bool,
    take_over: bool,
) -> anyhow::Result<KsmControl> {
    let root = require(global)?;
    let control = KsmControl::acquire(&root, directory, dry_run, take_over)?;
    for note in control.notes() {
        tracing::warn!("{note}");
    }
    Ok(control)
}

/// Takes the right to change settings permanently. Reports on standard error what was restored first.
///
/// # Errors
/// As [`require`], or another ksmith is running.
pub fn take_lasting(global: &GlobalArgs, dry_run: bool) -> anyhow::Result<LastingControl> {
    let root = require(global)?;
    let lasting = LastingControl::acquire(&root, &StateDir::from_root(&root), dry_run)?;
    for note in lasting.notes() {
        tracing::warn!("{note}");
    }
    Ok(lasting)
}

/// Warns of programs that overwrite KSM's settings.
pub fn warn_of_holders(root: &Root) {
    for holder in other_controllers::find_certain(root) {
        tracing::warn!("{holder} controls KSM too and will overwrite this: stop it first ({})", holder.remedy());
    }
}
