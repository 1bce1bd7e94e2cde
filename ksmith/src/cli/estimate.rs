//! The command `ksmith estimate`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ksmith_core::sketch::MergeRules;

use super::{CommandFailure, GlobalArgs, amounts, heat_map, naming, patience, print, progress};
use crate::exit;
use crate::show;
use ksmith_host::estimate::{
    EstimateError, EstimateMode, EstimateOptions, EstimateReport, GuestGrouping, ImageError, ImageOptions,
    TargetSelection, UnreadableProcess, estimate, estimate_images,
};
use ksmith_host::guests::GuestTracker;
use ksmith_host::ksm_counts::ksm_as_counted;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_service::config::path_of;

/// Estimate what KSM would save here, within seconds and without switching it on.
///
/// Reads the memory of guests and reports how much of it is zero, equal within a guest, equal across guests and
/// changing, what KSM would save and cost, and whether to use it. It disturbs nothing: merged pages stay merged,
/// no page is faulted in, no guest is stopped, and no content is kept.
///
/// Without guests or --all it reads every process with mergeable memory, or every virtual machine if there
/// is none. It needs root or CAP_SYS_PTRACE, but no KSM.
///
/// Files that hold the memory of other hosts' guests are compared with each other: VMware's .vmem, the ELF core of
/// `virsh dump --memory-only`, the state of a Proxmox VE snapshot. That only needs the right to read them.
#[derive(Debug, Args)]
pub struct EstimateArgs {
    /// Guests and processes to read, opted in or not, by name, UUID, PID, kind:name or VMID; or files with memory
    #[arg(value_name = "GUEST|FILE")]
    guests: Vec<String>,
    /// Read every process with mergeable memory, or every virtual machine if there is none
    #[arg(long)]
    all: bool,
    /// Read every page and remember it: exact, for 8 to 24 bytes of memory per page
    #[arg(long, conflicts_with_all = ["sketch", "sample"])]
    exact: bool,
    /// Read every page and remember at most 32 MiB: within 0.4 % of the memory read (this is the default)
    #[arg(long, conflicts_with = "sample")]
    sketch: bool,
    /// Read only this part of the pages (1, 0.1%): gives a lower and an upper bound, sometimes far apart
    #[arg(long, value_name = "PERCENT", value_parser = amounts::per_cent)]
    sample: Option<f64>,
    /// Read again after this time (60, 10min), to find pages that change and so never merge
    #[arg(long, value_name = "TIME", value_parser = amounts::wait)]
    again: Option<Duration>,
    /// Number of reading threads [default: half of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Read at most this many bytes per second, such as 500M or 2G
    #[arg(long, value_name = "B/s", value_parser = amounts::size)]
    max_rate: Option<u64>,
    /// Show what each pair of guests shares; with FILE.svg, also as a heat map
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    matrix: Option<Option<PathBuf>>,
    /// Treat all processes of a program, a user, a control group or a trust domain as one guest
    #[arg(long, value_name = "WHAT")]
    by: Option<EstimateGrouping>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EstimateGrouping {
    Program,
    User,
    Cgroup,
    Domain,
}

impl EstimateArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        if let Some(options) = self.image_options(global)? {
            let report = estimate_images(&options).map_err(|error| image_failure(&error))?;
            return self.print_report(global, &report);
        }
        if !global.root().is_host() {
            return Err(failure(&EstimateError::NotHost).into());
        }
        patience::watch();
        let report = estimate(&self.options(global)?).map_err(|error| failure(&error))?;
        self.print_report(global, &report)
    }

    fn print_report(&self, global: &GlobalArgs, report: &EstimateReport) -> anyhow::Result<ExitCode> {
        if let (Some(Some(path)), Some(matrix)) = (&self.matrix, &report.matrix) {
            heat_map::write(matrix, path)?;
        }
        if global.json {
            print::json(report)?
        } else {
            print::page(&show::estimate::text(report, print::width()))?
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the options for memory images; `None` if no file is named.
    fn image_options(&self, global: &GlobalArgs) -> Result<Option<ImageOptions>, CommandFailure> {
        // A guest's name may have a slash within: kubevirt's namespace, a service's cgroup.
        let is_image = |name: &&String| name.starts_with(['/', '.']) || Path::new(name).is_file();
        let paths: Vec<PathBuf> = self.guests.iter().filter(is_image).map(PathBuf::from).collect();
        if paths.is_empty() {
            return Ok(None);
        }
        if paths.len() < self.guests.len() {
            return Err(CommandFailure::usage(
                "files are compared with each other only: name guests in another estimate",
            ));
        }
        if self.all || self.sketch || self.sample.is_some() || self.again.is_some() || self.by.is_some() {
            return Err(CommandFailure::usage(
                "files are read whole and once: leave out --all, --sketch, --sample, --again and --by",
            ));
        }
        let mut options = ImageOptions::new(paths);
        options.threads = self.threads.map_or(options.threads, usize::from);
        options.max_rate = self.max_rate;
        options.wants_pairs = self.matrix.is_some();
        options.meter = Some(Arc::new(progress::MeterBar::new()));
        options.rules = merge_rules(&global.root());
        Ok(Some(options))
    }

    /// Returns the PIDs of all that is named. A PID that no process has is among them: the report names it.
    fn pids(&self, global: &GlobalArgs) -> anyhow::Result<Vec<u32>> {
        let mut pids = Vec::new();
        let mut config = None;
        for wanted in &self.guests {
            if let Ok(pid) = wanted.parse() {
                pids.push(pid);
                continue;
            }
            let config = match &config {
                Some(config) => config,
                None => config.insert(global.load_config_to_read()?),
            };
            pids.extend(naming::processes(&global.root(), config, wanted)?);
        }
        Ok(pids)
    }

    fn options(&self, global: &GlobalArgs) -> anyhow::Result<EstimateOptions> {
        let by = match self.by {
            None => GuestGrouping::Process,
            Some(EstimateGrouping::Program) => GuestGrouping::Program,
            Some(EstimateGrouping::User) => GuestGrouping::User,
            Some(EstimateGrouping::Cgroup) => GuestGrouping::Cgroup,
            Some(EstimateGrouping::Domain) => GuestGrouping::Domain,
        };
        let domains = if by == GuestGrouping::Domain { domains(global)? } else { BTreeMap::new() };
        let selection = TargetSelection { pids: self.pids(global)?, all: self.all, by, domains };
        let mut options = EstimateOptions::new(selection);
        options.mode = match self.sample {
            Some(per_cent) => EstimateMode::Sample(per_cent / 100.0),
            None if self.exact => EstimateMode::Exact,
            None => EstimateMode::Sketch,
        };
        options.again = self.again;
        options.threads = self.threads.map_or(options.threads, usize::from);
        options.max_rate = self.max_rate;
        options.wants_pairs = self.matrix.is_some();
        options.meter = Some(Arc::new(progress::MeterBar::new()));
        options.rules = merge_rules(&global.root());
        Ok(options)
    }
}

/// Returns the settings of this host's KSM that decide savings; the kernel's defaults without KSM.
fn merge_rules(root: &Root) -> MergeRules {
    let (ksm, usual) = (ksm_as_counted(root), MergeRules::default());
    MergeRules {
        max_page_sharing: ksm.max_page_sharing.get().unwrap_or(usual.max_page_sharing),
        use_zero_pages: ksm.use_zero_pages.get().map_or(usual.use_zero_pages, |on| on != 0),
    }
}

fn image_failure(error: &ImageError) -> CommandFailure {
    let code = match error {
        ImageError::NoImage { .. } | ImageError::Unreadable { .. } | ImageError::NamedTwice { .. } => exit::USAGE,
        ImageError::NoRandomNumbers(_) => exit::FAILED,
    };
    CommandFailure::with_code(code, error.to_string())
}

/// Returns the trust domain of each guest's processes, by the configuration.
fn domains(global: &GlobalArgs) -> anyhow::Result<BTreeMap<u32, String>> {
    let config = global.load_config_to_read()?;
    if config.domains.is_unconfigured() {
        let path = global.config.clone().unwrap_or_else(|| path_of(&global.root()));
        let why = format!("{} assigns guests to no domains: see [domains], or try --by cgroup", path.display());
        return Err(CommandFailure::usage(why).into());
    }
    let sample = HostObserver::new(global.root()).sample();
    let mut guests =
        GuestTracker::new(global.root(), config.guests.libvirt_uri).list_within(&sample, PATIENCE).guests;
    config.domains.assign(&mut guests);
    let domains = guests.into_iter().filter_map(|guest| Some((guest.domain?, guest.processes)));
    Ok(domains.flat_map(|(domain, all)| all.into_iter().map(move |id| (id.pid, domain.clone()))).collect())
}

/// The longest wait for hypervisors to report their UUID, which a rule may name.
const PATIENCE: Duration = Duration::from_secs(1);

fn failure(error: &EstimateError) -> CommandFailure {
    let code = match error {
        EstimateError::Usage(_) | EstimateError::NotHost => exit::USAGE,
        EstimateError::NoPrivilege(_) => exit::NO_PRIVILEGE,
        EstimateError::NothingFound => exit::IMPOSSIBLE,
        EstimateError::NoneLeft(skipped) if skipped.iter().all(|it| it.why == UnreadableProcess::NoSuchProcess) => {
            exit::UNKNOWN_GUEST
        }
        EstimateError::NoneLeft(_) | EstimateError::System { .. } => exit::FAILED,
    };
    CommandFailure::with_code(code, error.to_string())
}
