//! What the doctor says of a process, for people and for programs.

use std::fmt;

use ksmith_core::diagnose::process::{Cause, Diagnosis, Examination, MappingDiagnosis};
use ksmith_core::units::Bytes;
use serde::Serialize;

use super::patient::Patient;

/// One process's diagnosis, and how it was made.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The process's PID.
    pub pid: u32,
    /// Its guest's name, or its program's.
    pub name: String,
    /// What was found.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
    /// Seconds between the first and the last look at its pages; 0 if they were not looked at.
    pub watched_seconds: f64,
    /// Memory of all mergeable processes that was looked through for equals.
    pub searched_bytes: u64,
    /// Memory there was to look through.
    pub searchable_bytes: u64,
    /// What could not be seen.
    pub unseen: Vec<String>,
}

impl Report {
    pub(super) fn new(patient: &Patient, seen: &Examination, diagnosis: Diagnosis, unseen: Vec<String>) -> Self {
        Self {
            pid: patient.pid,
            name: patient.name.clone(),
            diagnosis,
            watched_seconds: seen.watch.seconds,
            searched_bytes: seen.searched_pages * seen.page_size,
            searchable_bytes: seen.searchable_pages * seen.page_size,
            unseen,
        }
    }
}

/// Mappings shown to a person; JSON has all.
const SHOWN: usize = 12;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let diagnosis = &self.diagnosis;
        write!(f, "{} (pid {}): ", self.name, self.pid)?;
        match diagnosis.main {
            None => writeln!(f, "it has no memory of its own")?,
            Some(main) => writeln!(f, "{} {}", Bytes::from(diagnosis.bytes(main)), main.words())?,
        }
        for total in &diagnosis.causes {
            writeln!(f, "\n{:>9}  {}", Bytes::from(total.bytes).to_string(), total.what)?;
            if let Some(evidence) = &total.evidence {
                writeln!(f, "           seen: {evidence}")?;
            }
            if let Some(remedy) = total.remedy {
                writeln!(f, "           do: {remedy}")?;
            }
        }
        if diagnosis.huge_bytes > 0 {
            let huge = Bytes::from(diagnosis.huge_bytes);
            writeln!(
                f,
                "\n{huge} of its mergeable memory is in huge pages: ksmd splits one when a page in it merges."
            )?;
        }
        self.fmt_mappings(f)?;
        for what in &self.unseen {
            writeln!(f, "not seen: {what}")?;
        }
        Ok(())
    }
}

impl Report {
    fn fmt_mappings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |mapping: &MappingDiagnosis| mapping.parts.iter().map(|part| part.bytes).sum::<u64>();
        let is_file = |mapping: &MappingDiagnosis| mapping.parts.iter().all(|part| part.cause == Cause::File);
        let all: u64 = self.diagnosis.mappings.iter().map(bytes).sum();
        let is_shown = |mapping: &&MappingDiagnosis| !is_file(mapping) && bytes(mapping) >= all / 100;
        let mut mappings: Vec<_> = self.diagnosis.mappings.iter().filter(is_shown).collect();
        mappings.sort_by_key(|mapping| std::cmp::Reverse(bytes(mapping)));
        if !mappings.is_empty() {
            writeln!(f, "\nmappings with 1 % or more of it, largest first:")?;
        }
        for mapping in mappings.iter().take(SHOWN) {
            let name = if mapping.path.is_empty() { "anonymous" } else { &mapping.path };
            let mark = if mapping.is_marked { "mergeable" } else { "-" };
            writeln!(f, "  {}-{}  {mark:<9}  {}", mapping.start, mapping.end, printable(name))?;
            for part in &mapping.parts {
                writeln!(f, "  {:>12}  {}", Bytes::from(part.bytes).to_string(), part.cause.words())?;
            }
        }
        if mappings.len() > SHOWN {
            writeln!(f, "  … and {} more; --json shows all", mappings.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// A path without control characters: a file may have any name.
fn printable(path: &str) -> String {
    path.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect()
}
