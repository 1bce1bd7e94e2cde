//! What the doctor says of a process, for people and for programs.

use ksmith_core::diagnose::process::{Cause, Diagnosis, Examination, MappingDiagnosis};
use ksmith_core::printable::Page;
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

impl Report {
    /// The text for people.
    pub fn page(&self) -> Page {
        let mut page = Page::new();
        let diagnosis = &self.diagnosis;
        let subject = format!("{} (pid {})", self.name, self.pid);
        match diagnosis.main {
            None => page.line(format_args!("{subject}: it has no memory of its own")),
            Some(main) => {
                page.line(format_args!("{subject}: {} {}", Bytes::from(diagnosis.bytes(main)), main.words()));
            }
        }
        for total in &diagnosis.causes {
            page.line("");
            page.line(format_args!("{:>9}  {}", Bytes::from(total.bytes).to_string(), total.what));
            if let Some(evidence) = &total.evidence {
                page.line(format_args!("           seen: {evidence}"));
            }
            if let Some(remedy) = total.remedy {
                page.line(format_args!("           do: {remedy}"));
            }
        }
        if diagnosis.huge_bytes > 0 {
            let huge = Bytes::from(diagnosis.huge_bytes);
            page.line("");
            page.line(format_args!(
                "{huge} of its mergeable memory is in huge pages: ksmd splits one when a page in it merges."
            ));
        }
        self.add_mappings(&mut page);
        page.lines(self.unseen.iter().map(|what| format!("not seen: {what}")));
        page
    }

    fn add_mappings(&self, page: &mut Page) {
        let bytes = |mapping: &MappingDiagnosis| mapping.parts.iter().map(|part| part.bytes).sum::<u64>();
        let is_file = |mapping: &MappingDiagnosis| mapping.parts.iter().all(|part| part.cause == Cause::File);
        let all: u64 = self.diagnosis.mappings.iter().map(bytes).sum();
        let is_shown = |mapping: &&MappingDiagnosis| !is_file(mapping) && bytes(mapping) >= all / 100;
        let mut mappings: Vec<_> = self.diagnosis.mappings.iter().filter(is_shown).collect();
        mappings.sort_by_key(|mapping| std::cmp::Reverse(bytes(mapping)));
        if !mappings.is_empty() {
            page.line("");
            page.line("mappings with 1 % or more of it, largest first:");
        }
        for mapping in mappings.iter().take(SHOWN) {
            let name = if mapping.path.is_empty() { "anonymous" } else { &mapping.path };
            let mark = if mapping.is_marked { "mergeable" } else { "-" };
            page.line(format_args!("  {}-{}  {mark:<9}  {}", mapping.start, mapping.end, beginning(name)));
            for part in &mapping.parts {
                page.line(format_args!("  {:>12}  {}", Bytes::from(part.bytes).to_string(), part.cause.words()));
            }
        }
        if mappings.len() > SHOWN {
            page.line(format_args!("  … and {} more; --json shows all", mappings.len() - SHOWN));
        }
    }
}

/// The beginning of a path: a file may have a name of any length.
fn beginning(path: &str) -> String {
    path.chars().take(80).collect()
}
