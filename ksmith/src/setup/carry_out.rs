//! Carries out the steps of a plan.

use ksmith_core::other_controllers::LineEdit;

use super::effects::{SetupEffects, SetupError};
use super::notes::SetupNotes;
use super::step::SetupStep;

/// Returns true if an earlier setup ended between a drop-in and the restart that applies it.
///
/// # Errors
/// The notes can't be read.
pub fn needs_restart(effects: &impl SetupEffects) -> Result<bool, SetupError> {
    Ok(SetupNotes::read(effects)?.needs_restart)
}

/// Carries out the steps in order. Each is noted before it is done, and passed to `tell` after.
///
/// # Errors
/// A step fails. Those before it stay done and noted, and `ksmith setup --undo` undoes them.
pub fn carry_out(
    effects: &mut impl SetupEffects,
    steps: &[SetupStep],
    mut tell: impl FnMut(&SetupStep),
) -> Result<(), SetupError> {
    let mut notes = SetupNotes::read(effects)?;
    for step in steps {
        if needs_reload(step, &notes) {
            apply_drop_ins(effects, &mut notes)?;
        }
        notes.add(step);
        notes.save(effects)?;
        perform_step(effects, step)?;
        tell(step);
    }
    apply_drop_ins(effects, &mut notes)
}

/// Returns true if systemd must read the drop-ins before this step.
fn needs_reload(step: &SetupStep, notes: &SetupNotes) -> bool {
    matches!(step, SetupStep::Unit { .. }) && notes.needs_restart
}

/// Reloads systemd if a drop-in has changed, and restarts ksmith's service if it runs.
fn apply_drop_ins(effects: &mut impl SetupEffects, notes: &mut SetupNotes) -> Result<(), SetupError> {
    if !notes.needs_restart {
        return Ok(());
    }
    effects.run("systemctl", &["daemon-reload"])?;
    effects.run("systemctl", &["try-restart", "ksmith.service"])?;
    notes.needs_restart = false;
    notes.save(effects)
}

fn perform_step(effects: &mut impl SetupEffects, step: &SetupStep) -> Result<(), SetupError> {
    match step {
        SetupStep::File { path, text, .. } => effects.write(path, text, 0o644),
        SetupStep::Lines { path } => {
            effects.run("sed", &["-i", LineEdit::CommentOut.script(), &path.to_string_lossy()])
        }
        SetupStep::Group { name } => effects.run("groupadd", &["--force", "--system", name]),
        SetupStep::HandOver { service, masks: true, .. } => effects.run("systemctl", &["mask", "--now", service]),
        SetupStep::Profile { name, path, text, .. } => {
            effects.write(path, text, 0o644)?;
            effects.run("tuned-adm", &["profile", name])
        }
        SetupStep::HandOver { service, was_enabled, was_active, .. } => match (was_enabled, was_active) {
            (true, true) => effects.run("systemctl", &["disable", "--now", service]),
            (true, false) => effects.run("systemctl", &["disable", service]),
            (false, _) => effects.run("systemctl", &["stop", service]),
        },
        SetupStep::Unit { unit, was_enabled, was_active } => match (was_enabled, was_active) {
            (false, false) => effects.run("systemctl", &["enable", "--now", unit]),
            (false, true) => effects.run("systemctl", &["enable", unit]),
            (true, _) => effects.run("systemctl", &["start", unit]),
        },
    }
}
