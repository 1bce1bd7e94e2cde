//! The pace of khugepaged during a run, which is put back when it ends.

use std::fs;
use std::io;
use std::path::PathBuf;

use ksmith_core::sim::KhugepagedPace;
use ksmith_host::root::Root;

/// The directory of its settings.
const DIRECTORY: &str = "sys/kernel/mm/transparent_hugepage/khugepaged";

/// khugepaged as a run has it. The settings from before are written back on drop.
#[derive(Debug)]
pub(super) struct KhugepagedKnobs {
    directory: PathBuf,
    before: Vec<(PathBuf, String)>,
}

impl KhugepagedKnobs {
    pub(super) fn new(root: &Root) -> Self {
        Self { directory: root.path(DIRECTORY), before: Vec::new() }
    }

    /// Writes the settings, and notes what was there before the first writing. `scan_sleep_millisecs` comes last: writing it
    /// wakes khugepaged.
    ///
    /// # Errors
    /// A setting can't be read or written. Those that were written are put back with the others.
    pub(super) fn write(&mut self, pace: KhugepagedPace) -> io::Result<()> {
        let KhugepagedPace { pages_to_scan, scan_sleep_millisecs } = pace;
        let values = [("pages_to_scan", pages_to_scan), ("scan_sleep_millisecs", scan_sleep_millisecs)];
        for (name, value) in values {
            let path = self.directory.join(name);
            if !self.before.iter().any(|(noted, _)| *noted == path) {
                self.before.push((path.clone(), fs::read_to_string(&path)?.trim().to_owned()));
            }
            fs::write(&path, value.to_string())?;
        }
        Ok(())
    }
}

impl Drop for KhugepagedKnobs {
    fn drop(&mut self) {
        for (path, value) in &self.before {
            // Nobody is left to hear of a failure, and the other settings are still to be put back.
            let _ = fs::write(path, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_put_back_as_they_were_before_the_first_writing() {
        let host = tempfile::tempdir().unwrap();
        let directory = host.path().join(DIRECTORY);
        fs::create_dir_all(&directory).unwrap();
        let names = ["pages_to_scan", "scan_sleep_millisecs"];
        let values = || names.map(|name| fs::read_to_string(directory.join(name)).unwrap());
        names.iter().for_each(|name| fs::write(directory.join(name), "7\n").unwrap());
        let mut knobs = KhugepagedKnobs::new(&Root::at(host.path()));
        knobs.write(KhugepagedPace::default()).unwrap();
        assert_eq!(values(), ["4096", "10000"]);
        knobs.write(KhugepagedPace { pages_to_scan: 9, ..KhugepagedPace::default() }).unwrap();
        drop(knobs);
        assert_eq!(values(), ["7"; 2]);
    }
}
