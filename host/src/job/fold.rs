//! Folding of a job's zero pages by libksmith: the order to the processes, and what they tell.
//!
//! Both are files in a directory of the job (`preload/src/fold/auto.rs`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

/// When a job's memory is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldWhen {
    /// When it has stopped growing, and again where it pays.
    EndOfInit,
    /// Each time that so much time has passed.
    Every(Duration),
    /// On an order only.
    OnDemand,
}

impl fmt::Display for FoldWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndOfInit => f.pad("end-of-init"),
            Self::OnDemand => f.pad("on-demand"),
            Self::Every(period) => write!(f, "every={}s", period.as_secs()),
        }
    }
}

impl FromStr for FoldWhen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = |text: &str| {
            let text = text.strip_suffix('s').unwrap_or(text);
            text.parse().ok().filter(|seconds| (1..=1_000_000).contains(seconds))
        };
        match text {
            "end-of-init" => Ok(Self::EndOfInit),
            "on-demand" => Ok(Self::OnDemand),
            _ => {
                let seconds = text.strip_prefix("every=").and_then(seconds);
                let seconds = seconds.ok_or("say end-of-init, every=SECONDS from 1 to 1000000, or on-demand")?;
                Ok(Self::Every(Duration::from_secs(seconds)))
            }
        }
    }
}

/// What libksmith has folded in a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FoldReport {
    /// Programs that have folded.
    pub programs: u64,
    /// Passes over all memory of a program.
    pub passes: u64,
    /// CPU time of all passes.
    pub cpu_seconds: f64,
    /// Bytes that were given back, all passes together. Memory that was written to and folded again counts again.
    pub folded_bytes: u64,
    /// Resident private bytes that were looked at, all passes together.
    pub looked_bytes: u64,
    /// Zero bytes that were left, because KSM had merged them or a child of fork had them too.
    pub shared_bytes: u64,
    /// Zero bytes that were left, because they were pinned for I/O.
    pub pinned_bytes: u64,
    /// Zero bytes that were left, because mlock held them.
    pub locked_bytes: u64,
    /// Zero bytes that were left in huge pages that are in use.
    pub huge_bytes: u64,
    /// Why some program could not fold; null where all could.
    pub refusal: Option<String>,
}

/// The directory in which a job gets orders and tells what it has done. Removed on drop.
#[derive(Debug)]
pub struct FoldPlace {
    directory: tempfile::TempDir,
}

impl FoldPlace {
    /// Makes it, where only this user reaches it.
    ///
    /// # Errors
    /// It can't be made.
    pub fn make() -> io::Result<Self> {
        let below = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|place| place.is_dir());
        let below = below.unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new().prefix("ksmith-fold-").tempdir_in(below)?;
        Ok(Self { directory })
    }

    /// The directory of this job.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The file that is written to (`touch`) to have all programs of the job fold now.
    pub fn order(&self) -> PathBuf {
        self.path().join("fold")
    }

    /// What all programs have told.
    pub fn report(&self) -> FoldReport {
        let mut report = FoldReport::default();
        let order = self.order();
        let files = std::fs::read_dir(self.path()).into_iter().flatten().flatten().map(|entry| entry.path());
        for file in files.filter(|file| *file != order) {
            if let Ok(text) = std::fs::read_to_string(file) {
                report.add(text.lines().next().unwrap_or_default());
            }
        }
        report
    }
}

impl FoldReport {
    /// Adds the line of one program.
    fn add(&mut self, line: &str) {
        let value = |name: &str| {
            let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
            words.find(|(known, _)| *known == name).and_then(|(_, value)| value.parse::<u64>().ok()).unwrap_or(0)
        };
        let passes = value("passes");
        self.programs = self.programs.saturating_add(u64::from(passes > 0));
        self.cpu_seconds += value("cpu_nanoseconds") as f64 / 1e9;
        for (sum, name) in [
            (&mut self.passes, "passes"),
            (&mut self.folded_bytes, "folded_bytes"),
            (&mut self.looked_bytes, "looked_bytes"),
            (&mut self.shared_bytes, "shared_bytes"),
            (&mut self.pinned_bytes, "pinned_bytes"),
            (&mut self.locked_bytes, "locked_bytes"),
            (&mut self.huge_bytes, "huge_bytes"),
        ] {
            *sum = sum.saturating_add(value(name));
        }
        if let Some(errno) = i32::try_from(value("errno")).ok().filter(|errno| *errno != 0) {
            self.refusal = Some(io::Error::from_raw_os_error(errno).to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_fold_is_a_word_or_seconds() {
        for (text, when) in [
            ("end-of-init", FoldWhen::EndOfInit),
            ("on-demand", FoldWhen::OnDemand),
            ("every=30s", FoldWhen::Every(Duration::from_secs(30))),
        ] {
            assert_eq!(text.parse(), Ok(when));
            assert_eq!(when.to_string(), text, "the library reads it too");
        }
        assert_eq!("every=5".parse(), Ok(FoldWhen::Every(Duration::from_secs(5))));
        for bad in ["", "every=0", "every=-1", "every=", "30", "often"] {
            assert!(bad.parse::<FoldWhen>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_programs_of_a_job_are_added_up() {
        let place = FoldPlace::make().unwrap();
        assert_eq!(place.report(), FoldReport::default());
        let line = |bytes: u64, errno: u32| {
            format!(
                "folded_bytes={bytes} looked_bytes=900 pinned_bytes=1 cpu_nanoseconds=500000000 passes=2 errno={errno}\n"
            )
        };
        std::fs::write(place.order(), "").unwrap();
        std::fs::write(place.path().join("7.1"), line(100, 0)).unwrap();
        std::fs::write(place.path().join("7.2"), line(20, 0)).unwrap();
        let report = place.report();
        assert_eq!((report.folded_bytes, report.looked_bytes, report.pinned_bytes), (120, 1800, 2));
        assert_eq!((report.programs, report.passes, report.refusal.clone()), (2, 4, None));
        assert!((report.cpu_seconds - 1.0).abs() < 1e-9);
        std::fs::write(place.path().join("8.3"), "passes=0 errno=1").unwrap();
        assert!(place.report().refusal.is_some_and(|why| why.contains("not permitted")));
    }
}
