//! A controller that was found on a host: its state, and the commands to hand over and back.

use std::fmt;

use super::{HandOver, LineEdit, OtherController};

/// The state of a service at boot, as systemd has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootState {
    /// It starts the service.
    Enabled,
    /// It starts the service for this boot only.
    EnabledRuntime,
    /// It does not start the service by itself.
    Disabled,
    /// The service can't be started at all.
    Masked,
}

/// A systemd service of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceState {
    /// The name of the service.
    pub service: &'static str,
    /// True if it is active now.
    pub is_active: bool,
    /// Its state at boot.
    pub at_boot: BootState,
}

/// The active profiles of tuned, some of which touch KSM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunedProfile {
    /// The names of the profiles, in the order in which tuned applies them.
    pub active: Vec<String>,
    /// The options that touch KSM, each with its section.
    pub options: Vec<(String, String)>,
    /// True if tuned chose the profile by itself, by its recommendation for the machine.
    pub is_automatic: bool,
    /// True for tuned's post-loaded profile, which is applied after the active ones, whichever those are.
    pub is_post_loaded: bool,
    /// The directory in which tuned looks for the administrator's profiles.
    pub directory: String,
}

/// A profile of tuned that includes the active ones and leaves KSM alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacementProfile {
    /// Name of the new profile.
    pub name: String,
    /// Directory of the new profile.
    pub directory: String,
    /// The text of its `tuned.conf`.
    pub text: String,
}

impl TunedProfile {
    /// Returns the names as tuned-adm accepts them.
    pub fn names(&self) -> String {
        self.active.join(" ")
    }

    /// Returns the profile to put in the place of the active ones. `None` where they set KSM by a script, which can't
    /// be dropped in parts, or where tuned applies them after any other.
    pub fn replacement(&self) -> Option<ReplacementProfile> {
        if self.is_post_loaded || self.options.iter().any(|(section, _)| section == "script") {
            return None;
        }
        let name = format!("{}-ksmith", self.active.join("-"));
        let mut text = format!("[main]\ninclude={}\n", self.active.join(","));
        for of_section in self.options.chunk_by(|(a, _), (b, _)| a == b) {
            let options: Vec<&str> = of_section.iter().map(|(_, option)| option.as_str()).collect();
            text.push_str(&format!("[{}]\ndrop={}\n", of_section[0].0, options.join(",")));
        }
        Some(ReplacementProfile { directory: format!("{}/{name}", self.directory), name, text })
    }

    fn commands_over(&self) -> Vec<String> {
        let Some(ReplacementProfile { name, directory, text }) = self.replacement() else {
            return vec!["tuned-adm list".to_owned(), "tuned-adm profile OTHER".to_owned()];
        };
        vec![
            format!("mkdir -p {directory}"),
            format!("printf '{}' > {directory}/tuned.conf", text.replace('%', "%%").replace('\n', "\\n")),
            format!("tuned-adm profile {name}"),
        ]
    }

    fn commands_back(&self) -> Vec<String> {
        let select = match self.is_automatic {
            true => "tuned-adm auto_profile".to_owned(),
            false => format!("tuned-adm profile {}", self.names()),
        };
        let remove = self.replacement().map(|made| format!("rm -r {}", made.directory));
        [Some(select), remove].into_iter().flatten().collect()
    }
}

/// A controller that was found on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundController {
    /// Its row in the table.
    pub controller: &'static OtherController,
    /// The PIDs of its processes.
    pub pids: Vec<u32>,
    /// The profile of tuned.
    pub profile: Option<TunedProfile>,
    /// Its services on this host.
    pub states: Vec<ServiceState>,
    /// Files that are read at boot and have lines that write to KSM.
    pub files: Vec<String>,
    /// True if something that is neither process nor service is switched on: the kernel's own.
    pub is_on: bool,
}

impl FoundController {
    /// Returns true if it runs now.
    pub fn runs(&self) -> bool {
        self.is_on || !self.pids.is_empty() || self.states.iter().any(|state| state.is_active)
    }

    /// Returns true if it starts at boot.
    pub fn starts_at_boot(&self) -> bool {
        !self.files.is_empty() || self.states.iter().any(|state| state.at_boot == BootState::Enabled)
    }

    /// Returns true if it writes to KSM now or after the next boot.
    pub fn matters(&self) -> bool {
        self.runs() || self.starts_at_boot()
    }

    /// Returns the commands to hand over to ksmith.
    pub fn commands_over(&self) -> Vec<String> {
        let to_stop = || {
            let services = self.services_where(|state| state.is_active || state.at_boot == BootState::Enabled);
            list(services.into_iter().rev())
        };
        match self.controller.hand_over {
            HandOver::Nothing => Vec::new(),
            HandOver::Commands { over, .. } => over.iter().map(ToString::to_string).collect(),
            HandOver::Lines => self.edits(LineEdit::CommentOut),
            HandOver::Services => vec![format!("systemctl disable --now {}", to_stop())],
            HandOver::Masks { .. } => vec![format!("systemctl mask --now {}", to_stop())],
            HandOver::Profile { .. } => self.profile.as_ref().map(TunedProfile::commands_over).unwrap_or_default(),
        }
    }

    /// Returns the commands to hand back, to the present state.
    pub fn commands_back(&self) -> Vec<String> {
        let is_enabled = |state: &ServiceState| state.at_boot == BootState::Enabled;
        match self.controller.hand_over {
            HandOver::Nothing => Vec::new(),
            HandOver::Commands { back, .. } => back.iter().map(ToString::to_string).collect(),
            HandOver::Lines => self.edits(LineEdit::CommentBack),
            HandOver::Profile { .. } => self.profile.as_ref().map(TunedProfile::commands_back).unwrap_or_default(),
            HandOver::Services if self.states.is_empty() => {
                vec![format!("systemctl enable --now {}", list(self.controller.services.iter().copied()))]
            }
            HandOver::Services => {
                let both = self.command("enable --now", |s| is_enabled(s) && s.is_active);
                let enable = self.command("enable", |s| is_enabled(s) && !s.is_active);
                let start = self.command("start", |s| !is_enabled(s) && s.is_active);
                [both, enable, start].into_iter().flatten().collect()
            }
            HandOver::Masks { .. } => {
                let masked =
                    list(self.services_where(|s| s.is_active || s.at_boot == BootState::Enabled).into_iter());
                let start = self.command("start", |state| state.is_active);
                [Some(format!("systemctl unmask {masked}")), start].into_iter().flatten().collect()
            }
        }
    }

    /// Returns a command of sed for each file.
    fn edits(&self, edit: LineEdit) -> Vec<String> {
        self.files.iter().map(|file| edit.command(file)).collect()
    }

    /// Returns a command of systemctl for those services that are meant; `None` if there are none.
    fn command(&self, verb: &str, is_meant: impl Fn(&ServiceState) -> bool) -> Option<String> {
        let services: Vec<&str> =
            self.states.iter().filter(|state| is_meant(state)).map(|state| state.service).collect();
        (!services.is_empty()).then(|| format!("systemctl {verb} {}", list(services.iter().copied())))
    }

    /// Returns a further note on handing over, if there is one.
    pub fn hand_over_note(&self) -> Option<&'static str> {
        match self.controller.hand_over {
            HandOver::Commands { note, .. } | HandOver::Masks { note } => Some(note),
            HandOver::Profile { note } => {
                self.profile.as_ref().is_none_or(|p| p.replacement().is_none()).then_some(note)
            }
            HandOver::Services | HandOver::Lines | HandOver::Nothing => None,
        }
    }

    /// Returns true if `ksmith setup` hands over from it.
    pub fn is_handed_over_by_setup(&self) -> bool {
        match self.controller.hand_over {
            HandOver::Services | HandOver::Masks { .. } | HandOver::Lines => true,
            // tuned-adm asks the running daemon.
            HandOver::Profile { .. } => {
                self.runs() && self.profile.as_ref().is_some_and(|profile| profile.replacement().is_some())
            }
            HandOver::Commands { .. } | HandOver::Nothing => false,
        }
    }

    /// Returns the services that are meant, or all of the table where no service file shows which there are.
    fn services_where(&self, is_meant: fn(&ServiceState) -> bool) -> Vec<&'static str> {
        let meant: Vec<&str> =
            self.states.iter().filter(|state| is_meant(state)).map(|state| state.service).collect();
        if meant.is_empty() { self.controller.services.to_vec() } else { meant }
    }
}

/// Joins services as people write them, without their suffix.
fn list(services: impl Iterator<Item = &'static str>) -> String {
    services.map(|service| service.trim_end_matches(".service")).collect::<Vec<_>>().join(" ")
}

/// `ksmtuned (pid 812)`
impl fmt::Display for FoundController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.controller.name)?;
        if !self.pids.is_empty() {
            let pids: Vec<String> = self.pids.iter().map(ToString::to_string).collect();
            write!(f, " (pid {})", pids.join(", "))?;
        }
        if !self.files.is_empty() {
            write!(f, " by {}", self.files.join(", "))?;
        }
        match &self.profile {
            Some(profile) => write!(f, " with the profile {}, which sets KSM", profile.names()),
            None => Ok(()),
        }
    }
}
