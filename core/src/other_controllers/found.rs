//! A controller that was found on a host: whether it writes to KSM, and the commands to hand over and back.

use std::fmt;

use super::{HandOver, OtherController};

/// What systemd does with a service at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtBoot {
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
    /// Whether it is active now.
    pub is_active: bool,
    /// Whether it starts at boot.
    pub at_boot: AtBoot,
}

/// A profile of tuned that touches KSM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The name of the profile.
    pub name: String,
    /// The options that touch KSM, each with its section.
    pub options: Vec<(String, String)>,
}

impl Profile {
    /// The lines of a profile that includes this one and drops its options, with line breaks as `printf` has them. A script
    /// can't be dropped in parts.
    fn drops(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for (of, option) in self.options.iter().filter(|(of, _)| of != "script") {
            match section == of {
                true => text.push(','),
                false => text.push_str(&format!("[{of}]\\ndrop=")),
            }
            text.push_str(option);
            section = of;
            let is_last_of_section =
                self.options.iter().rfind(|(other, _)| other == of).is_some_and(|(_, last)| last == option);
            if is_last_of_section {
                text.push_str("\\n");
            }
        }
        text
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
    pub profile: Option<Profile>,
    /// Its services on this host.
    pub states: Vec<ServiceState>,
    /// Whether something that is neither process nor service is switched on: the kernel's own.
    pub is_on: bool,
}

impl FoundController {
    /// Whether it runs now.
    pub fn runs(&self) -> bool {
        self.is_on || !self.pids.is_empty() || self.states.iter().any(|state| state.is_active)
    }

    /// Whether it starts at boot.
    pub fn starts_at_boot(&self) -> bool {
        self.states.iter().any(|state| state.at_boot == AtBoot::Enabled)
    }

    /// Whether it writes to KSM now or after the next boot.
    pub fn matters(&self) -> bool {
        self.runs() || self.starts_at_boot()
    }

    /// The commands to hand over to ksmith.
    pub fn commands_over(&self) -> Vec<String> {
        match self.controller.hand_over {
            HandOver::Nothing => Vec::new(),
            HandOver::Commands { over, .. } => self.filled(over),
            HandOver::Services => {
                let to_stop = self.services_where(|state| state.is_active || state.at_boot == AtBoot::Enabled);
                vec![format!("systemctl disable --now {}", list(to_stop.into_iter().rev()))]
            }
        }
    }

    /// The commands to hand back, to the state of now.
    pub fn commands_back(&self) -> Vec<String> {
        match self.controller.hand_over {
            HandOver::Nothing => Vec::new(),
            HandOver::Commands { back, .. } => self.filled(back),
            HandOver::Services if self.states.is_empty() => {
                vec![format!("systemctl enable --now {}", list(self.controller.services.iter().copied()))]
            }
            HandOver::Services => {
                let command = |verb: &str, is_meant: fn(&ServiceState) -> bool| {
                    let services: Vec<&str> =
                        self.states.iter().filter(|state| is_meant(state)).map(|state| state.service).collect();
                    (!services.is_empty()).then(|| format!("systemctl {verb} {}", list(services.iter().copied())))
                };
                let both = command("enable --now", |s| s.at_boot == AtBoot::Enabled && s.is_active);
                let enable = command("enable", |s| s.at_boot == AtBoot::Enabled && !s.is_active);
                let start = command("start", |s| s.at_boot != AtBoot::Enabled && s.is_active);
                [both, enable, start].into_iter().flatten().collect()
            }
        }
    }

    /// What else a person should know of handing over.
    pub fn note(&self) -> Option<&'static str> {
        match self.controller.hand_over {
            HandOver::Commands { note, .. } => Some(note),
            HandOver::Services | HandOver::Nothing => None,
        }
    }

    fn filled(&self, commands: &[&str]) -> Vec<String> {
        let (name, drops) =
            self.profile.as_ref().map_or(("PROFILE", String::new()), |profile| (&profile.name, profile.drops()));
        let fill = |command: &&str| command.replace("{profile}", name).replace("{drops}", &drops);
        commands.iter().map(fill).collect()
    }

    /// The services that are meant, or all of the table where no service file shows which there are.
    fn services_where(&self, is_meant: fn(&ServiceState) -> bool) -> Vec<&'static str> {
        let meant: Vec<&str> =
            self.states.iter().filter(|state| is_meant(state)).map(|state| state.service).collect();
        if meant.is_empty() { self.controller.services.to_vec() } else { meant }
    }
}

/// Services as people write them, without their suffix.
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
        match &self.profile {
            Some(profile) => write!(f, " with the profile {}, which sets KSM", profile.name),
            None => Ok(()),
        }
    }
}
