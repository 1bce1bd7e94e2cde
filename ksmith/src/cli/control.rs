//! Takes control of KSM for a command, or returns the reason why it can't.

use super::{CommandFailure, GlobalArgs};
use ksmith_host::act::{KsmControl, LastingControl, StateDir, are_settings_read_only};
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

/// The sentence where KSM's settings can't be written.
pub const READ_ONLY: &str =
    "/sys is read-only here, so KSM's settings can't be changed: run it on the host, or where /sys is writable";

/// Returns the host to act on, whose settings can be written unless nothing is to be changed.
///
/// # Errors
/// As [`require`], or `/sys` is mounted read-only (exit code 3).
fn require_writable(global: &GlobalArgs, dry_run: bool) -> Result<Root, CommandFailure> {
    let root = require(global)?;
    match !dry_run && are_settings_read_only(&root) {
        true => Err(CommandFailure::impossible(READ_ONLY)),
        false => Ok(root),
    }
}

/// Takes control of KSM until the value is dropped. Warnings go to standard error.
///
/// # Errors
/// As [`require`], or `/sys` is read-only, or another program controls KSM.
pub fn take_control(global: &GlobalArgs, dry_run: bool, take_over: bool) -> anyhow::Result<KsmControl> {
    let root = require_writable(global, dry_run)?;
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
/// As [`require`], or `/sys` is read-only, or another ksmith is running.
pub fn take_lasting(global: &GlobalArgs, dry_run: bool) -> anyhow::Result<LastingControl> {
    let root = require_writable(global, dry_run)?;
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
