//! Other controllers of KSM: their actions, their settings, and the way to hand over to ksmith and back.
//!
//! `ksmith doctor`, `ksmith setup` and the daemon's refusal use this table. A new controller is a new row.

mod found;
mod line_edit;
mod table;

pub use found::{BootState, FoundController, ReplacementProfile, ServiceState, TunedProfile};
pub use line_edit::LineEdit;
pub use table::OTHER_CONTROLLERS;

/// One kind of controller.
#[derive(Debug, PartialEq, Eq)]
pub struct OtherController {
    /// Its name, as its program or its users have it.
    pub name: &'static str,
    /// A sentence on its actions and their times.
    pub does: &'static str,
    /// The settings that it writes, as files below `/sys/kernel/mm/ksm`.
    pub settings: &'static [&'static str],
    /// Names of its program.
    pub programs: &'static [&'static str],
    /// Its systemd services, in the order in which they start.
    pub services: &'static [&'static str],
    /// A file that only this controller's package installs, where two share program and services.
    pub package: Option<&'static str>,
    /// Its conflict with ksmith.
    pub conflict: ControllerConflict,
    /// True if its process can be stopped for a while and go on.
    pub can_be_paused: bool,
    /// The way in which it hands over.
    pub hand_over: HandOver,
}

/// The conflict between a controller and ksmith.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerConflict {
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

/// The way in which a controller hands over to ksmith.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOver {
    /// Its services are disabled and stopped. `ksmith setup` does it.
    Services,
    /// Its services are masked and stopped, since other units want them and so start them whether they are enabled or
    /// not. `ksmith setup` does it.
    Masks {
        /// A further note for a person.
        note: &'static str,
    },
    /// A profile of tuned that leaves KSM alone takes the place of the active one. `ksmith setup` does it.
    Profile {
        /// A note for a person where no such profile can be made.
        note: &'static str,
    },
    /// The lines of its files that write to KSM become comments. `ksmith setup` does it.
    Lines,
    /// A person does it by these commands.
    Commands {
        /// To hand over to ksmith.
        over: &'static [&'static str],
        /// To hand back.
        back: &'static [&'static str],
        /// A further note for a person.
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
    /// Ubuntu's service of QEMU.
    pub const QEMU_KVM: &str = "qemu-kvm.service";
    /// Ubuntu's service of QEMU where its file has `KSM_ENABLED=0`.
    pub const QEMU_KVM_OFF: &str = "qemu-kvm.service with KSM_ENABLED=0";
    /// Files of systemd-tmpfiles.
    pub const TMPFILES: &str = "systemd-tmpfiles";
    /// Files of the package sysfsutils.
    pub const SYSFS: &str = "sysfsutils";
    /// Scripts that the host runs at boot.
    pub const BOOT_SCRIPTS: &str = "a boot script";
    /// A unit of the administrator's that writes to KSM.
    pub const OTHER_UNITS: &str = "a unit of this host";
    /// The UKSM patch of the kernel.
    pub const UKSM: &str = "UKSM";
}

/// Finds the row of this name.
pub fn row(name: &str) -> Option<&'static OtherController> {
    OTHER_CONTROLLERS.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests;
