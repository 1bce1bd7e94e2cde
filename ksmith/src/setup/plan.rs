//! The plan of a setup on a host.

use std::path::PathBuf;

use ksmith_core::other_controllers::{BootState, ControllerConflict, FoundController, HandOver};
use serde::Serialize;

use super::domain_nodes::DomainNodesPlan;
use super::drop_ins::{CONFIG, DIRECTORY};
use super::facts::SetupFacts;
use super::step::SetupStep;

/// The user's choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetupChoices {
    /// True if the figures are served on loopback.
    pub serve: bool,
    /// True if no drop-ins are written.
    pub no_drop_ins: bool,
    /// The number of trust domains, each with a NUMA node, if that is planned.
    pub domains: Option<u32>,
}

/// The plan of a setup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SetupPlan {
    /// The steps, in their order.
    pub steps: Vec<SetupStep>,
    /// Obstacles to the setup, each with what to do by hand.
    pub obstacles: Vec<String>,
    /// Advice to the user that does not stop the setup.
    pub notes: Vec<String>,
}

impl SetupPlan {
    /// Makes the plan for a host.
    pub fn new(facts: &SetupFacts, choices: SetupChoices) -> Self {
        let mut plan = Self::default();
        if !facts.has_ksm {
            plan.obstacles
                .push("this kernel has no KSM (no /sys/kernel/mm/ksm): boot one with CONFIG_KSM=y".to_owned());
        }
        if let Some(why) = &facts.senseless_ksm {
            plan.obstacles
                .push(format!("/sys/kernel/mm/ksm/run makes no sense ({why}): check what is mounted there"));
        }
        if !facts.has_config {
            plan.file("/etc/ksmith.toml".into(), CONFIG, "each setting with its default, to be edited");
        }
        if let Some(domains) = choices.domains {
            let nodes = DomainNodesPlan::new(&facts.nodes, domains);
            plan.steps.extend(nodes.steps);
            plan.obstacles.extend(nodes.obstacles);
            plan.notes.extend(nodes.notes);
        }
        plan.steps.extend(facts.missing_groups.iter().map(|name| SetupStep::Group { name: name.clone() }));
        if facts.has_systemd {
            plan.with_systemd(facts, choices);
        } else {
            plan.without_systemd(facts);
        }
        plan
    }

    fn file(&mut self, path: PathBuf, text: &str, why: &str) {
        self.steps.push(SetupStep::File { path, text: text.to_owned(), why: why.to_owned() });
    }

    fn with_systemd(&mut self, facts: &SetupFacts, choices: SetupChoices) {
        if facts.unit("ksmith.service").is_none() {
            self.obstacles.push(
                "there is no ksmith.service: install a package of ksmith, or run install.sh of its archive"
                    .to_owned(),
            );
        }
        if !choices.no_drop_ins {
            for (drop_in, why) in &facts.drop_ins {
                self.file(PathBuf::from(DIRECTORY).join(drop_in.name), drop_in.text, why);
            }
            self.notes.extend(facts.unvouched.iter().map(|name| {
                format!(
                    "{name} can't be asked for figures: if you trust its user, name that user in [balance] users, and \
                     run `ksmith setup` again"
                )
            }));
        }
        // What starts last stops first.
        for found in &facts.controllers {
            match found.controller.hand_over {
                HandOver::Services => self.hand_over(found, facts),
                HandOver::Masks { .. } => self.mask(found, facts),
                HandOver::Profile { .. } if found.is_handed_over_by_setup() => self.profile(found),
                HandOver::Profile { .. } | HandOver::Commands { .. } => self.by_hand(found),
                HandOver::Lines => {
                    self.steps.extend(found.files.iter().map(|file| SetupStep::Lines { path: file.into() }));
                }
                HandOver::Nothing => {}
            }
        }
        let wanted = ["ksmith.service", "ksmith-serve.socket"];
        for unit in wanted.into_iter().filter(|unit| *unit == "ksmith.service" || choices.serve) {
            match facts.unit(unit) {
                Some((true, true)) => {}
                Some((was_enabled, was_active)) => {
                    self.steps.push(SetupStep::Unit { unit: unit.to_owned(), was_enabled, was_active });
                }
                None if unit != "ksmith.service" => {
                    self.notes.push(format!("{unit} is not installed: the package ksmith-serve has it"));
                }
                None => {}
            }
        }
    }

    fn hand_over(&mut self, found: &FoundController, facts: &SetupFacts) {
        let before = self.steps.len();
        for state in found.states.iter().rev() {
            let was_enabled = state.at_boot == BootState::Enabled;
            if !was_enabled && !state.is_active {
                continue;
            }
            let links = facts.links.iter().find(|(service, _)| service == state.service);
            self.steps.push(SetupStep::HandOver {
                service: state.service.to_owned(),
                was_enabled,
                was_active: state.is_active,
                links: links.map(|(_, links)| links.clone()).unwrap_or_default(),
                masks: matches!(found.controller.hand_over, HandOver::Masks { .. }),
            });
        }
        let is_stopped = found.states.iter().any(|state| state.is_active) || self.steps.len() > before;
        if !found.pids.is_empty() && !is_stopped {
            self.obstacles.push(format!(
                "{found} controls KSM and is not a systemd service: end it (kill {}), and what starts it",
                found.pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            ));
        }
    }

    fn mask(&mut self, found: &FoundController, facts: &SetupFacts) {
        let before = self.steps.len();
        self.hand_over(found, facts);
        if self.steps.len() > before {
            self.notes.extend(found.hand_over_note().map(|note| format!("{}: {note}", found.controller.name)));
        }
    }

    fn profile(&mut self, found: &FoundController) {
        let Some(profile) = &found.profile else { return };
        let Some(made) = profile.replacement() else { return };
        self.steps.push(SetupStep::Profile {
            path: PathBuf::from(made.directory).join("tuned.conf"),
            name: made.name,
            text: made.text,
            before: profile.names(),
            was_automatic: profile.is_automatic,
        });
    }

    fn by_hand(&mut self, found: &FoundController) {
        if !found.matters() {
            return;
        }
        let commands: Vec<String> = found.commands_over().iter().map(|command| format!("`{command}`")).collect();
        let note = found.hand_over_note().map(|note| format!("; {note}")).unwrap_or_default();
        let what = format!("{found}: hand over by {}{note}", commands.join(", then "));
        match (found.controller.conflict, found.runs()) {
            (ControllerConflict::Certain, true) => self.obstacles.push(what),
            _ => self.notes.push(what),
        }
    }

    fn without_systemd(&mut self, facts: &SetupFacts) {
        self.notes.push(
            "systemd does not run here: have your service manager run `ksmith daemon` as root, and `ksmith restore` \
             after it has ended"
                .to_owned(),
        );
        for found in facts.controllers.iter().filter(|found| !found.pids.is_empty()) {
            self.notes.push(format!("{found} runs: stop it and keep it from starting; then ksmith can start"));
        }
    }
}
