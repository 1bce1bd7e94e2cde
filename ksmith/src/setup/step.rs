//! The steps of a setup, each with what undoing it needs.

use std::path::{Path, PathBuf};

use ksmith_core::other_controllers::LineEdit;
use serde::{Deserialize, Serialize};

/// One step of a setup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum SetupStep {
    /// A file is written where there is none.
    File {
        /// Its path.
        path: PathBuf,
        /// The text that is written.
        text: String,
        /// The reason why this host needs it.
        why: String,
    },
    /// A group is made.
    Group {
        /// Its name.
        name: String,
    },
    /// Another controller's service is disabled and stopped.
    HandOver {
        /// The name of the service.
        service: String,
        /// True if it was enabled.
        was_enabled: bool,
        /// True if it was active.
        was_active: bool,
        /// The links that enabled it, each with its target.
        links: Vec<(PathBuf, PathBuf)>,
        /// True if it is masked, since other units want it.
        #[serde(default)]
        masks: bool,
    },
    /// A profile of tuned that leaves KSM alone takes the place of the active one.
    Profile {
        /// Its name.
        name: String,
        /// Its file.
        path: PathBuf,
        /// The text that is written to it.
        text: String,
        /// The names of the profiles that were active.
        before: String,
        /// True if tuned had chosen them by itself.
        was_automatic: bool,
    },
    /// The lines of a file that write to KSM at boot become comments.
    Lines {
        /// The file's path.
        path: PathBuf,
    },
    /// A unit of ksmith is enabled and started.
    Unit {
        /// The name of the unit.
        unit: String,
        /// True if it was enabled.
        was_enabled: bool,
        /// True if it was active.
        was_active: bool,
    },
}

impl SetupStep {
    /// Returns true if both steps concern the same object. The first one then holds its earlier state.
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { path: a, .. }, Self::File { path: b, .. })
            | (Self::Lines { path: a }, Self::Lines { path: b }) => a == b,
            (Self::Group { name: a }, Self::Group { name: b })
            | (Self::HandOver { service: a, .. }, Self::HandOver { service: b, .. })
            | (Self::Unit { unit: a, .. }, Self::Unit { unit: b, .. })
            | (Self::Profile { name: a, .. }, Self::Profile { name: b, .. }) => a == b,
            _ => false,
        }
    }

    /// Returns true if it writes a drop-in, which takes effect after a reload of systemd and a restart of the service.
    pub fn is_drop_in(&self) -> bool {
        matches!(self, Self::File { path, .. } if is_drop_in(path))
    }

    /// Returns the command that the step amounts to.
    pub fn command(&self) -> String {
        match self {
            Self::File { path, .. } => format!("write {}", path.display()),
            Self::Lines { path } => LineEdit::CommentOut.command(&path.to_string_lossy()),
            Self::Group { name } => format!("groupadd --system {name}"),
            Self::HandOver { service, masks: true, .. } => format!("systemctl mask --now {service}"),
            Self::Profile { name, path, .. } => format!("write {}; tuned-adm profile {name}", path.display()),
            Self::HandOver { service, was_enabled, was_active, .. } => match (was_enabled, was_active) {
                (true, true) => format!("systemctl disable --now {service}"),
                (true, false) => format!("systemctl disable {service}"),
                (false, _) => format!("systemctl stop {service}"),
            },
            Self::Unit { unit, was_enabled, was_active } => match (was_enabled, was_active) {
                (false, false) => format!("systemctl enable --now {unit}"),
                (false, true) => format!("systemctl enable {unit}"),
                (true, _) => format!("systemctl start {unit}"),
            },
        }
    }

    /// Returns the reason for the step, in a few words.
    pub fn why(&self) -> String {
        match self {
            Self::File { why, .. } => why.clone(),
            Self::Lines { .. } => "it writes to KSM after each boot, which --undo restores".to_owned(),
            Self::Group { .. } => "the units need this group".to_owned(),
            Self::HandOver { was_enabled, was_active, .. } => {
                let state = match (was_enabled, was_active) {
                    (true, true) => "it is enabled and runs",
                    (true, false) => "it is enabled and does not run",
                    (false, _) => "it runs and is not enabled",
                };
                format!("it controls KSM; {state}, which --undo restores")
            }
            Self::Profile { before, .. } => {
                format!(
                    "of tuned, the profile {before} sets KSM; this one includes it and leaves KSM alone. --undo goes back to it"
                )
            }
            Self::Unit { .. } => "ksmith controls KSM from now on and after each boot".to_owned(),
        }
    }
}

/// Returns true if a path is that of a drop-in of a unit.
pub(super) fn is_drop_in(path: &Path) -> bool {
    path.parent().is_some_and(|parent| parent.to_string_lossy().ends_with(".service.d"))
}
