//! The notes of what a setup does, on disk before it is done.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::effects::{Effects, SetupError};
use super::step::Step;

/// Where the notes are. Only root reads them.
pub const NOTES: &str = "/var/lib/ksmith/setup.json";

/// What was done, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notes {
    /// The steps, also those that were begun only.
    pub steps: Vec<Step>,
    /// Whether systemd must read the units again and start ksmith's service anew.
    #[serde(default)]
    pub needs_restart: bool,
}

impl Notes {
    /// The notes of earlier setups. There are none after an undo.
    ///
    /// # Errors
    /// The notes can't be read, or make no sense.
    pub fn read(effects: &impl Effects) -> Result<Self, SetupError> {
        let Some(text) = effects.text(Path::new(NOTES))? else { return Ok(Self::default()) };
        serde_json::from_str(&text).map_err(|why| SetupError::Notes { path: NOTES.into(), why: why.to_string() })
    }

    /// Writes the notes, or removes the file if they are empty.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn save(&self, effects: &mut impl Effects) -> Result<(), SetupError> {
        if *self == Self::default() {
            return effects.remove(Path::new(NOTES));
        }
        let text = serde_json::to_string_pretty(self)
            .map_err(|why| SetupError::Notes { path: NOTES.into(), why: why.to_string() })?;
        effects.write(Path::new(NOTES), &(text + "\n"), 0o600)
    }

    /// Notes a step that is about to be done. What is noted of the same thing stays: it says how the host was before any setup.
    pub(super) fn add(&mut self, step: &Step) {
        if !self.steps.iter().any(|noted| noted.is_about_the_same(step)) {
            self.steps.push(step.clone());
        }
        self.needs_restart |= step.is_drop_in();
    }
}
