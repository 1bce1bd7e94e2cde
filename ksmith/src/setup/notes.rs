//! The notes of the steps of a setup, written to disk before each step.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::effects::{SetupEffects, SetupError};
use super::step::SetupStep;

/// Path of the notes, which only root can read.
pub const NOTES: &str = "/var/lib/ksmith/setup.json";

/// The steps of earlier setups, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SetupNotes {
    /// The steps, including one that was only begun.
    pub steps: Vec<SetupStep>,
    /// True if systemd must reload the units and restart ksmith's service.
    #[serde(default)]
    pub needs_restart: bool,
}

impl SetupNotes {
    /// Reads the notes of earlier setups. There are none after an undo.
    ///
    /// # Errors
    /// The notes can't be read, or make no sense.
    pub fn read(effects: &impl SetupEffects) -> Result<Self, SetupError> {
        let Some(text) = effects.text(Path::new(NOTES))? else { return Ok(Self::default()) };
        serde_json::from_str(&text).map_err(|why| SetupError::Notes { path: NOTES.into(), why: why.to_string() })
    }

    /// Writes the notes, or removes the file if they are empty.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn save(&self, effects: &mut impl SetupEffects) -> Result<(), SetupError> {
        if *self == Self::default() {
            return effects.remove(Path::new(NOTES));
        }
        let text = serde_json::to_string_pretty(self)
            .map_err(|why| SetupError::Notes { path: NOTES.into(), why: why.to_string() })?;
        effects.write(Path::new(NOTES), &(text + "\n"), 0o600)
    }

    /// Adds a step that is about to be done. An earlier step on the same object stays: it holds the state before any
    /// setup.
    pub(super) fn add(&mut self, step: &SetupStep) {
        if !self.steps.iter().any(|noted| noted.is_about_the_same(step)) {
            self.steps.push(step.clone());
        }
        self.needs_restart |= step.is_drop_in();
    }
}
