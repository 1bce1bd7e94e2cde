//! The commands `ksmith job …`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ksmith_host::job::{RankedReport, parts_directory};

use super::run_report::slurm_directory;
use super::{CommandFailure, GlobalArgs, print};

/// Show what KSM did for jobs of batch systems.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    Report(JobReportArgs),
}

/// Sum the reports of a job's ranks.
///
/// Each rank was started by `ksmith run --report FILE`, as in `mpirun -n 8 ksmith run --report FILE -- ./solver`, and
/// the last one to end writes FILE. Before that, or if some ranks were killed, this shows the ranks that have ended so
/// far. For a Slurm job it shows each step, and each `ksmith run` of its script.
#[derive(Debug, Args)]
pub struct JobReportArgs {
    /// The file that --report named, its directory FILE.d, or the ID of a Slurm job on this node
    #[arg(value_name = "FILE|JOBID")]
    job: PathBuf,
    /// Print one line for each run, as for the comment of a job
    #[arg(long)]
    line: bool,
}

impl JobCommand {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let Self::Report(args) = self;
        let runs = args.read()?;
        if global.json {
            print::json(&runs)?;
            return Ok(ExitCode::SUCCESS);
        }
        for run in &runs {
            if args.line { print::line(run.line())? } else { print::page(&run.page())? }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl JobReportArgs {
    fn read(&self) -> Result<Vec<RankedReport>, CommandFailure> {
        let directory = self.directory().ok_or_else(|| self.failure("there is no such report of ranks"))?;
        let runs = RankedReport::read_runs(&directory).map_err(|why| self.failure(&why.to_string()))?;
        if runs.is_empty() { Err(self.failure("no rank has reported yet")) } else { Ok(runs) }
    }

    fn directory(&self) -> Option<PathBuf> {
        let id = self.job.to_str().filter(|job| job.parse::<u64>().is_ok());
        let of_slurm = id.map(slurm_directory);
        [Some(self.job.clone()), Some(parts_directory(&self.job)), of_slurm]
            .into_iter()
            .flatten()
            .find(|path| path.is_dir())
    }

    fn failure(&self, why: &str) -> CommandFailure {
        let job: &Path = &self.job;
        CommandFailure::usage(format!("{}: {why}; ranks are started by `ksmith run --report FILE`", job.display()))
    }
}
