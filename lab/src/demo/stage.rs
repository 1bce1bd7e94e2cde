//! The host of the demo: the live kernel, or a simulated one.

use std::time::Duration;

use super::DemoError;
use crate::GuestContents;
use ksmith_core::controller::KsmHost;

/// The source of a demo's figures: measured or simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemoMode {
    /// The live kernel with real processes.
    Live,
    /// A simulated ksmd and simulated guests.
    Simulated,
}

impl DemoMode {
    /// The word for this mode in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Simulated => "simulated",
        }
    }
}

/// A host for the demo, on which guests start and time passes.
pub trait DemoStage: KsmHost {
    /// Returns whether figures are measured or simulated.
    fn mode(&self) -> DemoMode;

    /// Starts a guest and waits until its memory holds its contents.
    ///
    /// # Errors
    /// The guest did not start.
    fn start(&mut self, name: &str, contents: &GuestContents) -> Result<(), DemoError>;

    /// Waits for `time`.
    ///
    /// # Errors
    /// Fails with [`DemoError::Interrupted`] on Ctrl-C.
    fn wait(&mut self, time: Duration) -> Result<(), DemoError>;

    /// Time since the stage was made.
    fn elapsed(&self) -> Duration;

    /// Counts the pages of all guests with wrong content.
    ///
    /// # Errors
    /// A guest has ended.
    fn wrong_pages(&mut self) -> Result<usize, DemoError>;

    /// Ends the guests and restores all settings. Returns whether every setting has its value from before.
    ///
    /// # Errors
    /// A setting could not be restored.
    fn strike(self) -> Result<bool, DemoError>;
}
