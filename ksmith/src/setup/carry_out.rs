//! Carries out the steps of a plan.

use super::effects::{Effects, SetupError};
use super::notes::Notes;
use super::step::Step;

/// Returns true if an earlier setup ended between a drop-in and the restart that applies it.
///
/// # Errors
/// The notes can't be read.
pub fn needs_restart(effects: &impl Effects) -> Result<bool, SetupError> {
    Ok(Notes::read(effects)?.needs_restart)
}

/// Carries out the steps in order. Each is noted before it is done, and passed to `tell` after.
///
/// # Errors
/// A step fails. Those before it stay done and noted, and `ksmith setup --undo` undoes them.
pub fn carry_out(
    effects: &mut impl Effects,
    steps: &[Step],
    mut tell: impl FnMut(&Step),
) -> Result<(), SetupError> {
    let mut notes = Notes::read(effects)?;
    for step in steps {
        if needs_reload(step, &notes) {
            settle(effects, &mut notes)?;
        }
        notes.add(step);
        notes.save(effects)?;
        act(effects, step)?;
        tell(step);
    }
    settle(effects, &mut notes)
}

/// Returns true if systemd must read the drop-ins before this step.
fn needs_reload(step: &Step, notes: &Notes) -> bool {
    matches!(step, Step::Unit { .. }) && notes.needs_restart
}

/// Reloads systemd if a drop-in has changed, and restarts ksmith's service if it runs.
fn settle(effects: &mut impl Effects, notes: &mut Notes) -> Result<(), SetupError> {
    if !notes.needs_restart {
        return Ok(());
    }
    effects.run("systemctl", &["daemon-reload"])?;
    effects.run("systemctl", &["try-restart", "ksmith.service"])?;
    notes.needs_restart = false;
    notes.save(effects)
}

fn act(effects: &mut impl Effects, step: &Step) -> Result<(), SetupError> {
    match step {
        Step::File { path, text, .. } => effects.write(path, text, 0o644),
        Step::Group { name } => effects.run("groupadd", &["--force", "--system", name]),
        Step::HandOver { service, masks: true, .. } => effects.run("systemctl", &["mask", "--now", service]),
        Step::Profile { name, path, text, .. } => {
            effects.write(path, text, 0o644)?;
            effects.run("tuned-adm", &["profile", name])
        }
        Step::HandOver { service, was_enabled, was_active, .. } => match (was_enabled, was_active) {
            (true, true) => effects.run("systemctl", &["disable", "--now", service]),
            (true, false) => effects.run("systemctl", &["disable", service]),
            (false, _) => effects.run("systemctl", &["stop", service]),
        },
        Step::Unit { unit, was_enabled, was_active } => match (was_enabled, was_active) {
            (false, false) => effects.run("systemctl", &["enable", "--now", unit]),
            (false, true) => effects.run("systemctl", &["enable", unit]),
            (true, _) => effects.run("systemctl", &["start", unit]),
        },
    }
}
