//! Taking control of KSM for a command, with the reasons why that may not be possible here.

use super::{Failure, Global};
use crate::act::{self, Control, Lasting, StateDir};
use crate::root::Root;

/// The host to act upon, after making sure that it has KSM and that we may act.
///
/// # Errors
/// With exit code 3: no KSM, or not root.
pub fn require(global: &Global) -> Result<Root, Failure> {
    let root = global.live_root()?;
    if root.text("sys/kernel/mm/ksm/run") == ksmith_core::reading::Reading::Absent {
        return Err(Failure::impossible(
            "this kernel has no KSM (no /sys/kernel/mm/ksm): it needs CONFIG_KSM=y; in a container, ask on the host",
        ));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::impossible("changing KSM's settings needs root: run it with sudo"));
    }
    Ok(root)
}

/// Control over KSM until dropped; says on standard error what a person should know.
///
/// # Errors
/// As [`require`], or somebody else controls KSM.
pub fn take(global: &Global, dry_run: bool, take_over: bool) -> anyhow::Result<Control> {
    let root = require(global)?;
    take_in(&StateDir::of(&root), global, dry_run, take_over)
}

/// Control over KSM until dropped, with lock and journal in another directory than usual.
///
/// # Errors
/// As [`take`].
pub fn take_in(directory: &StateDir, global: &Global, dry_run: bool, take_over: bool) -> anyhow::Result<Control> {
    let root = require(global)?;
    let control = Control::take(&root, directory, dry_run, take_over)?;
    for note in control.notes() {
        tracing::warn!("{note}");
    }
    Ok(control)
}

/// The right to change settings for good; says on standard error what was restored first.
///
/// # Errors
/// As [`require`], or another ksmith is at work.
pub fn take_lasting(global: &Global, dry_run: bool) -> anyhow::Result<Lasting> {
    let root = require(global)?;
    let lasting = Lasting::take(&root, &StateDir::of(&root), dry_run)?;
    for note in lasting.notes() {
        tracing::warn!("{note}");
    }
    Ok(lasting)
}

/// Warns of programs that will write their own settings over ours.
pub fn warn_of_holders(root: &Root) {
    for holder in act::find(root) {
        tracing::warn!("{holder} controls KSM too and will overwrite this: stop it first ({})", holder.remedy());
    }
}
