//! The diagnosis of a process, as text and as JSON.

use ksmith_core::diagnose::process::{
    Cause, MappingDiagnosis, MappingExamination, ProcessDiagnosis, ProcessExamination,
};
use ksmith_core::printable::TextPage;
use ksmith_core::units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::patient::ExaminedProcess;
use super::splits::SplitForecast;

/// The diagnosis of one process, and the coverage of the examination.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DoctorReport {
    /// The process's PID.
    pub pid: u32,
    /// Its guest's name, or its program's.
    pub name: String,
    /// Causes found, with their shares.
    #[serde(flatten)]
    pub diagnosis: ProcessDiagnosis,
    /// Seconds between the first and the last look at its pages; 0 if none was sampled.
    pub watched_seconds: f64,
    /// Searched memory of all mergeable processes, in bytes.
    pub searched_bytes: u64,
    /// Memory of all mergeable processes, in bytes.
    pub searchable_bytes: u64,
    /// Evidence that could not be had, and the reasons.
    pub unseen: Vec<String>,
    /// The huge pages that merging would split; null where it has none, or they can't be seen.
    pub splits: Option<SplitForecast>,
    /// Memory that folding would free, extrapolated from the sampled pages.
    #[serde(skip)]
    pub foldable_bytes: u64,
}

impl DoctorReport {
    pub(super) fn new(
        patient: &ExaminedProcess,
        seen: &ProcessExamination,
        diagnosis: ProcessDiagnosis,
        (unseen, splits): (Vec<String>, Option<SplitForecast>),
    ) -> Self {
        Self {
            pid: patient.pid,
            name: patient.name.clone(),
            diagnosis,
            watched_seconds: seen.watch.seconds,
            searched_bytes: seen.searched_pages * seen.page_size,
            searchable_bytes: seen.searchable_pages * seen.page_size,
            unseen,
            splits,
            foldable_bytes: foldable(seen),
        }
    }
}

/// Estimates the bytes of zero pages in huge pages, from the sampled pages of each mapping.
fn foldable(seen: &ProcessExamination) -> u64 {
    let of_mapping = |examined: &MappingExamination| {
        let zero = examined.looks.iter().filter(|look| look.is_zero && look.is_huge).count() as u64;
        let pages = examined.pages.map_or(0, |pages| pages.unmerged);
        (pages * zero).checked_div(examined.looks.len() as u64).unwrap_or(0) * seen.page_size
    };
    seen.mappings.iter().map(of_mapping).sum()
}

/// The report mentions folding if it would free at least this part of the memory: one in ten.
const WORTH_FOLDING: u64 = 10;

/// Mappings shown to a person; JSON has all.
const SHOWN: usize = 12;

impl DoctorReport {
    /// Formats the report as text.
    pub fn page(&self) -> TextPage {
        let mut page = TextPage::new();
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
            self.add_splits(&mut page);
        }
        self.add_folding(&mut page);
        self.add_mappings(&mut page);
        page.lines(self.unseen.iter().map(|what| format!("not seen: {what}")));
        page
    }

    /// Adds what merging would split, and what a saved GiB costs in huge pages.
    fn add_splits(&self, page: &mut TextPage) {
        let Some(SplitForecast { split_bytes, saved_bytes }) = self.splits else { return };
        if saved_bytes == 0 {
            return page.line("Nothing would merge in those that were read.");
        }
        page.line(format_args!(
            "Merging all would split about {} of them and save {}: {:.1} GiB of huge pages per GiB.",
            Bytes::from(split_bytes),
            Bytes::from(saved_bytes),
            split_bytes as f64 / saved_bytes as f64
        ));
    }

    /// Adds a paragraph on folding where it would free more memory than merging does.
    fn add_folding(&self, page: &mut TextPage) {
        let all: u64 = self.diagnosis.causes.iter().map(|total| total.bytes).sum();
        let merged = self.diagnosis.bytes(Cause::Merged);
        if self.foldable_bytes < all / WORTH_FOLDING || self.foldable_bytes <= merged {
            return;
        }
        page.line("");
        page.line(format_args!(
            "about {} of it is zeros in huge pages: folding these frees more than merging has.",
            Bytes::from(self.foldable_bytes)
        ));
        page.line(format_args!("           do: ksmith fold {}", self.pid));
        page.line("           or, for a virtual machine: free page reporting of its balloon, which gives back what the guest frees:");
        page.line(
            "           QEMU -device virtio-balloon-pci,free-page-reporting=on; libvirt <memballoon model='virtio'",
        );
        page.line(
            "           freePageReporting='on'/>; Proxmox VE: as QEMU, in args: of the machine's configuration",
        );
    }

    fn add_mappings(&self, page: &mut TextPage) {
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
            let mark = match mapping.is_marked {
                Some(true) => "mergeable",
                Some(false) => "-",
                None => "?",
            };
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

/// Cuts a path to 80 characters: a file may have a name of any length.
fn beginning(path: &str) -> String {
    path.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use ksmith_core::diagnose::process::{AnonymousPages, LaterState, WatchedPage, judge};
    use ksmith_core::kernel::ProcessMapping;

    use super::*;

    fn report(zero: usize, merged: u64, is_huge: bool) -> DoctorReport {
        let look = |is_zero| WatchedPage { then: LaterState::Same, is_huge, is_zero, equals: None };
        let looks = (0..100).map(|number| look(number < zero)).collect();
        let pages = Some(AnonymousPages { unmerged: 10_000, merged, ..AnonymousPages::default() });
        let figures = "7f0000000000-7f0010000000 rw-p 00000000 00:00 0\nRss: 262144 kB\nAnonymous: 262144 kB\nVmFlags: rd wr mg\n";
        let mapping = ProcessMapping::parse_all(figures).unwrap().remove(0);
        let mappings = vec![MappingExamination { mapping, pages, looks, ..MappingExamination::default() }];
        let seen = ProcessExamination { page_size: 4096, mappings, ..ProcessExamination::default() };
        DoctorReport {
            pid: 7,
            name: "solver".to_owned(),
            diagnosis: judge(&seen),
            watched_seconds: 1.0,
            searched_bytes: 0,
            searchable_bytes: 0,
            unseen: Vec::new(),
            splits: None,
            foldable_bytes: foldable(&seen),
        }
    }

    #[test]
    fn folding_is_named_where_it_brings_more_than_merging_has() {
        let named = report(40, 1000, true);
        assert_eq!(named.foldable_bytes, 4000 * 4096);
        let text = named.page().text().to_owned();
        assert!(text.contains("ksmith fold 7") && text.contains("freePageReporting='on'"), "{text}");
        for other in [report(5, 0, true), report(40, 9000, true), report(40, 1000, false)] {
            assert!(!other.page().text().contains("ksmith fold"));
        }
    }
}
