//! The command `ksmith sim`.

mod calibrate;
mod replay;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use ksmith_core::amount;
use ksmith_core::field::KernelVersion;
use ksmith_core::printable::TextPage;
use ksmith_core::units::Bytes;
use ksmith_lab::GuestPages;
use ksmith_lab::competitor::Competitor;
use ksmith_lab::report;
use ksmith_lab::scenario::{self, ScenarioForm};
use ksmith_lab::simulate::{self, SimulatedBalance, SimulatedHost, Simulation, SimulationStory, StoryOverrides};

use super::{CommandFailure, GlobalArgs, amounts, lab, print};

/// Compare policies on a simulated host of any size: same guests, same events, in a fraction of the time.
///
/// The scenarios are those of `ksmith lab`, and made-up fleets (/usr/share/ksmith/scenarios/fleet/), which fill hosts up to
/// terabytes. Nothing of this host is touched, and no root is needed. The simulated ksmd does what the kernel's does, page by page,
/// at the costs of one core of a server; `ksmith sim calibrate` measures those of this host. What it leaves out is in
/// /usr/share/doc/ksmith/docs/internals/sim.md.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SimArgs {
    #[command(subcommand)]
    command: Option<SimCommand>,
    /// Names of shipped scenarios or fleets, or TOML files
    #[arg(required_unless_present = "replay", value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Competitors: built-in policies by name, fixed:PRESET, config:FILE, reference (every page, all the time) and none
    /// [default: all of these]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<String>,
    /// Balance policies of a fleet's guests, each with each of the policies: no-swap, squeeze, config:FILE and none
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    balance: Vec<String>,
    /// Memory of the simulated host, such as 256G or 1T [default: the fleet's; 16G for a scenario]
    #[arg(long, value_name = "SIZE", value_parser = amounts::size)]
    host: Option<u64>,
    /// Simulated hours of a fleet [default: the fleet's]
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    hours: Option<Duration>,
    /// Kernel version, which decides how ksmd works
    #[arg(long, value_name = "VERSION", default_value = "6.18", value_parser = kernel)]
    kernel: KernelVersion,
    /// Seed of a fleet: which guests come, and when which one leaves
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Form of the scenarios
    #[arg(long, value_enum, default_value_t)]
    form: ScenarioForm,
    /// Pages of guests of scenarios, whatever the scenario says; those of fleets and replays are on small ones
    #[arg(long, value_enum)]
    pages: Option<GuestPages>,
    /// Pages that the simulator keeps as one; 1 is page-exact [default: by the size of the host]
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(1..=512))]
    run_pages: Option<u32>,
    /// Costs of ksmd's work: a TOML file with nanoseconds by kind of work, as `ksmith sim calibrate` writes it
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// CPU time that ksmd has used before, such as 10min: the kernel's advisor counts it in its first correction
    #[arg(long, value_name = "TIME", value_parser = amounts::wait)]
    ksmd_cpu: Option<Duration>,
    /// Play what ksmith's daemon recorded in this history, under other policies
    #[arg(long, value_name = "FILE", conflicts_with = "scenarios")]
    replay: Option<PathBuf>,
    /// Write results.json and report.html into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What else the simulator is for.
#[derive(Debug, Subcommand)]
enum SimCommand {
    Calibrate(calibrate::CalibrateArgs),
}

impl SimArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        match &self.command {
            Some(SimCommand::Calibrate(args)) => args.run(global),
            None => self.simulate(global),
        }
    }

    fn simulate(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let simulation = self.simulation(global)?;
        if let Some(out) = &self.out {
            fs::create_dir_all(out).with_context(|| format!("can't make {}", out.display()))?;
        }
        let results = simulation.play()?;
        if let Some(out) = &self.out {
            report::write(&results, out)?;
        }
        lab::print_results(global, &results)?;
        Ok(ExitCode::SUCCESS)
    }

    fn simulation(&self, global: &GlobalArgs) -> anyhow::Result<Simulation> {
        let usage = |error: &dyn std::fmt::Display| CommandFailure::usage(error.to_string());
        let named = self.policies.iter().map(|name| Competitor::parse(name));
        let mut competitors = named.collect::<Result<Vec<_>, _>>().map_err(|error| usage(&error))?;
        if competitors.is_empty() {
            competitors = Simulation::competitors();
        }
        let usual = SimulatedHost::default();
        let costs = self.costs.as_deref().map(simulate::load_costs).transpose().map_err(|error| usage(&error))?;
        let host = SimulatedHost {
            bytes: self.host.unwrap_or(usual.bytes),
            kernel: self.kernel,
            costs: costs.unwrap_or(usual.costs),
            ksmd_before_ns: self.ksmd_cpu.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            run_pages: self.run_pages,
            ..usual
        };
        let stories = match &self.replay {
            Some(file) => {
                let (story, assumptions) = replay::story(file, self.host)?;
                if !global.json {
                    let mut page = TextPage::new();
                    page.line("assumptions of the replay:");
                    assumptions.iter().for_each(|text| page.line(format_args!("  {text}")));
                    print::aside(&page);
                }
                vec![story]
            }
            None => self.stories().map_err(|error| usage(&error))?,
        };
        let balances = self.balance.iter().map(|name| SimulatedBalance::parse(name)).collect::<Result<Vec<_>, _>>();
        let balances = balances.map_err(|error| usage(&error))?;
        for story in &stories {
            let has_guests = matches!(story, SimulationStory::Planned { guests, .. } if !guests.is_empty());
            if !balances.is_empty() && !has_guests {
                let why = format!(
                    "{} is not a fleet, and what its guests could do without is not known: leave --balance out",
                    story.name()
                );
                return Err(CommandFailure::usage(why).into());
            }
            let (name, needed, there) = (story.name(), story.guest_bytes(), host.bytes);
            if matches!(story, SimulationStory::Scenario(_)) && needed > there {
                let (needed, there) = (Bytes::from(needed), Bytes::from(there));
                let why = format!(
                    "the guests of {name} need {needed}, and the simulated host has {there}: give a larger --host"
                );
                return Err(CommandFailure::usage(why).into());
            }
        }
        Ok(Simulation { stories, form: self.form, competitors, balances, host })
    }

    fn stories(&self) -> Result<Vec<SimulationStory>, simulate::StoryError> {
        let wishes =
            StoryOverrides { host_bytes: self.host, duration: self.hours, seed: self.seed, pages: self.pages };
        let places = places();
        let story = |name: &String| SimulationStory::load(&scenario::find(name, &places)?, self.form, wishes);
        self.scenarios.iter().map(story).collect()
    }
}

/// Returns the directories of scenarios and of fleets.
fn places() -> Vec<PathBuf> {
    let places = lab::places();
    let fleets: Vec<PathBuf> = places.iter().map(|place| place.join("fleet")).collect();
    [places, fleets].concat()
}

/// Parses a time in hours, or with its unit, of a year at most.
fn hours(text: &str) -> Result<Duration, String> {
    let plain = text.trim().parse::<f64>().ok().filter(|hours| hours.is_finite() && *hours > 0.0 && *hours < 1e5);
    let time = plain.map(|hours| Duration::from_secs_f64(hours * 3600.0)).or_else(|| amount::time(text));
    let is_sound = |time: &Duration| (1..=366 * 86_400).contains(&time.as_secs());
    time.filter(is_sound).ok_or_else(|| format!("{text:?} is not a number of hours up to a year"))
}

/// Parses a kernel version.
fn kernel(text: &str) -> Result<KernelVersion, String> {
    KernelVersion::parse(text).ok_or_else(|| format!("{text:?} is not a kernel version such as 6.1"))
}
