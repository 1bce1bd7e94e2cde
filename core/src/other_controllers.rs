//! Other controllers of KSM: what each one does, to which settings, and how it hands over to ksmith and back.
//!
//! This table is what `ksmith doctor`, `ksmith setup` and the daemon's refusal go by. A controller more is a row more.

use std::fmt;

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
    /// A person does it by these commands. `{detail}` stands for the detail of what was found.
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

/// The table of all controllers. Where two rows fit, the first one counts.
pub const OTHER_CONTROLLERS: &[OtherController] = &[
    OtherController {
        name: "ksmtuned of Proxmox VE",
        does: "each minute it compares the memory of all virtual machines with the free memory, and scans faster or slower",
        settings: &["run", "pages_to_scan", "sleep_millisecs"],
        programs: &["ksmtuned"],
        services: &["ksmtuned.service"],
        package: Some("usr/share/doc/ksm-control-daemon"),
        conflict: Conflict::Certain,
        can_be_paused: true,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: "ksmtuned",
        does: "each minute it compares the memory of all virtual machines with the free memory, and scans faster or slower",
        settings: &["run", "pages_to_scan", "sleep_millisecs"],
        programs: &["ksmtuned"],
        services: &["ksmtuned.service"],
        package: None,
        conflict: Conflict::Certain,
        can_be_paused: true,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: "ksm.service",
        does: "it switches KSM on when it starts, at boot, and off when it stops",
        settings: &["run", "max_kernel_pages"],
        programs: &[],
        services: &["ksm.service"],
        package: None,
        conflict: Conflict::AtStart,
        can_be_paused: false,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: "momd",
        does: "oVirt's memory overcommitment manager compares used with free memory every ten seconds, scans faster \
               or slower, and moves the guests' balloons",
        settings: &["run", "pages_to_scan", "sleep_millisecs", "merge_across_nodes"],
        programs: &["momd"],
        services: &["mom-vdsm.service", "momd.service"],
        package: None,
        conflict: Conflict::Certain,
        can_be_paused: true,
        hand_over: HandOver::Commands {
            over: &["systemctl disable --now mom-vdsm"],
            back: &["systemctl enable --now mom-vdsm"],
            note: "it also moves the guests' balloons, which end with it; switching KSM off in the cluster's settings \
                   of oVirt keeps them",
        },
    },
    OtherController {
        name: name::TUNED,
        does: "it writes what its profile says when the profile is applied, at boot, and undoes it when it stops",
        settings: &["run"],
        programs: &["tuned"],
        services: &["tuned.service"],
        package: None,
        conflict: Conflict::Certain,
        // It answers requests over D-Bus, which would hang.
        can_be_paused: false,
        hand_over: HandOver::Commands {
            over: &[
                "mkdir /etc/tuned/{detail}-ksmith",
                "printf '[main]\\ninclude={detail}\\n[sysfs]\\ndrop=/sys/kernel/mm/ksm/run\\n' > /etc/tuned/{detail}-ksmith/tuned.conf",
                "tuned-adm profile {detail}-ksmith",
            ],
            back: &["tuned-adm profile {detail}", "rm -r /etc/tuned/{detail}-ksmith"],
            note: "a profile that switches KSM off in a script, as cpu-partitioning does, means hosts without merging: \
                   choose another profile there",
        },
    },
    OtherController {
        name: "virt-handler",
        does: "KubeVirt's handler switches KSM on while less than a fifth of the memory is available, on nodes that \
               ksmConfiguration selects (label kubevirt.io/ksm-enabled=true)",
        settings: &["run", "pages_to_scan", "sleep_millisecs"],
        programs: &["virt-handler"],
        services: &[],
        package: None,
        conflict: Conflict::Possible,
        // Its probes of liveness would end it.
        can_be_paused: false,
        hand_over: HandOver::Commands {
            over: &[
                "kubectl -n kubevirt get kubevirt kubevirt -o jsonpath='{.spec.configuration.ksmConfiguration}'",
                "kubectl -n kubevirt patch kubevirt kubevirt --type=merge -p '{\"spec\":{\"configuration\":{\"ksmConfiguration\":null}}}'",
            ],
            back: &[
                "kubectl -n kubevirt patch kubevirt kubevirt --type=merge -p '{\"spec\":{\"configuration\":{\"ksmConfiguration\":OLD}}}'",
            ],
            note: "the first command prints OLD, which hands back; if it prints nothing, virt-handler leaves KSM alone",
        },
    },
    OtherController {
        name: "uksmd",
        does: "on a patched kernel it makes all processes mergeable; it switches KSM on when it starts, and unmerges \
               everything when it ends",
        settings: &["run"],
        programs: &["uksmd"],
        services: &["uksmd.service"],
        package: None,
        conflict: Conflict::Certain,
        // systemd's watchdog would end it.
        can_be_paused: false,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: name::UKSM,
        does: "this patch of the kernel merges pages by itself, in the place of KSM",
        settings: &[],
        programs: &[],
        services: &[],
        package: None,
        conflict: Conflict::InPlaceOfKsm,
        can_be_paused: false,
        hand_over: HandOver::Commands {
            over: &["echo 0 > /sys/kernel/mm/uksm/run"],
            back: &["echo 1 > /sys/kernel/mm/uksm/run"],
            note: "ksmith controls KSM only: boot a kernel with CONFIG_KSM and without UKSM",
        },
    },
    OtherController {
        name: name::ADVISOR,
        does: "advisor_mode=scan-time: the kernel corrects pages_to_scan once per pass, and scans an idle host for ever",
        settings: &["pages_to_scan"],
        programs: &[],
        services: &[],
        package: None,
        conflict: Conflict::None,
        can_be_paused: false,
        hand_over: HandOver::Nothing,
    },
];

/// The row of this name.
pub fn row(name: &str) -> Option<&'static OtherController> {
    OTHER_CONTROLLERS.iter().find(|row| row.name == name)
}

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

/// A controller that was found on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundController {
    /// Its row in the table.
    pub controller: &'static OtherController,
    /// The PIDs of its processes.
    pub pids: Vec<u32>,
    /// What is special here: tuned's profile.
    pub detail: Option<String>,
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
        let detail = self.detail.as_deref().unwrap_or("PROFILE");
        commands.iter().map(|command| command.replace("{detail}", detail)).collect()
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
        match &self.detail {
            Some(profile) => write!(f, " with the profile {profile}, which sets KSM"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, states: &[(&'static str, bool, AtBoot)]) -> FoundController {
        let state = |&(service, is_active, at_boot): &_| ServiceState { service, is_active, at_boot };
        FoundController {
            controller: row(name).unwrap(),
            pids: Vec::new(),
            detail: None,
            states: states.iter().map(state).collect(),
            is_on: false,
        }
    }

    #[test]
    fn each_row_says_what_it_does_and_how_it_hands_over_both_ways() {
        for row in OTHER_CONTROLLERS {
            let found = FoundController { detail: Some("mine".into()), ..found(row.name, &[]) };
            let is_nothing = row.hand_over == HandOver::Nothing;
            assert!(row.does.len() > 40, "{}", row.name);
            assert_eq!(found.commands_over().is_empty(), is_nothing, "{}", row.name);
            assert_eq!(found.commands_back().is_empty(), is_nothing, "{}", row.name);
            assert!(!found.commands_over().concat().contains("{detail}"), "{}", row.name);
            assert!(row.settings.is_empty() == (row.conflict == Conflict::InPlaceOfKsm), "{}", row.name);
            assert!(row.hand_over != HandOver::Services || !row.services.is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn handing_back_restores_what_was_enabled_and_what_ran() {
        use AtBoot::{Disabled, Enabled};
        for (is_active, at_boot, back) in [
            (true, Enabled, &["systemctl enable --now ksmtuned"][..]),
            (false, Enabled, &["systemctl enable ksmtuned"]),
            (true, Disabled, &["systemctl start ksmtuned"]),
            (false, Disabled, &[]),
        ] {
            let found = found("ksmtuned", &[("ksmtuned.service", is_active, at_boot)]);
            assert_eq!(found.commands_back(), back, "{is_active} {at_boot:?}");
            assert_eq!(found.commands_over(), ["systemctl disable --now ksmtuned"]);
            assert_eq!(found.matters(), is_active || at_boot == Enabled);
        }
    }

    #[test]
    fn tuned_is_told_by_its_profile() {
        let found = FoundController { detail: Some("rt".into()), pids: vec![40], ..found(name::TUNED, &[]) };
        assert_eq!(found.to_string(), "tuned (pid 40) with the profile rt, which sets KSM");
        assert_eq!(found.commands_over()[2], "tuned-adm profile rt-ksmith");
        assert_eq!(found.commands_back()[0], "tuned-adm profile rt");
    }
}
