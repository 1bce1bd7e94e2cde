//! Other controllers of KSM: what each one does, to which settings, and how it hands over to ksmith and back.
//!
//! This table is what `ksmith doctor`, `ksmith setup` and the daemon's refusal go by. A controller more is a row more.

mod found;
mod table;

pub use found::{AtBoot, FoundController, Profile, Replacement, ServiceState};
pub use table::OTHER_CONTROLLERS;

/// One kind of controller.
#[derive(Debug, PartialEq, Eq)]
pub struct OtherController {
    /// Its name, as its program or its users have it.
    pub name: &'static str,
    /// What it does, and when.
    pub does: &'static str,
    /// The settings that it writes, as files below `/sys/kernel/mm/ksm`.
    pub settings: &'static [&'static str],
    /// Names of its program.
    pub programs: &'static [&'static str],
    /// Its systemd services, in the order in which they start.
    pub services: &'static [&'static str],
    /// A file that only this controller's package installs, where two share program and services.
    pub package: Option<&'static str>,
    /// What it means for ksmith that the controller is there.
    pub conflict: Conflict,
    /// Whether its process can be stopped for a while and go on.
    pub can_be_paused: bool,
    /// How it hands over.
    pub hand_over: HandOver,
}

/// What it means for ksmith that a controller is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// It undoes what ksmith sets, so that no daemon starts beside it without `--take-over`.
    Certain,
    /// It may, by a configuration that this host does not show.
    Possible,
    /// It writes when it starts and when it ends, and not in between.
    AtStart,
    /// The daemon takes it over by itself, and puts it back when it ends.
    None,
    /// It stands in the place of KSM, so that there is nothing that ksmith could control.
    InPlaceOfKsm,
}

/// How a controller hands over to ksmith.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOver {
    /// Its services are disabled and stopped. `ksmith setup` does it.
    Services,
    /// Its services are masked and stopped, since other units want them and so start them whether they are enabled or not.
    /// `ksmith setup` does it.
    Masks {
        /// What else a person should know.
        note: &'static str,
    },
    /// A profile of tuned that leaves KSM alone takes the place of the active one. `ksmith setup` does it.
    Profile {
        /// What a person should know where no such profile can be made.
        note: &'static str,
    },
    /// A person does it by these commands.
    Commands {
        /// To hand over to ksmith.
        over: &'static [&'static str],
        /// To hand back.
        back: &'static [&'static str],
        /// What else a person should know.
        note: &'static str,
    },
    /// Nothing is to be done.
    Nothing,
}

/// The names of the rows that the code treats by themselves.
pub mod name {
    /// The daemon `tuned`.
    pub const TUNED: &str = "tuned";
    /// The kernel's own advisor.
    pub const ADVISOR: &str = "the kernel's advisor";
    /// The UKSM patch of the kernel.
    pub const UKSM: &str = "UKSM";
}

/// The row of this name.
pub fn row(name: &str) -> Option<&'static OtherController> {
    OTHER_CONTROLLERS.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests;
