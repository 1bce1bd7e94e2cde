//! Where the demo is played: on the live kernel, or on a simulated one.

use std::time::Duration;

use super::DemoError;
use crate::controller::Host;
use crate::lab::Contents;

/// Whether figures are real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The live kernel, real processes.
    Live,
    /// A simulated ksmd and simulated guests.
    Simulated,
}

impl Mode {
    /// The word in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Simulated => "simulated",
        }
    }
}

/// A host on which guests can be started and time passes.
pub trait Stage: Host {
    /// Whether figures are real.
    fn mode(&self) -> Mode;

    /// Starts a guest; returns when its memory holds its contents.
    ///
    /// # Errors
    /// It could not be started.
    fn start(&mut self, name: &str, contents: &Contents) -> Result<(), DemoError>;

    /// Lets this much time pass.
    ///
    /// # Errors
    /// [`DemoError::Interrupted`].
    fn wait(&mut self, time: Duration) -> Result<(), DemoError>;

    /// Time since the stage was set.
    fn elapsed(&self) -> Duration;

    /// Pages of all guests that do not hold what they should.
    ///
    /// # Errors
    /// A guest is gone.
    fn wrong_pages(&mut self) -> Result<usize, DemoError>;

    /// Ends the guests and puts all settings back. Returns whether they are as they were.
    ///
    /// # Errors
    /// Something could not be put back.
    fn strike(self) -> Result<bool, DemoError>;
}
