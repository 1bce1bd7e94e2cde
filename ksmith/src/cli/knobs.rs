//! The commands `ksmith enable`, `disable` and `set`, which change settings permanently.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use ksmith_core::knobs::{Knob, KnobSettings};

use super::{CommandFailure, GlobalArgs, amounts, control, print};
use ksmith_host::act::{ControlError, KnobChange, LockError, UnmergeOptions};
use ksmith_host::root::Root;
use ksmith_host::signals;

/// Switch KSM on with its present settings, until it is switched off.
///
/// ksmd then scans all the time; `ksmith daemon` runs it only when that pays.
#[derive(Debug, Args)]
pub struct EnableArgs {
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Switch KSM off. Merged pages stay merged (`ksmith unmerge` undoes that too).
#[derive(Debug, Args)]
pub struct DisableArgs {
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Set KSM's settings by their kernel names, in the order that the kernel needs.
///
/// merge_across_nodes and max_page_sharing can only change while nothing is merged. So everything is unmerged
/// first, if memory suffices, and ksmd is started again. Ctrl-C stops this halfway, and ksmd is started again in
/// any case.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Settings, such as pages_to_scan=1000
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(Knob, u64)>,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Unmerge even if memory may not suffice
    #[arg(long)]
    force: bool,
    /// Give up unmerging after this long
    #[arg(long, value_name = "TIME", default_value = "600", value_parser = amounts::wait)]
    patience: Duration,
}

fn setting(text: &str) -> Result<(Knob, u64), String> {
    let (name, value) = text.split_once('=').ok_or("a setting is NAME=VALUE, such as pages_to_scan=1000")?;
    let knob: Knob = name.trim().parse().map_err(|error: ksmith_core::knobs::UnknownKnob| error.to_string())?;
    let value = knob.parse_value(value.trim()).map_err(|error| error.to_string())?;
    Ok((knob, value))
}

impl EnableArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        bring_about(global, &KnobSettings::none().with(Knob::Run, 1), self.dry_run, UnmergeOptions::default())
    }
}

impl DisableArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        bring_about(global, &KnobSettings::none().with(Knob::Run, 0), self.dry_run, UnmergeOptions::default())
    }
}

impl SetArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let knobs: KnobSettings = self.settings.iter().copied().collect();
        if knobs.get(Knob::Run) == Some(2) {
            return Err(CommandFailure::usage("run=2 unmerges everything: use `ksmith unmerge`").into());
        }
        let how = UnmergeOptions { force: self.force, patience: self.patience };
        bring_about(global, &knobs, self.dry_run, how)
    }
}

fn bring_about(
    global: &GlobalArgs,
    knobs: &KnobSettings,
    dry_run: bool,
    how: UnmergeOptions,
) -> anyhow::Result<ExitCode> {
    let root = control::require(global)?;
    let lacking: Vec<&str> =
        knobs.iter().map(|(knob, _)| knob).filter(|knob| lacks(&root, *knob)).map(Knob::name).collect();
    if !lacking.is_empty() {
        return Err(CommandFailure::impossible(format!("this kernel does not have {}", lacking.join(", "))).into());
    }
    // Before the first change, so that a signal leaves no change behind.
    let signals = signals::catch()?;
    let is_switch = knobs.iter().all(|(knob, _)| knob == Knob::Run);
    let taken = control::take_lasting(global, dry_run);
    let mut lasting = taken.map_err(|error| if is_switch { name_orders(error) } else { error })?;
    control::warn_of_holders(&root);
    let interrupts = signals.listen()?;
    let mut changes: Vec<KnobChange> = Vec::new();
    for (knob, value) in knobs.iter() {
        if !interrupts.is_empty() {
            report(global, &changes, dry_run)?;
            return Err(anyhow!("stopped as asked, before {knob}"));
        }
        let outcome = lasting.set(knob, value, how, |_| match interrupts.is_empty() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        match outcome {
            Ok(made) => changes.extend(made),
            Err(errors) => {
                report(global, &changes, dry_run)?;
                let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
                return Err(anyhow!(list.join("; ")));
            }
        }
    }
    report(global, &changes, dry_run)?;
    Ok(ExitCode::SUCCESS)
}

/// Adds the orders that a running daemon takes to the error of a command that it keeps from switching KSM.
fn name_orders(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(ControlError::Lock(LockError::Held { .. })) => CommandFailure::impossible(format!(
            "{error}; to park ksmd under a daemon use `ksmith pause`, to continue `ksmith resume`"
        ))
        .into(),
        _ => error,
    }
}

fn lacks(root: &Root, knob: Knob) -> bool {
    !root.path(knob.path().trim_start_matches('/')).exists()
}

fn report(global: &GlobalArgs, changes: &[KnobChange], dry_run: bool) -> anyhow::Result<()> {
    if global.json {
        let changes: Vec<_> = changes
            .iter()
            .map(|change| {
                serde_json::json!({
                    "setting": change.knob.name(),
                    "old": change.knob.text(change.old),
                    "new": change.knob.text(change.new),
                })
            })
            .collect();
        let whole = serde_json::json!({ "dry_run": dry_run, "changes": changes });
        print::json(&whole)?;
        return Ok(());
    }
    if changes.is_empty() {
        print::line("nothing to change: all is set so already")?;
    }
    for change in changes {
        print::line(format_args!("{}{change}", if dry_run { "would change " } else { "" }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    #[test]
    fn a_switch_that_a_daemon_keeps_from_acting_names_its_orders() {
        let named = name_orders(ControlError::Lock(LockError::Held { pid: Some(5) }).into());
        assert!(named.to_string().contains("(pid 5)") && named.to_string().contains("`ksmith pause`"), "{named}");
        assert_eq!(super::super::code_of(&named), exit::IMPOSSIBLE);
        assert_eq!(name_orders(anyhow!("no")).to_string(), "no");
    }
}
