//! The files that a job's report is written to.

use std::env;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use super::CommandFailure;
use ksmith_host::job::{JobRank, JobReport, RankReport, RankedReport, parts_directory, prepare_part};
use ksmith_host::root::Root;

/// The directory in which `packaging/slurm/prolog` makes one for the reports of each job on this node, unless `KSMITH_JOBS`
/// is set.
const JOBS: &str = "/run/ksmith-jobs";

/// The files of a report.
#[derive(Debug)]
pub(super) struct ReportFiles {
    file: Option<PathBuf>,
    /// This process's place among the ranks of its job, if it has one.
    place: Option<JobRank>,
    /// The directory of this Slurm job on this node.
    of_node: Option<(PathBuf, String)>,
}

/// Returns the directory of a Slurm job's reports on this node.
pub(super) fn slurm_directory(job: &str) -> PathBuf {
    let jobs = env::var("KSMITH_JOBS").unwrap_or_else(|_| JOBS.to_owned());
    PathBuf::from(format!("{jobs}.reports")).join(job)
}

impl ReportFiles {
    /// Makes sure that the report can be written.
    ///
    /// # Errors
    /// The file or the directory of ranks' parts can't be written to.
    pub(super) fn prepare(file: Option<&Path>) -> Result<Self, CommandFailure> {
        let place = JobRank::from_env();
        if let Some(file) = file {
            let made = match &place {
                Some(place) => prepare_part(file, place),
                None => OpenOptions::new().create(true).append(true).open(file).map(drop),
            };
            made.map_err(|why| CommandFailure::usage(format!("can't write the report {}: {why}", file.display())))?;
        }
        let job = env::var("SLURM_JOB_ID").ok().filter(|job| job.parse::<u64>().is_ok());
        let of_node = job.map(|job| (slurm_directory(&job), job)).filter(|(directory, _)| directory.is_dir());
        Ok(Self { file: file.map(Path::to_owned), place, of_node })
    }

    /// Returns this process's number among the ranks that write one report; `None` if its report is its own.
    pub(super) fn rank(&self) -> Option<u32> {
        self.place.as_ref().filter(|_| self.file.is_some()).map(|place| place.rank)
    }

    /// Writes the report. Returns that of all ranks so far, if this is one of them; the last writes it. A failure is only
    /// logged.
    pub(super) fn write(&self, report: &JobReport) -> Option<RankedReport> {
        let host = Root::host().text("proc/sys/kernel/hostname");
        let host = host.value().map(|name| name.trim().to_owned()).unwrap_or_default();
        if let Some((directory, job)) = &self.of_node {
            let place = self.place.clone().unwrap_or_else(|| JobRank { job: job.clone(), rank: 0, ranks: 1 });
            if let Err(why) = RankReport::new(&place, host.clone(), report).write(directory) {
                tracing::warn!("{}: the batch system gets no report: {why}", directory.display());
            }
        }
        let file = self.file.as_deref()?;
        let written = match &self.place {
            None => report.write(file).map(|()| None),
            Some(place) => write_part(file, &RankReport::new(place, host, report)),
        };
        written.unwrap_or_else(|why| {
            tracing::error!("can't write the report {}: {why}", file.display());
            None
        })
    }
}

/// Writes the part of a rank, and the report if it is the last. Returns the report of the ranks so far.
fn write_part(file: &Path, part: &RankReport) -> std::io::Result<Option<RankedReport>> {
    let directory = parts_directory(file);
    part.write(&directory)?;
    let so_far = RankedReport::read(&directory)?.filter(|report| report.job == part.job);
    if let Some(of_all) = so_far.as_ref().filter(|report| report.is_complete()) {
        of_all.write(file)?;
    }
    Ok(so_far)
}
