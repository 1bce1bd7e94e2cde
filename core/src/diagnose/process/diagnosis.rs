//! The outcome: each mapping's memory by cause, and the causes by weight.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cause::Cause;

/// Why a process's memory is merged as far as it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// What matters most: the cause that most memory is lost to, or would be merged without.
    pub main: Option<Cause>,
    /// All causes, the one with most memory first.
    pub causes: Vec<CauseTotal>,
    /// The mappings with memory in them, in the order of their addresses.
    pub mappings: Vec<MappingDiagnosis>,
    /// Bytes in huge pages that are not merged: ksmd splits a huge page when one of its pages merges.
    pub huge_bytes: u64,
}

/// One cause over all mappings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CauseTotal {
    /// Which.
    pub cause: Cause,
    /// How much memory.
    pub bytes: u64,
    /// What is so.
    pub what: &'static str,
    /// What shows it, with figures.
    pub evidence: Option<String>,
    /// What to do about it.
    pub remedy: Option<&'static str>,
}

/// One mapping.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MappingDiagnosis {
    /// First address, as in `smaps`.
    pub start: String,
    /// Address behind the last.
    pub end: String,
    /// What is mapped.
    pub path: String,
    /// Whether it is marked mergeable.
    pub is_marked: bool,
    /// Its memory by cause, in bytes, most first.
    pub parts: Vec<Part>,
}

/// Some memory and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Why it is as it is.
    pub cause: Cause,
    /// How much.
    pub bytes: u64,
}

impl Diagnosis {
    /// Bytes of a cause.
    pub fn bytes(&self, cause: Cause) -> u64 {
        self.causes.iter().find(|total| total.cause == cause).map_or(0, |total| total.bytes)
    }
}

/// The parts of all mappings by cause, most memory first.
pub(super) fn totals(mappings: &[MappingDiagnosis]) -> Vec<(Cause, u64)> {
    let mut sums: BTreeMap<Cause, u64> = BTreeMap::new();
    for part in mappings.iter().flat_map(|mapping| &mapping.parts) {
        *sums.entry(part.cause).or_default() += part.bytes;
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|&(_, bytes)| bytes > 0).collect();
    sums.sort_by_key(|&(cause, bytes)| (std::cmp::Reverse(bytes), cause));
    sums
}
