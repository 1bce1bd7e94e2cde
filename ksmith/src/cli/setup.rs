//! The command `ksmith setup`.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ksmith_core::printable::{TextPage, TextTone};
use ksmith_host::guests::GuestTracker;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_host::systemd;

use super::{CommandFailure, GlobalArgs, exit, print};
use crate::setup::{
    HostEffects, NOTES, NodeFacts, SetupChoices, SetupError, SetupFacts, SetupPlan, SetupStep, UndoReport,
    carry_out, needs_restart, undo,
};

/// Set ksmith up on this host: configuration, hand-over from other controllers, service.
///
/// Shows what it would change, asks, and does it: writes /etc/ksmith.toml if there is none, grants the service the
/// rights that this host's guests need (drop-ins), creates missing groups, takes KSM over from ksmtuned, tuned and
/// their like, and enables and starts ksmith.service. A second run does only what is missing.
///
/// Before each step it records in /var/lib/ksmith/setup.json how the host was. `--undo` restores that: other
/// controllers are enabled and started as they were, and what setup wrote is removed unless it was edited since. With
/// --root it changes files in that tree, which may be the image of a host.
#[derive(Debug, Args)]
pub struct SetupArgs {
    /// Do it without asking
    #[arg(long, short)]
    yes: bool,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Undo what setup did on this host
    #[arg(long, conflicts_with_all = ["serve", "no_drop_ins", "domains"])]
    undo: bool,
    /// Serve the figures on http://127.0.0.1:9797 too (ksmith-serve.socket)
    #[arg(long)]
    serve: bool,
    /// Write no drop-ins: the service keeps the rights that its package gives it
    #[arg(long)]
    no_drop_ins: bool,
    /// Plan a NUMA node for each of N trust domains: guests of different domains never share a page
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    domains: Option<u32>,
}

/// Timeout for the answers of hypervisors.
const PATIENCE: Duration = Duration::from_secs(1);

impl SetupArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = global.root();
        let is_root = rustix::process::geteuid().is_root();
        if root.is_host() && !is_root && !self.dry_run {
            return Err(CommandFailure::no_privilege(
                "setting up a host needs root: run it with sudo; --dry-run shows without root what it would do",
            )
            .into());
        }
        let effects = HostEffects::new(root.clone());
        if self.undo { self.take_back(global, &root, effects) } else { self.set_up(global, &root, effects) }
    }

    fn set_up(&self, global: &GlobalArgs, root: &Root, mut effects: HostEffects) -> anyhow::Result<ExitCode> {
        let mut facts = facts(global, root)?;
        facts.nodes = self.domains.map(|domains| NodeFacts::read_host(root, domains)).unwrap_or_default();
        let mut choices = SetupChoices { serve: self.serve, no_drop_ins: self.no_drop_ins, domains: self.domains };
        let asks = !self.yes && !self.dry_run && can_ask(global);
        let can_serve = facts.units.iter().any(|(unit, _, is_active)| unit == "ksmith-serve.socket" && !is_active);
        if asks && !choices.serve && facts.has_systemd && can_serve {
            choices.serve = prompt_yes_no("Serve the figures on http://127.0.0.1:9797 too?")?;
        }
        let plan = SetupPlan::new(&facts, choices);
        // Only root reads the notes; without them a dry run shows all but a restart that is left to do.
        let is_left = needs_restart(&effects).or_else(|error| if self.dry_run { Ok(false) } else { Err(error) })?;
        let has_work = !plan.steps.is_empty() || is_left;
        if global.json && self.dry_run {
            print::json(&serde_json::json!({ "plan": plan, "done": false }))?;
        }
        if !global.json {
            print::page(&page(&plan, has_work, &place(root)))?;
        }
        if !plan.obstacles.is_empty() {
            let what = format!("nothing was changed: {}", plan.obstacles.join("; "));
            return Err(CommandFailure::impossible(what).into());
        }
        if self.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        if !has_work {
            if global.json {
                print::json(&serde_json::json!({ "plan": plan, "done": true }))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        if !self.agreed(asks, "Do this?")? {
            print::line("nothing was changed")?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut faults = Vec::new();
        let outcome = carry_out(&mut effects, &plan.steps, |step| {
            if !global.json {
                faults.extend(print::line(format_args!("done: {}", step.command())).err());
            }
        });
        outcome.map_err(|error| failed(&error, &plan))?;
        if let Some(fault) = faults.pop() {
            return Err(fault);
        }
        if global.json {
            print::json(&serde_json::json!({ "plan": plan, "done": true }))?;
        } else if facts.has_systemd {
            print::line("ksmith controls KSM now: see `ksmith status`. `ksmith setup --undo` undoes this.")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns true if the user agrees, at the terminal or by `--yes`.
    fn agreed(&self, asks: bool, question: &str) -> anyhow::Result<bool> {
        match (self.yes, asks) {
            (true, _) => Ok(true),
            (false, true) => prompt_yes_no(question),
            (false, false) => Err(CommandFailure::usage(
                "nothing was changed, since there is no terminal to ask on: --yes does it without asking, \
                --dry-run only shows it",
            )
            .into()),
        }
    }

    fn take_back(&self, global: &GlobalArgs, root: &Root, mut effects: HostEffects) -> anyhow::Result<ExitCode> {
        let has_systemd = systemd::is_running(root);
        let would = undo(&mut effects, true, has_systemd)?;
        let is_empty = would.done.is_empty() && would.kept.is_empty();
        if !global.json && (self.dry_run || !self.yes || is_empty) {
            print::page(&undo_page(&would, is_empty, &place(root)))?;
        }
        let undone = match self.dry_run || is_empty {
            true => would,
            false if self.agreed(can_ask(global), "Undo this?")? => undo(&mut effects, false, has_systemd)?,
            false => {
                print::line("nothing was changed")?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        let is_real = !self.dry_run && !is_empty;
        if global.json {
            print::json(&serde_json::json!({
                "undone": undone.done, "kept": undone.kept, "failed": undone.failed, "done": is_real,
            }))?;
        } else if is_real {
            for what in &undone.done {
                print::line(format_args!("done: {what}"))?;
            }
            for what in &undone.kept {
                print::line(format_args!("kept: {what}"))?;
            }
        }
        if undone.failed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let what = format!(
            "not everything was undone: {}. It stays recorded in {NOTES}: correct that, and run `ksmith setup \
            --undo` again",
            undone.failed.join("; ")
        );
        Err(CommandFailure::with_code(exit::FAILED, what).into())
    }
}

fn facts(global: &GlobalArgs, root: &Root) -> anyhow::Result<SetupFacts> {
    let config = global.load_config()?;
    let sample = HostObserver::new(root.clone()).sample();
    let guests =
        GuestTracker::new(root.clone(), config.guests.libvirt_uri.clone()).list_within(&sample, PATIENCE).guests;
    Ok(SetupFacts::read_host(root, &config, &guests))
}

/// Returns true if a question can be asked at a terminal.
fn can_ask(global: &GlobalArgs) -> bool {
    !global.json && io::stdin().is_terminal() && print::is_watched()
}

/// Asks a question at the terminal. Returns true if the answer is `y` or `yes`.
fn prompt_yes_no(question: &str) -> anyhow::Result<bool> {
    print::prompt(format_args!("{question} [y/N] "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
}

fn failed(error: &SetupError, plan: &SetupPlan) -> CommandFailure {
    let is_unit = |argument: &String| argument == "ksmith.service";
    let starts_ksmith =
        matches!(error, SetupError::Failed { arguments, .. } if arguments.last().is_some_and(is_unit));
    let why = if starts_ksmith && !plan.steps.is_empty() { " (`journalctl -u ksmith` says why)" } else { "" };
    let what = format!(
        "{error}{why}. What was done is recorded: run `ksmith setup` again to continue, or `ksmith setup --undo` \
        to undo it"
    );
    CommandFailure::with_code(exit::FAILED, what)
}

/// Returns words for the host that is changed: this one, or the tree that --root names, which may be the image of one.
fn place(root: &Root) -> String {
    match root.is_host() {
        true => "on this host".to_owned(),
        // Without the slash at its end.
        false => format!("in {}", root.path("").components().as_path().display()),
    }
}

/// Returns the plan as text for people.
fn page(plan: &SetupPlan, has_work: bool, place: &str) -> TextPage {
    let mut page = TextPage::new();
    if has_work {
        page.line(format_args!("ksmith setup changes this {place}:"));
    } else if plan.obstacles.is_empty() {
        page.toned(TextTone::Good, "ksmith is set up: there is nothing to do");
    }
    for step in &plan.steps {
        page.line(format_args!("  {}", step.command()));
        page.line(format_args!("      {}", step.why()));
        if let (true, SetupStep::File { text, .. }) = (step.is_drop_in(), step) {
            page.lines(text.lines().map(|line| format!("      | {line}")));
        }
    }
    if has_work && plan.steps.is_empty() {
        page.line("  systemctl daemon-reload; systemctl try-restart ksmith.service");
        page.line("      an earlier setup ended before this");
    }
    for obstacle in &plan.obstacles {
        page.partly_toned("", TextTone::Problem, "first, by hand:", format!(" {obstacle}"));
    }
    page.lines(plan.notes.iter().map(|note| format!("note: {note}")));
    page
}

fn undo_page(would: &UndoReport, is_empty: bool, place: &str) -> TextPage {
    let mut page = TextPage::new();
    if is_empty {
        page.line(format_args!("nothing to undo: ksmith setup has changed nothing {place}"));
        return page;
    }
    page.line(format_args!("ksmith setup --undo does this {place}:"));
    page.lines(would.done.iter().map(|what| format!("  {what}")));
    page
}
