//! The host of the demo: the live kernel, or a simulated one.

use std::time::Duration;

use super::DemoError;
use crate::filled::page_size;
use crate::{GuestContents, GuestPages};
use ksmith_core::controller::{KeepTerms, KsmHost};
use ksmith_core::sim::PAGE_SIZE;

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

    /// Returns the size of the guests' base pages in bytes. A simulated host has its own, whatever this host has.
    pub fn page_bytes(self) -> u64 {
        match self {
            Self::Live => page_size() as u64,
            Self::Simulated => PAGE_SIZE,
        }
    }
}

/// A host for the demo, on which guests start and time passes.
pub trait DemoStage: KsmHost {
    /// Returns whether figures are measured or simulated.
    fn mode(&self) -> DemoMode;

    /// Returns the pages that guests' memory is on.
    fn pages(&self) -> GuestPages;

    /// Returns the terms on which khugepaged's limits are held.
    fn keep_terms(&self) -> KeepTerms;

    /// Returns the bytes that guests on huge pages really save, which no counter says. `None` on small pages.
    fn truly_saved_bytes(&mut self) -> Option<u64>;

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
