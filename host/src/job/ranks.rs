//! One report of a job with many ranks. Each rank writes its part into a directory; whoever finds all parts sums them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ksmith_core::printable::TextPage;
use ksmith_core::units::{Bytes, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rank::JobRank;
use super::report::JobReport;

/// The most bytes of a part that are read.
const LARGEST: u64 = 64 << 10;

/// The figures of one rank, or of all of a job together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankFigures {
    /// Exit code of the program; of several ranks the largest.
    pub exit_code: u8,
    /// Seconds from start to end; of several ranks those of the one that took longest.
    pub wall_seconds: f64,
    /// Peak of PSS and swap; of several ranks the sum of their peaks.
    pub peak_pss_bytes: u64,
    /// Average of PSS and swap over `wall_seconds`.
    pub mean_pss_bytes: u64,
    /// Peak of the bytes saved by KSM; of several ranks the sum of their peaks.
    pub peak_saved_bytes: u64,
    /// Bytes saved by KSM on the average of `wall_seconds`.
    pub mean_saved_bytes: u64,
    /// Bytes of zero pages that folding freed.
    pub folded_bytes: u64,
    /// CPU time of ksmd meanwhile, for all processes of the hosts; null if ksmd is not visible on any.
    pub ksmd_cpu_seconds: Option<f64>,
    /// Cost of copying merged pages on the hosts.
    pub copy_seconds: f64,
}

/// The report of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankReport {
    /// The launcher's name of the run of the job.
    pub job: String,
    /// The number of the rank, from 0.
    pub rank: u32,
    /// The number of ranks.
    pub ranks: u32,
    /// Name of its host.
    pub host: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: RankFigures,
}

/// The report of a job, with its ranks as rows.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RankedReport {
    /// The launcher's name of the run of the job.
    pub job: String,
    /// The number of ranks that the launcher started.
    pub ranks: u32,
    /// The number of hosts with ranks in the report.
    pub hosts: usize,
    /// The figures of all ranks together.
    #[serde(flatten)]
    pub figures: RankFigures,
    /// The ranks that have reported, in their order.
    pub rows: Vec<RankReport>,
}

/// Returns the directory of the parts of the report `file`.
pub fn parts_directory(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".d");
    PathBuf::from(name)
}

/// Prepares the report `file` of many ranks, of which nothing of an earlier run stays: neither the file nor this rank's part.
///
/// # Errors
/// The file, or the directory of the parts, can't be made or written to.
pub fn prepare_part(file: &Path, place: &JobRank) -> io::Result<()> {
    let directory = parts_directory(file);
    fs::create_dir_all(&directory)?;
    // Fails now rather than after hours.
    for directory in [parent(file), &directory] {
        drop(tempfile::Builder::new().prefix(".part").tempfile_in(directory)?);
    }
    if fs::symlink_metadata(file).is_ok_and(|about| !about.is_file() && !about.is_symlink()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    [file, &part_file(&directory, place.rank)].into_iter().try_for_each(remove_old)
}

fn remove_old(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn part_file(directory: &Path, rank: u32) -> PathBuf {
    directory.join(format!("{rank}.json"))
}

/// Writes a file at once: readers find the whole of it or nothing.
///
/// # Errors
/// The directory can't be written to.
pub fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let mut file = tempfile::Builder::new()
        .prefix(".part")
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(parent(path))?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

impl RankReport {
    /// Creates the part of a rank on this host.
    pub fn new(place: &JobRank, host: String, report: &JobReport) -> Self {
        Self {
            job: place.job.clone(),
            rank: place.rank,
            ranks: place.ranks,
            host,
            figures: RankFigures {
                exit_code: report.exit_code,
                wall_seconds: report.wall_seconds,
                peak_pss_bytes: report.peak_pss_bytes,
                mean_pss_bytes: report.mean_pss_bytes,
                peak_saved_bytes: report.peak_saved_bytes,
                mean_saved_bytes: report.mean_saved_bytes,
                folded_bytes: report.folded_bytes.unwrap_or(0),
                ksmd_cpu_seconds: report.ksmd_cpu_seconds,
                copy_seconds: report.copy_seconds,
            },
        }
    }

    /// Writes the part.
    ///
    /// # Errors
    /// The directory can't be written to.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        replace_file(&part_file(directory, self.rank), &serde_json::to_string(self)?)
    }
}

impl RankedReport {
    /// Reads the parts in a directory: those of the run whose part is the newest. `None` if there are none.
    ///
    /// The directory may belong to another user: links are not followed, and what is no part is left out.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        Ok(read_newest(directory)?.map(|(_, report)| report))
    }

    /// Reads the reports of all runs in a directory, in the order of their ends: that of the parts in it, and those of its
    /// directories.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn read_runs(directory: &Path) -> io::Result<Vec<Self>> {
        let mut runs = Vec::from_iter(read_newest(directory)?);
        for entry in fs::read_dir(directory)?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                runs.extend(read_newest(&entry.path()).ok().flatten());
            }
        }
        runs.sort_by_key(|(ended, _)| *ended);
        Ok(runs.into_iter().map(|(_, report)| report).collect())
    }

    /// Sums the ranks. `None` if there are none.
    pub fn from_rows(mut rows: Vec<RankReport>) -> Option<Self> {
        rows.sort_by_key(|row| row.rank);
        rows.dedup_by_key(|row| row.rank);
        let first = rows.first()?;
        let (job, ranks) = (first.job.clone(), first.ranks);
        let all = || rows.iter().map(|row| &row.figures);
        let wall_seconds = all().map(|rank| rank.wall_seconds).fold(0.0, f64::max);
        let sum = |of: fn(&RankFigures) -> u64| all().map(of).fold(0, u64::saturating_add);
        let mean = |of: fn(&RankFigures) -> u64| {
            let byte_seconds: f64 = all().map(|rank| of(rank) as f64 * rank.wall_seconds).sum();
            if wall_seconds > 0.0 { (byte_seconds / wall_seconds).round() as u64 } else { sum(of) }
        };
        // Each rank has the figures of its whole host.
        let mut hosts: BTreeMap<&str, (Option<f64>, f64)> = BTreeMap::new();
        for row in &rows {
            let (ksmd, copies) = hosts.entry(&row.host).or_default();
            *ksmd = [*ksmd, row.figures.ksmd_cpu_seconds].into_iter().flatten().reduce(f64::max);
            *copies = copies.max(row.figures.copy_seconds);
        }
        let figures = RankFigures {
            exit_code: all().map(|rank| rank.exit_code).max().unwrap_or(0),
            wall_seconds,
            peak_pss_bytes: sum(|rank| rank.peak_pss_bytes),
            mean_pss_bytes: mean(|rank| rank.mean_pss_bytes),
            peak_saved_bytes: sum(|rank| rank.peak_saved_bytes),
            mean_saved_bytes: mean(|rank| rank.mean_saved_bytes),
            folded_bytes: sum(|rank| rank.folded_bytes),
            ksmd_cpu_seconds: hosts.values().filter_map(|(ksmd, _)| *ksmd).reduce(|one, other| one + other),
            copy_seconds: hosts.values().map(|(_, copies)| copies).sum(),
        };
        Some(Self { job, ranks, hosts: hosts.len(), figures, rows })
    }

    /// Returns true if all ranks have reported.
    pub fn is_complete(&self) -> bool {
        self.rows.len() == self.ranks as usize
    }

    /// Writes the report as JSON.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        replace_file(path, &format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    /// Returns the report in a line, as for a batch system's comment.
    pub fn line(&self) -> String {
        let bytes = |bytes: u64| Bytes::from(bytes);
        let figures = &self.figures;
        let would_be = figures.mean_pss_bytes.saturating_add(figures.mean_saved_bytes);
        let part = figures.mean_saved_bytes as f64 * 100.0 / would_be.max(1) as f64;
        let folded = match figures.folded_bytes {
            0 => String::new(),
            folded => format!(", folded {}", bytes(folded)),
        };
        let ksmd = figures.ksmd_cpu_seconds.map_or_else(String::new, |cpu| format!(", ksmd {cpu:.2} CPU-s"));
        format!(
            "KSM saved {} of {} on average ({part:.0} %){folded}{ksmd}, {} of {} ranks, {}",
            bytes(figures.mean_saved_bytes),
            bytes(would_be),
            self.rows.len(),
            self.ranks,
            TimeSpan(Duration::try_from_secs_f64(figures.wall_seconds).unwrap_or_default()),
        )
    }

    /// Returns the report as text.
    pub fn page(&self) -> TextPage {
        let mut page = TextPage::new();
        page.line(self.line());
        for row in &self.rows {
            page.line(format_args!(
                "  rank {:>4} {:<16} peak {:>9}, saved {:>9} at peak, {:>9} on average{}",
                row.rank,
                row.host,
                Bytes::from(row.figures.peak_pss_bytes).to_string(),
                Bytes::from(row.figures.peak_saved_bytes).to_string(),
                Bytes::from(row.figures.mean_saved_bytes).to_string(),
                if row.figures.exit_code == 0 {
                    String::new()
                } else {
                    format!("; exit code {}", row.figures.exit_code)
                },
            ));
        }
        page
    }
}

/// Reads the parts of the newest run in a directory. Returns the time of its last part, and its report.
fn read_newest(directory: &Path) -> io::Result<Option<(SystemTime, RankedReport)>> {
    let mut parts: Vec<(SystemTime, RankReport)> = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_part = path.extension().is_some_and(|extension| extension == "json");
        parts.extend(is_part.then(|| read_part(&path)).flatten());
    }
    let Some((ended, newest)) = parts.iter().max_by_key(|(written, _)| *written) else { return Ok(None) };
    let (ended, job, ranks) = (*ended, newest.job.clone(), newest.ranks);
    let is_of_newest = |part: &RankReport| part.job == job && part.ranks == ranks && part.rank < ranks;
    let rows = parts.into_iter().map(|(_, part)| part).filter(is_of_newest);
    Ok(RankedReport::from_rows(rows.collect()).map(|report| (ended, report)))
}

/// Reads a part and the time of its writing. `None` if it is none.
fn read_part(path: &Path) -> Option<(SystemTime, RankReport)> {
    let file: File =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let about = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).ok()?;
    let part: RankReport = serde_json::from_str(&text).ok()?;
    Some((about.modified().ok()?, part))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn row(job: &str, rank: u32, host: &str) -> RankReport {
        RankReport {
            job: job.to_owned(),
            rank,
            ranks: 3,
            host: host.to_owned(),
            figures: RankFigures {
                exit_code: 0,
                wall_seconds: 10.0,
                peak_pss_bytes: 300 * MIB,
                mean_pss_bytes: 200 * MIB,
                peak_saved_bytes: 120 * MIB,
                mean_saved_bytes: 100 * MIB,
                folded_bytes: 0,
                ksmd_cpu_seconds: Some(0.5),
                copy_seconds: 0.25,
            },
        }
    }

    #[test]
    fn ranks_add_up_and_figures_of_a_host_count_once() {
        let mut short = row("a", 0, "two");
        (short.figures.wall_seconds, short.figures.exit_code) = (5.0, 9);
        let report = RankedReport::from_rows(vec![row("a", 2, "one"), row("a", 1, "one"), short]).unwrap();
        assert!(report.is_complete());
        let figures = &report.figures;
        assert_eq!((report.hosts, figures.exit_code), (2, 9));
        assert_eq!((figures.mean_pss_bytes, figures.mean_saved_bytes), (500 * MIB, 250 * MIB));
        assert_eq!((figures.ksmd_cpu_seconds, figures.copy_seconds), (Some(1.0), 0.5));
        assert_eq!(report.rows.iter().map(|row| row.rank).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(
            report.line(),
            "KSM saved 250 MiB of 750 MiB on average (33 %), ksmd 1.00 CPU-s, 3 of 3 ranks, 10 s"
        );
        assert!(report.page().text().contains("exit code 9"));
    }

    #[test]
    fn the_last_rank_finds_all_parts() {
        let tree = tempfile::tempdir().unwrap();
        let file = tree.path().join("job.json");
        let directory = parts_directory(&file);
        for rank in 0..3 {
            let part = row("a", rank, "one");
            let place = JobRank { job: part.job.clone(), rank, ranks: 3 };
            prepare_part(&file, &place).unwrap();
            part.write(&directory).unwrap();
            let report = RankedReport::read(&directory).unwrap().unwrap();
            assert_eq!((report.rows.len(), report.is_complete()), (rank as usize + 1, rank == 2));
        }
    }

    #[test]
    fn parts_of_an_earlier_run_and_what_is_no_part_are_left_out() {
        let tree = tempfile::tempdir().unwrap();
        assert_eq!(RankedReport::read(tree.path()).unwrap(), None);
        for (job, rank) in [("old", 0), ("old", 1), ("new", 2)] {
            row(job, rank, "one").write(tree.path()).unwrap();
        }
        let set_age = |rank: u32, seconds| {
            let file = File::options().write(true).open(part_file(tree.path(), rank)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        (0..3).for_each(|rank| set_age(rank, 100 + u64::from(rank)));
        fs::write(tree.path().join("7.json"), "{}").unwrap();
        symlink(part_file(tree.path(), 0), tree.path().join("8.json")).unwrap();
        let report = RankedReport::read(tree.path()).unwrap().unwrap();
        assert_eq!((report.job.as_str(), report.rows.len(), report.is_complete()), ("new", 1, false));
    }

    #[test]
    fn each_run_of_a_job_has_its_report() {
        let tree = tempfile::tempdir().unwrap();
        assert_eq!(RankedReport::read_runs(tree.path()).unwrap(), []);
        for (directory, job, seconds) in [("second", "12.1", 20), ("first", "12.0", 10), ("empty", "", 0)] {
            let directory = tree.path().join(directory);
            fs::create_dir(&directory).unwrap();
            for rank in 0..u32::from(seconds > 0) * 3 {
                row(job, rank, "one").write(&directory).unwrap();
                let file = File::options().write(true).open(part_file(&directory, rank)).unwrap();
                file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
            }
        }
        symlink(tree.path().join("first"), tree.path().join("link")).unwrap();
        let runs = RankedReport::read_runs(tree.path()).unwrap();
        let runs: Vec<_> = runs.iter().map(|run| (run.job.as_str(), run.rows.len())).collect();
        assert_eq!(runs, [("12.0", 3), ("12.1", 3)]);
    }

    #[test]
    fn nothing_of_an_earlier_run_stays_once_a_rank_starts() {
        let tree = tempfile::tempdir().unwrap();
        let file = tree.path().join("job.json");
        let directory = parts_directory(&file);
        let place = JobRank { job: String::new(), rank: 1, ranks: 3 };
        prepare_part(&file, &place).unwrap();
        (0..3).for_each(|rank| row("", rank, "one").write(&directory).unwrap());
        fs::write(&file, "{}").unwrap();
        prepare_part(&file, &place).unwrap();
        assert!(!file.exists() && !part_file(&directory, 1).exists());
        let taken = tree.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(prepare_part(&taken, &place).is_err(), "it fails now");
    }

    #[test]
    fn a_run_with_fewer_ranks_is_told_from_the_one_before_although_its_launcher_names_neither() {
        let tree = tempfile::tempdir().unwrap();
        for rank in 0..8 {
            RankReport { ranks: 8, ..row("", rank, "one") }.write(tree.path()).unwrap();
            let file = File::options().write(true).open(part_file(tree.path(), rank)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        for rank in 0..3 {
            row("", rank, "one").write(tree.path()).unwrap();
            let report = RankedReport::read(tree.path()).unwrap().unwrap();
            assert_eq!((report.rows.len(), report.is_complete()), (rank as usize + 1, rank == 2));
        }
        row("", 3, "one").write(tree.path()).unwrap();
        assert_eq!(
            RankedReport::read(tree.path()).unwrap().unwrap().rows.len(),
            3,
            "there is no fourth rank of three"
        );
    }
}
