//! Undoes a setup by its notes.

use std::path::Path;

use ksmith_core::other_controllers::LineEdit;
use ksmith_host::systemd::UNIT_DIRECTORIES;

use super::effects::{SetupEffects, SetupError};
use super::notes::SetupNotes;
use super::step::SetupStep;

/// The names of tuned's active profiles.
const ACTIVE_PROFILE: &str = "/etc/tuned/active_profile";

/// The commands that apply a change of drop-ins.
const RESTART: &str = "systemctl daemon-reload; systemctl try-restart ksmith.service";

/// The outcome of an undo.
#[derive(Debug, Default)]
pub struct UndoReport {
    /// Steps that were undone, one sentence each, and the restart that an earlier run left to do.
    pub done: Vec<String>,
    /// Steps that were kept, each with the reason.
    pub kept: Vec<String>,
    /// Errors of steps that could not be undone. These stay noted, for another try.
    pub failed: Vec<String>,
}

/// Undoes all that is noted: ksmith's units first, then its files, then the hand-over of KSM, then groups. One step
/// that fails keeps no other from being undone. A dry run changes nothing. `has_systemd` is true if systemd runs, so
/// that services can be started and stopped.
///
/// # Errors
/// The notes can't be read or written.
pub fn undo(effects: &mut impl SetupEffects, dry_run: bool, has_systemd: bool) -> Result<UndoReport, SetupError> {
    let mut notes = SetupNotes::read(effects)?;
    let mut undone = UndoReport::default();
    let is_left = notes.needs_restart;
    let is_unit = |step: &SetupStep| matches!(step, SetupStep::Unit { .. });
    let is_file = |step: &SetupStep| matches!(step, SetupStep::File { .. });
    let is_hand_over = |step: &SetupStep| {
        matches!(step, SetupStep::HandOver { .. } | SetupStep::Profile { .. } | SetupStep::Lines { .. })
    };
    let is_group = |step: &SetupStep| matches!(step, SetupStep::Group { .. });
    undo_steps(effects, &mut notes, &mut undone, dry_run, has_systemd, is_unit)?;
    // Noted before the first one goes, so that a kill in between leaves it to the next try.
    if notes.steps.iter().any(SetupStep::is_drop_in) && !dry_run {
        notes.needs_restart = true;
        notes.save(effects)?;
    }
    undo_steps(effects, &mut notes, &mut undone, dry_run, has_systemd, is_file)?;
    if notes.needs_restart && !dry_run {
        match reload(effects, has_systemd) {
            Ok(()) => notes.needs_restart = false,
            Err(error) => undone.failed.push(error.to_string()),
        }
    }
    // It may be all that is noted: then it alone shows that there is something to do.
    if is_left && (dry_run || !notes.needs_restart) {
        undone.done.push(RESTART.to_owned());
    }
    undo_steps(effects, &mut notes, &mut undone, dry_run, has_systemd, is_hand_over)?;
    undo_steps(effects, &mut notes, &mut undone, dry_run, has_systemd, is_group)?;
    if !dry_run {
        notes.save(effects)?;
    }
    Ok(undone)
}

fn reload(effects: &mut impl SetupEffects, has_systemd: bool) -> Result<(), SetupError> {
    if !has_systemd {
        return Ok(());
    }
    effects.run("systemctl", &["daemon-reload"])?;
    effects.run("systemctl", &["try-restart", "ksmith.service"])
}

/// Undoes the steps of one kind, the last one first.
fn undo_steps(
    effects: &mut impl SetupEffects,
    notes: &mut SetupNotes,
    undone: &mut UndoReport,
    dry_run: bool,
    has_systemd: bool,
    is_meant: impl Fn(&SetupStep) -> bool,
) -> Result<(), SetupError> {
    let meant: Vec<SetupStep> = notes.steps.iter().filter(|step| is_meant(step)).rev().cloned().collect();
    for step in meant {
        let outcome = if dry_run { Ok(describe_undo(&step)) } else { undo_step(effects, &step, has_systemd) };
        match outcome {
            Ok(StepOutcome::Done(what)) => undone.done.push(what),
            Ok(StepOutcome::Kept(what)) => undone.kept.push(what),
            Err(error) => {
                undone.failed.push(error.to_string());
                continue;
            }
        }
        if !dry_run {
            notes.steps.retain(|noted| *noted != step);
            // The file's end, if it was the last one.
            notes.save(effects)?;
        }
    }
    Ok(())
}

enum StepOutcome {
    Done(String),
    Kept(String),
}

/// Returns the commands that undoing a step amounts to.
fn describe_undo(step: &SetupStep) -> StepOutcome {
    StepOutcome::Done(match step {
        SetupStep::File { path, .. } => format!("remove {}", path.display()),
        SetupStep::Group { name } => format!("groupdel {name}"),
        SetupStep::Lines { path } => LineEdit::CommentBack.command(&path.to_string_lossy()),
        SetupStep::HandOver { service, was_active, masks: true, .. } => match was_active {
            true => format!("systemctl unmask {service}; systemctl start {service}"),
            false => format!("systemctl unmask {service}"),
        },
        SetupStep::Profile { path, before, was_automatic, .. } => {
            format!("tuned-adm {}; remove {}", tuned_arguments(before, *was_automatic).join(" "), path.display())
        }
        SetupStep::HandOver { service, was_enabled, was_active, .. } => match (was_enabled, was_active) {
            (true, true) => format!("systemctl enable --now {service}"),
            (true, false) => format!("systemctl enable {service}"),
            (false, _) => format!("systemctl start {service}"),
        },
        SetupStep::Unit { unit, was_enabled, was_active } => match (was_enabled, was_active) {
            (false, false) => format!("systemctl disable --now {unit}"),
            (false, true) => format!("systemctl disable {unit}"),
            (true, _) => format!("systemctl stop {unit}"),
        },
    })
}

fn undo_step(
    effects: &mut impl SetupEffects,
    step: &SetupStep,
    has_systemd: bool,
) -> Result<StepOutcome, SetupError> {
    match step {
        SetupStep::File { path, text, .. } => match effects.text(path)? {
            None => return Ok(StepOutcome::Kept(format!("{} is gone already", path.display()))),
            Some(now) if now != *text => {
                return Ok(StepOutcome::Kept(format!("{} stays: it was edited since", path.display())));
            }
            Some(_) => effects.remove(path)?,
        },
        SetupStep::Group { name } => {
            let members = members(effects, name)?;
            match members.as_deref() {
                None => return Ok(StepOutcome::Kept(format!("the group {name} is gone already"))),
                Some("") => effects.run("groupdel", &[name])?,
                Some(members) => {
                    return Ok(StepOutcome::Kept(format!("the group {name} stays: it has the members {members}")));
                }
            }
        }
        SetupStep::Lines { path } if !effects.exists(path) => {
            return Ok(StepOutcome::Kept(format!("{} is gone already", path.display())));
        }
        SetupStep::Lines { path } => {
            effects.run("sed", &["-i", LineEdit::CommentBack.script(), &path.to_string_lossy()])?;
        }
        SetupStep::Profile { name, path, text, before, was_automatic } => {
            return profile(effects, (name, path, text), &tuned_arguments(before, *was_automatic), step);
        }
        SetupStep::HandOver { service, was_enabled, was_active, links, masks } => {
            // The link that masks it stays when its package goes.
            if *masks {
                effects.run("systemctl", &["unmask", service])?;
            }
            if !is_installed(effects, service) {
                return Ok(StepOutcome::Kept(format!(
                    "{service} is not installed any more: there is nothing to hand back to"
                )));
            }
            if *was_enabled && !masks {
                effects.run("systemctl", &["enable", service])?;
            }
            // An administrator may have made links that the unit's own [Install] section does not name.
            for (link, target) in links {
                if !effects.exists(link) {
                    effects.link(link, target)?;
                }
            }
            if *was_active && has_systemd {
                effects.run("systemctl", &["start", service])?;
            }
        }
        SetupStep::Unit { unit, was_enabled, was_active } => {
            if !is_installed(effects, unit) {
                return Ok(StepOutcome::Kept(format!("{unit} is not installed any more")));
            }
            if !was_enabled {
                effects.run("systemctl", &["disable", unit])?;
            }
            if !was_active && has_systemd {
                effects.run("systemctl", &["stop", unit])?;
            }
        }
    }
    Ok(describe_undo(step))
}

/// Returns the arguments with which tuned-adm goes back to the earlier profiles.
fn tuned_arguments(before: &str, was_automatic: bool) -> Vec<&str> {
    if was_automatic { vec!["auto_profile"] } else { ["profile"].into_iter().chain(before.split(' ')).collect() }
}

/// Goes back to the profiles of tuned that were active, and removes the one that was made.
fn profile(
    effects: &mut impl SetupEffects,
    (name, path, text): (&str, &Path, &str),
    back: &[&str],
    step: &SetupStep,
) -> Result<StepOutcome, SetupError> {
    let active = effects.text(Path::new(ACTIVE_PROFILE))?;
    let is_active = active.as_deref().is_some_and(|active| active.split_whitespace().eq([name]));
    if is_active {
        effects.run("tuned-adm", back)?;
    }
    match effects.text(path)? {
        Some(now) if now != text => Ok(StepOutcome::Kept(format!("{} stays: it was edited since", path.display()))),
        Some(_) => {
            effects.remove(path)?;
            Ok(if is_active {
                describe_undo(step)
            } else {
                StepOutcome::Done(format!("remove {}", path.display()))
            })
        }
        None if is_active => Ok(describe_undo(step)),
        None => Ok(StepOutcome::Kept(format!("tuned's profile {name} is gone already"))),
    }
}

/// Returns true if a unit file is in one of the directories of packages and administrators.
fn is_installed(effects: &impl SetupEffects, unit: &str) -> bool {
    UNIT_DIRECTORIES.iter().any(|place| effects.exists(&Path::new("/").join(place).join(unit)))
}

/// Returns the members of a group, as `/etc/group` lists them; `None` if there is no such group.
fn members(effects: &impl SetupEffects, name: &str) -> Result<Option<String>, SetupError> {
    let text = effects.text(Path::new("/etc/group"))?.unwrap_or_default();
    let line = text.lines().find(|line| line.split(':').next() == Some(name));
    Ok(line.map(|line| line.rsplit(':').next().unwrap_or_default().to_owned()))
}
