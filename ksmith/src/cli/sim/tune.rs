//! The command `ksmith sim tune`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ksmith_core::decide::PolicyKind;
use ksmith_core::field::KernelVersion;
use ksmith_core::printable::TextPage;
use ksmith_core::units::Bytes;
use ksmith_host::signals;
use ksmith_lab::scenario::{self, ScenarioForm};
use ksmith_lab::simulate::{self, SimulatedHost, SimulationStory, StoryError, StoryOverrides};
use ksmith_lab::tune::{TuneKey, TunePoint, TuneResult, TuneSearch};

use super::super::{CommandFailure, GlobalArgs, amounts, lab, print};
use crate::manual::settings::PackagedSettings;
use crate::show::{ALWAYS, TableColumn, TextTable};

/// Search a policy's settings for those that save most memory for least CPU of ksmd, on simulated hosts.
///
/// Each point of the search is played in all stories. The result is the Pareto front: what saves more than all that costs no more. The
/// last lines say where the defaults lie. The search is CMA-ES in five directions, from much CPU to little, and begins at the defaults.
/// Ctrl-C ends it with what was found so far.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// Names of shipped scenarios or fleets, or TOML files [default: all shipped scenarios of known guests, and the fleet hour]
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// The policy to tune
    #[arg(long, value_name = "NAME", default_value = "profit")]
    policy: String,
    /// A key of the policy's table or a constant of its code to search, alone or with bounds, as in growth_mib=1..32; repeat it for
    /// more [default: all numbers of the table, from an eighth to eight times their defaults]
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Search the constants of the policy's code, and no keys of its table
    #[arg(long, conflicts_with = "keys")]
    constants: bool,
    /// Memory of the simulated hosts that a fleet is played on, such as 16G,256G
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "16G,64G", value_parser = amounts::size)]
    host: Vec<u64>,
    /// Simulated hours of a fleet [default: the fleet's]
    #[arg(long, value_name = "HOURS", value_parser = super::hours)]
    hours: Option<Duration>,
    /// Kernel version, which decides how ksmd works
    #[arg(long, value_name = "VERSION", default_value = "6.18", value_parser = super::kernel)]
    kernel: KernelVersion,
    /// Form of the scenarios
    #[arg(long, value_enum, default_value_t)]
    form: ScenarioForm,
    /// Pages of a fleet that the simulator keeps as one [default: by the size of the host]
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(1..=512))]
    run_pages: Option<u32>,
    /// Costs of ksmd's work: a TOML file with nanoseconds by kind of work, as `ksmith sim calibrate` writes it
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Points to try, rounded up to whole generations of about ten
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    points: u32,
    /// Seed of the search: the same seed tries the same points
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs at once, at most [default: as many as there are CPUs and memory for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Write results.json and report.html into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The fleet that is played where no story is named.
const USUAL_FLEET: &str = "hour";

impl TuneArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let tuning = self.tuning()?;
        if let Some(out) = &self.out {
            fs::create_dir_all(out).with_context(|| format!("can't make {}", out.display()))?;
        }
        let interrupts = signals::catch()?.listen()?;
        let tuned = tuning.search(&|| !interrupts.is_empty())?;
        if let Some(out) = &self.out {
            tuned.write(out)?;
        }
        if global.json {
            print::json(&tuned)?;
        } else {
            show(&tuned)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn tuning(&self) -> anyhow::Result<TuneSearch> {
        let usage = |error: &dyn std::fmt::Display| CommandFailure::usage(error.to_string());
        let kind = PolicyKind::find(&self.policy).ok_or_else(|| {
            let known: Vec<&str> = ksmith_core::decide::POLICIES.iter().map(|entry| entry.name).collect();
            usage(&format!("there is no policy {:?}; there are: {}", self.policy, known.join(", ")))
        })?;
        let constants = TuneKey::constants(&kind);
        let all = if self.constants { constants } else { [numbers_of(kind)?, constants].concat() };
        let wanted: Vec<String> = if self.constants { names(&all) } else { self.keys.clone() };
        let keys = TuneKey::choose(kind.name(), all, &wanted).map_err(|error| usage(&error))?;
        let costs = self.costs.as_deref().map(simulate::load_costs).transpose().map_err(|error| usage(&error))?;
        let usual = SimulatedHost::default();
        let stories = self.stories().map_err(|error| usage(&error))?;
        let largest = stories
            .iter()
            .filter(|story| matches!(story, SimulationStory::Scenario(_)))
            .map(SimulationStory::guest_bytes)
            .max();
        let host = SimulatedHost {
            bytes: largest.unwrap_or(0).max(usual.bytes),
            kernel: self.kernel,
            costs: costs.unwrap_or(usual.costs),
            run_pages: self.run_pages,
            ..usual
        };
        Ok(TuneSearch {
            policy: kind.name().to_owned(),
            keys,
            stories,
            host,
            points: self.points as usize,
            seed: self.seed,
            jobs: self.jobs.map(usize::from),
        })
    }

    /// Loads the stories. A fleet is played on each host; a scenario has guests of fixed size, and is played once.
    fn stories(&self) -> Result<Vec<SimulationStory>, StoryError> {
        let paths = if self.scenarios.is_empty() {
            let mut paths = scenario::list(&lab::places());
            paths.push(scenario::find(USUAL_FLEET, &super::places())?);
            paths
        } else {
            self.scenarios.iter().map(|name| scenario::find(name, &super::places())).collect::<Result<_, _>>()?
        };
        let mut stories = Vec::new();
        for path in paths {
            for bytes in &self.host {
                let wishes =
                    StoryOverrides { host_bytes: Some(*bytes), duration: self.hours, ..StoryOverrides::default() };
                match SimulationStory::load(&path, self.form, wishes) {
                    Ok(mut story) => {
                        let is_fleet = if let SimulationStory::Planned { name, host_bytes, .. } = &mut story {
                            *name = format!("{name}, {}", Bytes::from(*host_bytes));
                            true
                        } else {
                            false
                        };
                        stories.push(story);
                        if !is_fleet {
                            break;
                        }
                    }
                    // Of those that were not asked for, some have guests of unknown contents.
                    Err(StoryError::Unknown { .. }) if self.scenarios.is_empty() => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(stories)
    }
}

fn names(keys: &[TuneKey]) -> Vec<String> {
    keys.iter().map(|key| key.name.clone()).collect()
}

/// Returns the numeric keys of a policy's table, with their defaults from the packaged configuration.
fn numbers_of(kind: PolicyKind) -> anyhow::Result<Vec<TuneKey>> {
    let settings = PackagedSettings::packaged()?;
    let name = format!("policy.{}", kind.name());
    let tables = settings.tables.iter().filter(|table| table.name() == name);
    let keys = tables.flat_map(|table| &table.keys).filter(|key| key.is_default);
    Ok(keys.filter_map(|key| TuneKey::from_default(&key.name, &key.value)).collect())
}

fn show(tuned: &TuneResult) -> anyhow::Result<()> {
    let mut page = TextPage::new();
    let early = if tuned.is_stopped { ", ended early" } else { "" };
    page.line(format_args!(
        "{}: {} points played in {} stories, {} refused as contradictory{early}",
        tuned.policy,
        tuned.points.len(),
        tuned.stories.len(),
        tuned.refused
    ));
    page.lines(table(tuned).lines(print::width()));
    page.line("");
    page.line(tuned.verdict());
    print::page(&page)
}

/// Returns the table of the Pareto front, with the defaults below it.
fn table(tuned: &TuneResult) -> TextTable {
    let keys = tuned.keys.iter().map(|key| key.name.as_str());
    let headings = ["point", "saved", "CPU"].into_iter().chain(keys);
    let columns = headings.zip((1..ALWAYS).rev());
    let mut table = TextTable::of_columns(columns.map(|(name, weight)| TableColumn::new(name, weight)).collect());
    let mut row = |name: String, point: &TunePoint| {
        let values = point.values.iter().map(ToString::to_string);
        let figures = [name, format!("{:.2} %", 100.0 * point.share), format!("{:.3}", point.cpu)];
        table.cells(figures.into_iter().chain(values).collect());
    };
    for (number, point) in tuned.front.iter().enumerate() {
        row((number + 1).to_string(), point);
    }
    row("defaults".to_owned(), &tuned.defaults);
    table
}

#[cfg(test)]
mod tests {
    use ksmith_core::decide::POLICIES;

    use super::*;

    #[test]
    fn the_numbers_of_each_policy_are_those_of_the_packaged_configuration() {
        let found = |policy: &str| names(&numbers_of(PolicyKind::find(policy).unwrap()).unwrap());
        assert_eq!(found("profit").len(), 10, "{:?}", found("profit"));
        assert!(found("profit").contains(&"growth_mib".to_owned()));
        assert!(found("score").contains(&"idle_passes".to_owned()));
        assert!(!found("score").contains(&"smart_scan".to_owned()));
        // A key that is behind a comment has no default to begin at.
        assert_eq!(found("advisor"), Vec::<String>::new());
        for entry in POLICIES {
            for key in numbers_of(PolicyKind::find(entry.name).unwrap()).unwrap() {
                assert!(key.low < key.high && (key.low..=key.high).contains(&key.default), "{key:?}");
            }
        }
    }
}
