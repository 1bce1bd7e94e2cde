//! Reading and writing the file of one knob.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ksmith_core::kernel::number;
use ksmith_core::knobs::Knob;
use ksmith_core::reading::{Malformed, Reading};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::root::Root;
use crate::undo::disk::{self, DiskOperation};

/// Returns true if no setting of KSM can be written, since `/sys` is mounted read-only here. Costs a microsecond.
pub fn are_settings_read_only(root: &Root) -> bool {
    access(path(root, Knob::Run), Access::WRITE_OK) == Err(Errno::ROFS)
}

/// Returns the path of a knob's file.
pub(super) fn path(root: &Root, knob: Knob) -> PathBuf {
    root.path(relative(knob))
}

fn relative(knob: Knob) -> &'static str {
    knob.path().trim_start_matches('/')
}

/// Returns the path of a counter or gauge in KSM's directory.
pub(super) fn gauge_path(root: &Root, name: &str) -> PathBuf {
    root.path("sys/kernel/mm/ksm").join(name)
}

/// Reads the knob's value.
pub(super) fn read(root: &Root, knob: Knob) -> Reading<u64> {
    root.text(relative(knob)).and_then(|text| parse(knob, &text))
}

/// Cached descriptors of the knobs' files. In a captured tree, where a file may be replaced, each file is opened for
/// each reading.
#[derive(Debug, Default)]
pub(super) struct KeptKnobs(BTreeMap<Knob, OnceLock<File>>);

/// Bytes that hold the longest text of a knob's file, that of the advisor's modes.
const LONGEST_TEXT: usize = 256;

impl KeptKnobs {
    pub(super) fn new(root: &Root) -> Self {
        let knobs = if root.is_host() { &Knob::ALL[..] } else { &[] };
        Self(knobs.iter().map(|knob| (*knob, OnceLock::new())).collect())
    }

    /// Reads the knob's value by the open descriptor, and otherwise as [`read`] does.
    pub(super) fn read(&self, root: &Root, knob: Knob) -> Reading<u64> {
        let mut text = [0; LONGEST_TEXT];
        let value = self.text(root, knob, &mut text).and_then(|text| parse(knob, text).ok());
        value.map_or_else(|| read(root, knob), Reading::Value)
    }

    fn text<'a>(&self, root: &Root, knob: Knob, buffer: &'a mut [u8]) -> Option<&'a str> {
        let kept = self.0.get(&knob)?;
        if kept.get().is_none() {
            let _ = kept.set(File::open(path(root, knob)).ok()?);
        }
        let length = kept.get()?.read_at(buffer, 0).ok()?;
        std::str::from_utf8(buffer.get(..length)?).ok()
    }
}

/// Reads a counter or gauge of KSM; `None` if this kernel does not have it.
pub(super) fn gauge(root: &Root, name: &str) -> Option<u64> {
    root.text(Path::new("sys/kernel/mm/ksm").join(name)).and_then(|text| number(&text)).get()
}

/// Writes the knob with one system call, as the kernel wants it.
pub(super) fn write(root: &Root, knob: Knob, value: u64) -> io::Result<()> {
    disk::run(DiskOperation::Knob, || write_text(root, knob, &format!("{}\n", knob.text(value))))
}

fn write_text(root: &Root, knob: Knob, text: &str) -> io::Result<()> {
    // Truncating matters on a tree of plain files only, where the old text may be longer than the new one.
    let mut file = OpenOptions::new().write(true).truncate(true).open(path(root, knob))?;
    match file.write(text.as_bytes())? {
        written if written == text.len() => Ok(()),
        written => Err(io::Error::other(format!("the kernel took {written} of {} bytes", text.len()))),
    }
}

/// Parses the file's text. The advisor's mode is `[none] scan-time` in the kernel's files, and the bare word where
/// ksmith has written to a tree of plain files.
fn parse(knob: Knob, text: &str) -> Result<u64, Malformed> {
    if knob != Knob::AdvisorMode {
        return number(text);
    }
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(word, _)| word);
    knob.parse_value(chosen.trim()).map_err(|_| Malformed::new(1, "[none] or [scan-time]", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advisor_is_read_as_the_kernel_and_as_we_write_it() {
        for (text, value) in [("[none] scan-time\n", 0), ("none [scan-time]\n", 1), ("scan-time\n", 1)] {
            assert_eq!(parse(Knob::AdvisorMode, text), Ok(value));
        }
        assert!(parse(Knob::AdvisorMode, "none scan-time\n").is_err());
        assert!(parse(Knob::AdvisorMode, "][").is_err());
    }

    #[test]
    fn a_kept_file_is_read_anew_and_of_a_tree_none_is_kept() {
        let tree = super::super::writer::tests::tree(&[("pages_to_scan", "100\n")]);
        let root = Root::at(tree.path());
        assert!(KeptKnobs::new(&root).0.is_empty());
        let kept = KeptKnobs([(Knob::PagesToScan, OnceLock::new())].into());
        assert_eq!(kept.read(&root, Knob::PagesToScan), Reading::Value(100));
        write(&root, Knob::PagesToScan, 7).unwrap();
        assert_eq!(kept.read(&root, Knob::PagesToScan), Reading::Value(7));
        assert!(kept.0[&Knob::PagesToScan].get().is_some());
        assert_eq!(kept.read(&root, Knob::Run), Reading::Absent);
    }

    #[test]
    fn a_shorter_value_replaces_a_longer_one_in_a_tree() {
        let tree = super::super::writer::tests::tree(&[("pages_to_scan", "100000\n")]);
        let root = Root::at(tree.path());
        write(&root, Knob::PagesToScan, 7).unwrap();
        assert_eq!(read(&root, Knob::PagesToScan), Reading::Value(7));
        assert_eq!(read(&root, Knob::Run), Reading::Absent);
    }
}
