//! The command `ksmith lab`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use ksmith_core::kernel::RunState;
use ksmith_core::printable::TextPage;
use ksmith_core::sample::Sample;
use ksmith_core::units::{Bytes, TimeSpan};

use super::{CommandFailure, GlobalArgs, control, print};
use crate::show::TextTable;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_host::signals;
use ksmith_lab::GuestPages;
use ksmith_lab::competitor::{self, Competitor};
use ksmith_lab::live_bench::LiveBench;
use ksmith_lab::play::{LabPlan, LabProgress, play};
use ksmith_lab::report;
use ksmith_lab::results::{CompetitorResults, LabResults, ScenarioResults};
use ksmith_lab::scenario::{self, Scenario, ScenarioForm};

/// Compare policies on this host's kernel: same guests, same events, measured.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    Run(LabRunArgs),
    List(LabListArgs),
}

/// Play scenarios under each policy and compare the results.
///
/// A scenario is a TOML file with guests and a timeline: see `ksmith lab list` and /usr/share/doc/ksmith/docs/internals/lab.md. Each run starts
/// from the same state of the host (nothing merged, the kernel's own settings), and all competitors take turns
/// within each repeat. Each policy runs as a daemon of its own, and ksmtuned as the original script. At the end,
/// and on Ctrl-C, everything is restored. The lab refuses a host where KSM is in use.
#[derive(Debug, Args)]
pub struct LabRunArgs {
    /// Names of shipped scenarios, or TOML files
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Competitors: built-in policies by name, fixed:PRESET, script:ksmtuned, script:ksmtuned-eager, config:FILE,
    /// reference (every page, all the time) and none [default: all that are installed here]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<String>,
    /// Runs of each scenario under each competitor
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Form of the scenarios
    #[arg(long, value_enum, default_value_t)]
    form: ScenarioForm,
    /// Pages of guests with known memory, whatever the scenario says
    #[arg(long, value_enum)]
    pages: Option<GuestPages>,
    /// Write results.json, report.html and the controllers' logs into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// List the scenarios and the competitors of this host.
#[derive(Debug, Args)]
pub struct LabListArgs {}

impl LabCommand {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        match self {
            Self::Run(args) => args.run(global),
            Self::List(_) => list(global),
        }
    }
}

/// Returns the directories of scenarios: `scenarios/` in the working directory, that of this program's own package,
/// then those of other packages.
pub(super) fn places() -> Vec<PathBuf> {
    const SHARED: &str = "share/ksmith/scenarios";
    let own = env::current_exe().ok();
    let prefix = own.as_deref().and_then(Path::parent).and_then(Path::parent);
    let installed = prefix.into_iter().chain(["/usr/local", "/usr"].map(Path::new));
    let mut places = vec![PathBuf::from("scenarios")];
    for place in installed.map(|prefix| prefix.join(SHARED)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

impl LabRunArgs {
    fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = control::require(global)?;
        let plan = self.plan()?;
        check_host(&root, &plan)?;
        if let Some(out) = &self.out {
            fs::create_dir_all(out).with_context(|| format!("can't make {}", out.display()))?;
        }
        let interrupts = signals::catch()?.listen()?;
        let mut bench = LiveBench::new(control::take_control(global, false, false)?)?;
        let runs = plan.competitors.len() as u32 * plan.repeat;
        let total: Duration = plan.scenarios.iter().map(|scenario| scenario.duration * runs).sum();
        let progress = LabProgress::new(total);
        let played = play(&plan, &mut bench, &interrupts, &progress);
        progress.finish();
        // Nothing of the last run stays merged, even if the run failed.
        let is_reset = ksmith_lab::play::LabBench::reset(&mut bench);
        let restored = bench.restore();
        let results = played?;
        // Before errors are returned, so that a setting that can't be restored does not lose hours of
        // measurement.
        if let Some(out) = &self.out {
            report::write(&results, out)?;
        }
        print_results(global, &results)?;
        is_reset.map_err(|why| anyhow::anyhow!("the last run is not undone: {why}"))?;
        restored?;
        let is_sound = |c: &CompetitorResults| c.runs.iter().all(|run| run.measures.wrong_pages == 0);
        if !results.scenarios.iter().flat_map(|s| &s.competitors).all(is_sound) {
            return Err(anyhow::anyhow!("guests' memory did not hold what it should: see wrong_pages"));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self) -> anyhow::Result<LabPlan> {
        let usage = |error: &dyn std::fmt::Display| CommandFailure::usage(error.to_string());
        let places = places();
        let scenarios = self.scenarios.iter().map(|name| {
            let path = scenario::find(name, &places)?;
            Scenario::load(&path, self.form)
        });
        let mut scenarios = scenarios.collect::<Result<Vec<_>, _>>()?;
        if let Some(pages) = self.pages {
            scenarios.iter_mut().for_each(|scenario| scenario.set_pages(pages));
        }
        let named = self.policies.iter().map(|name| Competitor::parse(name));
        let mut competitors = named.collect::<Result<Vec<_>, _>>().map_err(|error| usage(&error))?;
        if competitors.is_empty() {
            competitors = Competitor::defaults();
        }
        Ok(LabPlan {
            program: env::current_exe().context("can't find the ksmith program, which guests are started with")?,
            scenarios,
            form: self.form,
            competitors,
            repeat: self.repeat,
            logs: self.out.as_ref().map(|out| out.join("logs")),
        })
    }
}

/// Bytes of other processes' memory below which they hardly change the figures.
const LITTLE: u64 = 32 << 20;

/// Refuses a host where KSM is in use or that lacks what the scenarios need.
fn check_host(root: &Root, plan: &LabPlan) -> Result<(), CommandFailure> {
    for scenario in &plan.scenarios {
        let missing = scenario.missing_files();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(CommandFailure::impossible(format!(
                "scenario {} needs files that are not here: {missing}",
                scenario.name
            )));
        }
    }
    let lacks_huge_pages = |scenario: &&Scenario| scenario.has_huge_guests() && !GuestPages::Huge.are_given(root);
    if let Some(scenario) = plan.scenarios.iter().find(lacks_huge_pages) {
        return Err(CommandFailure::impossible(format!(
            "the guests of scenario {} are on huge pages, and this host gives none of 2 MiB (enabled and hpage_pmd_size \
             in /sys/kernel/mm/transparent_hugepage): permit `madvise` in enabled, or use --pages small",
            scenario.name
        )));
    }
    let sample = HostObserver::new(root.clone()).sample();
    check_unused(&sample)?;
    let needed = plan.scenarios.iter().map(Scenario::peak_bytes).max().unwrap_or(0);
    check_memory(&sample, needed, "use --form short, or a smaller scenario")
}

/// Most processes that a refusal names.
const NAMED: usize = 3;

/// Refuses a host where KSM is in use.
pub(super) fn check_unused(sample: &Sample) -> Result<(), CommandFailure> {
    let others = sample.processes.iter().filter(|process| process.may_merge());
    let offered: u64 = others.clone().map(|process| process.known_rss_bytes()).sum();
    let counted = sample.ksm.saved_pages();
    // The gauges also count pages that no process has. A few of them are left for good where the kernel loses count: it does not take
    // off a merged empty page that UFFDIO_MOVE moves away (`examples/kernel/moved_zero_pages.c`).
    let merged = sample.merged_by_the_living().unwrap_or(counted).min(counted);
    let is_leftover = (counted - merged).saturating_mul(sample.page_size) <= LITTLE;
    let saved = if is_leftover { merged } else { counted }.saturating_mul(sample.page_size);
    if sample.ksm.run_state() == Some(RunState::Running) || saved > 0 || offered > LITTLE {
        let named: Vec<String> = others
            .clone()
            .take(NAMED)
            .map(|process| format!(" {} (pid {})", process.name, process.id.pid))
            .collect();
        return Err(CommandFailure::impossible(format!(
            "KSM is in use on this host ({} saved, {} processes with {} offer memory:{}; see `ksmith status`): \
            the lab would unmerge and measure that too. End them, or run the lab on another host",
            Bytes::from(saved),
            others.count(),
            Bytes::from(offered),
            named.join(",")
        )));
    }
    Ok(())
}

/// Refuses a host without `needed` bytes of available memory. `remedy` says what to do.
pub(super) fn check_memory(sample: &Sample, needed: u64, remedy: &str) -> Result<(), CommandFailure> {
    let available = sample.host.memory.value().and_then(|memory| memory.available).unwrap_or(u64::MAX);
    // A tenth more, for the kernel and the controllers.
    if needed.saturating_add(needed / 10) > available {
        return Err(CommandFailure::impossible(format!(
            "guests of known memory need {} and {} are available: {remedy}",
            Bytes::from(needed),
            Bytes::from(available)
        )));
    }
    Ok(())
}

pub(super) fn print_results(global: &GlobalArgs, results: &LabResults) -> anyhow::Result<()> {
    if global.json {
        return print::json(results);
    }
    for scenario in &results.scenarios {
        let mut page = TextPage::new();
        page.line("");
        page.line(format_args!("{}: {}", scenario.headline(), scenario.about));
        page.lines(table(scenario).lines(print::width()));
        if scenario.competitors.iter().any(CompetitorResults::is_counted_apart) {
            page.line("");
            page.lines(counted_table(scenario).lines(print::width()));
        }
        if scenario.competitors.iter().any(CompetitorResults::has_balance) {
            page.line("");
            page.lines(balance_table(scenario).lines(print::width()));
        }
        page.line("");
        print::page(&page)?;
    }
    Ok(())
}

fn table(scenario: &ScenarioResults) -> TextTable {
    let mut table = TextTable::new([
        "medians",
        "saved",
        "50 %",
        "90 %",
        "99 %",
        "90 % of ref",
        "GiB-s",
        "of ref",
        "ksmd CPU",
        "own CPU",
        "own RSS",
        "late CPU",
        "breaks",
        "held",
        "work",
    ]);
    for competitor in &scenario.competitors {
        let figure = |key: &str, text: &dyn Fn(f64) -> String| competitor.median(key).map_or("-".to_owned(), text);
        let time = |key: &str| competitor.median(key).map_or("never".to_owned(), |s| format!("{s:.1} s"));
        let percent = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio));
        let bytes = |bytes: f64| Bytes::from(bytes as u64).to_string();
        table.row([
            competitor.name.clone(),
            figure("saved_bytes", &bytes),
            time("seconds_to_50"),
            time("seconds_to_90"),
            time("seconds_to_99"),
            competitor.seconds_to_90_of_reference.map_or("-".to_owned(), |s| format!("{s:.1} s")),
            figure("gib_seconds", &|x| format!("{x:.1}")),
            percent(competitor.share_of_reference),
            figure("ksmd_cpu_seconds", &|s| format!("{s:.2} s")),
            figure("controller_cpu_seconds", &|s| format!("{s:.2} s")),
            figure("controller_rss_bytes", &bytes),
            figure("late_percent", &|x| format!("{x:.2} %")),
            figure("breaks", &|x| format!("{x:.0}")),
            figure("held_bytes", &bytes),
            percent(competitor.work_ratio),
        ]);
    }
    table
}

/// Returns the table of what KSM's counters say, where guests are on huge pages.
fn counted_table(scenario: &ScenarioResults) -> TextTable {
    let mut table =
        TextTable::new(["at the end", "really saved", "counted", "counted GiB-s", "in huge pages", "host free"]);
    for competitor in &scenario.competitors {
        let Some(end) = competitor.middle_run().and_then(|run| run.series.truth.last()) else { continue };
        let bytes = |bytes: u64| Bytes::from(bytes).to_string();
        table.row([
            competitor.name.clone(),
            bytes(end.truly_saved_bytes),
            bytes(end.counted_bytes),
            competitor.median("counted_gib_seconds").map_or("-".to_owned(), |x| format!("{x:.1}")),
            bytes(end.huge_bytes),
            bytes(end.free_bytes),
        ]);
    }
    table
}

/// Returns the table of the host's memory and that of its guests, where these were balanced.
fn balance_table(scenario: &ScenarioResults) -> TextTable {
    let mut table = TextTable::new([
        "balance",
        "overflow",
        "GiB-s",
        "most",
        "taken",
        "guests lacked",
        "read back",
        "guests waited",
        "killed",
    ]);
    for competitor in &scenario.competitors {
        let figure = |key: &str, text: &dyn Fn(f64) -> String| competitor.median(key).map_or("-".to_owned(), text);
        let bytes = |bytes: f64| Bytes::from(bytes as u64).to_string();
        table.row([
            competitor.name.clone(),
            figure("overflow_seconds", &|s| format!("{s:.0} s")),
            figure("overflow_gib_seconds", &|x| format!("{x:.1}")),
            figure("most_overflow_bytes", &bytes),
            figure("taken_bytes", &bytes),
            figure("away_gib_seconds", &|x| format!("{x:.1} GiB-s")),
            figure("refaults", &|x| format!("{x:.0} pages")),
            figure("waited_seconds", &|s| format!("{s:.1} s")),
            figure("guest_kills", &|x| format!("{x:.0}")),
        ]);
    }
    table
}

fn list(global: &GlobalArgs) -> anyhow::Result<ExitCode> {
    let scenarios: Vec<(PathBuf, Scenario, Scenario)> = scenario::list(&places())
        .into_iter()
        .map(|path| {
            let (short, long) =
                (Scenario::load(&path, ScenarioForm::Short)?, Scenario::load(&path, ScenarioForm::Long)?);
            Ok::<_, scenario::ScenarioError>((path, short, long))
        })
        .collect::<Result<_, _>>()
        .map_err(|error| CommandFailure::usage(error.to_string()))?;
    let competitors: Vec<(&str, Result<Competitor, String>)> =
        competitor::names().map(|name| (name, Competitor::parse(name).map_err(|why| why.to_string()))).collect();
    if global.json {
        let scenarios = scenarios.iter().map(|(path, short, long)| scenario_json(path, short, long));
        let here = competitors.iter().filter(|(_, competitor)| competitor.is_ok()).map(|(name, _)| *name);
        let whole = serde_json::json!({
            "scenarios": scenarios.collect::<Vec<_>>(),
            "competitors": here.collect::<Vec<_>>(),
        });
        print::json(&whole)?;
        return Ok(ExitCode::SUCCESS);
    }
    if scenarios.is_empty() {
        print::line(
            "no scenarios here: the package ksmith-lab puts them in /usr/share/ksmith/scenarios; or name a TOML file",
        )?;
    }
    for (_, short, long) in &scenarios {
        let times = format!("{}, long {}", TimeSpan(short.duration), TimeSpan(long.duration));
        print::line(format_args!("{:<10} {} (short {times})", short.name, short.about))?;
    }
    print::line("")?;
    print::line("competitors:")?;
    for (name, competitor) in &competitors {
        match competitor {
            Ok(_) => print::line(format_args!("  {name}"))?,
            Err(why) => print::line(format_args!("  {name}: {why}"))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn scenario_json(path: &Path, short: &Scenario, long: &Scenario) -> serde_json::Value {
    serde_json::json!({
        "name": short.name,
        "about": short.about,
        "path": path,
        "short_seconds": short.duration.as_secs_f64(),
        "long_seconds": long.duration.as_secs_f64(),
        "short_peak_bytes": short.peak_bytes(),
        "long_peak_bytes": long.peak_bytes(),
    })
}
