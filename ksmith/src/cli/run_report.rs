//! The files that a job's report is written to.

use std::env;
use std::fs::{OpenOptions, create_dir_all};
use std::path::{Path, PathBuf};

use super::CommandFailure;
use ksmith_host::job::{JobRank, JobReport, RankPresence, RankReport, RankedReport, parts_directory, prepare_part};
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
    /// Known to the other ranks that write one report, where their file system has locks.
    presence: Option<RankPresence>,
    /// The directory of this run in that of its Slurm job on this node, and the place in it.
    of_node: Option<(PathBuf, JobRank)>,
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
        let presence = file.zip(place.as_ref()).and_then(|(file, place)| {
            let begun = RankPresence::begin(&parts_directory(file), place.rank);
            begun.inspect_err(|why| tracing::debug!("the last rank to end is not known: {why}")).ok()
        });
        let job = env::var("SLURM_JOB_ID").ok().filter(|job| job.parse::<u64>().is_ok());
        let of_node = job.and_then(|job| {
            let directory = Some(slurm_directory(&job)).filter(|directory| directory.is_dir())?;
            // A job has many steps, some at once, and its script may run programs that are no ranks.
            let alone = || JobRank { job: format!("{job}.pid{}", std::process::id()), rank: 0, ranks: 1 };
            let place = place.clone().unwrap_or_else(alone);
            Some((directory.join(directory_of_run(&place.job)), place))
        });
        Ok(Self { file: file.map(Path::to_owned), place, presence, of_node })
    }

    /// Returns this process's place among the ranks of its job, if it has one.
    pub(super) fn place(&self) -> Option<&JobRank> {
        self.place.as_ref()
    }

    /// Returns true if a file was named.
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Writes the report. If this is one of several ranks that write one report, returns it if it is complete or no rank is
    /// left that could add to it; the last writes it. A failure is only logged.
    pub(super) fn write(&mut self, report: &JobReport) -> Option<RankedReport> {
        let host = Root::host().text("proc/sys/kernel/hostname");
        let host = host.value().map(|name| name.trim().to_owned()).unwrap_or_default();
        if let Some((directory, place)) = &self.of_node {
            let part = RankReport::new(place, host.clone(), report);
            if let Err(why) = create_dir_all(directory).and_then(|()| part.write(directory)) {
                tracing::warn!("{}: the batch system gets no report: {why}", directory.display());
            }
        }
        let file = self.file.as_deref()?;
        let written = match &self.place {
            None => report.write(file).map(|()| None),
            Some(place) => write_part(file, &RankReport::new(place, host, report), self.presence.take()),
        };
        written.unwrap_or_else(|why| {
            tracing::error!("can't write the report {}: {why}", file.display());
            None
        })
    }
}

/// Returns a name that any file system takes, for the launcher's name of a run.
fn directory_of_run(name: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_.@".contains(*letter);
    let plain: String = name.chars().map(|letter| if is_plain(&letter) { letter } else { '_' }).take(100).collect();
    format!("run-{plain}")
}

/// Writes the part of a rank, and the report if it is the last. Returns the report of the ranks so far, if no other will report.
fn write_part(
    file: &Path,
    part: &RankReport,
    presence: Option<RankPresence>,
) -> std::io::Result<Option<RankedReport>> {
    let directory = parts_directory(file);
    part.write(&directory)?;
    // After the part is there: whoever finds nobody present finds all parts.
    let is_last = presence.is_some_and(RankPresence::end);
    let so_far = RankedReport::read(&directory)?.filter(|report| report.job == part.job);
    if let Some(of_all) = so_far.as_ref().filter(|report| report.is_complete()) {
        of_all.write(file)?;
    }
    Ok(so_far.filter(|report| is_last || report.is_complete()))
}
