//! The diagnosis: the memory of each mapping by cause, and the causes by size.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::cause::Cause;

/// The causes of a process's memory.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProcessDiagnosis {
    /// The main cause: the largest notable loss, else the cause of most memory.
    pub main: Option<Cause>,
    /// All causes, the one with most memory first.
    pub causes: Vec<CauseTotal>,
    /// The mappings with memory in them, in the order of their addresses.
    pub mappings: Vec<MappingDiagnosis>,
    /// Bytes in huge pages that are not merged: ksmd splits a huge page when one of its pages merges.
    pub huge_bytes: u64,
}

/// One cause over all mappings.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CauseTotal {
    /// The cause of this memory.
    pub cause: Cause,
    /// The memory with this cause.
    pub bytes: u64,
    /// The sentence of the cause.
    pub what: &'static str,
    /// Its evidence, with figures.
    pub evidence: Option<String>,
    /// The remedy, if something is wrong.
    pub remedy: Option<&'static str>,
}

/// The diagnosis of one mapping.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MappingDiagnosis {
    /// First address, as in `smaps`.
    pub start: String,
    /// Address behind the last.
    pub end: String,
    /// The mapped file or area.
    pub path: String,
    /// True if it is marked mergeable; null if its flags are not shown.
    pub is_marked: Option<bool>,
    /// Its memory by cause, in bytes, most first.
    pub parts: Vec<CausePart>,
}

/// Some memory and its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CausePart {
    /// The cause of this memory.
    pub cause: Cause,
    /// The memory with this cause.
    pub bytes: u64,
}

impl ProcessDiagnosis {
    /// Returns the memory of a cause.
    pub fn bytes(&self, cause: Cause) -> u64 {
        self.causes.iter().find(|total| total.cause == cause).map_or(0, |total| total.bytes)
    }
}

/// Sums the parts of all mappings by cause, most memory first.
pub(super) fn totals(mappings: &[MappingDiagnosis]) -> Vec<(Cause, u64)> {
    let mut sums: BTreeMap<Cause, u64> = BTreeMap::new();
    for part in mappings.iter().flat_map(|mapping| &mapping.parts) {
        *sums.entry(part.cause).or_default() += part.bytes;
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|&(_, bytes)| bytes > 0).collect();
    sums.sort_by_key(|&(cause, bytes)| (std::cmp::Reverse(bytes), cause));
    sums
}
