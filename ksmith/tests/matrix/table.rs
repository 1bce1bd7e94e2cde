//! The table of kernels and commands.

use std::fmt::Write;

use crate::checks::Ksm;

/// The outcomes of one kernel by the name of the check.
pub struct KernelColumn {
    pub release: String,
    pub ksm: Ksm,
    pub outcomes: Vec<(String, Result<String, String>)>,
}

/// Outcomes, kernel by kernel.
pub struct OutcomeTable(pub Vec<KernelColumn>);

impl KernelColumn {
    /// Returns the failed outcomes.
    pub fn faults(&self) -> String {
        let faults = self.outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().err());
        faults.map(|fault| format!("on Linux {}: {fault}\n", self.release)).collect()
    }

    /// Renders the outcome of each check as Markdown.
    pub fn text(&self) -> String {
        let has = if self.ksm.is_some() { "" } else { ", without KSM" };
        let mut text = format!("## Linux {}{has}\n\n| check | outcome |\n|---|---|\n", self.release);
        for (name, outcome) in &self.outcomes {
            let outcome = outcome.as_deref().unwrap_or("FAILED");
            let _ = writeln!(text, "| {name} | {} |", outcome.replace('|', "\\|"));
        }
        text
    }
}

impl OutcomeTable {
    /// Returns the failed outcomes of all kernels.
    pub fn faults(&self) -> String {
        self.0.iter().map(KernelColumn::faults).collect()
    }

    /// Renders a table of all kernels, with a word for each check.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let heads: Vec<String> = self
            .0
            .iter()
            .map(|column| column.ksm.map_or("without KSM".to_owned(), |version| version.to_string()))
            .collect();
        let _ = writeln!(text, "| | {} |\n|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
        let names = self.0.first().into_iter().flat_map(|column| &column.outcomes).map(|(name, _)| name);
        for (row, name) in names.enumerate() {
            let words: Vec<&str> = self.0.iter().map(|column| word(&column.outcomes[row].1)).collect();
            let _ = writeln!(text, "| {name} | {} |", words.join(" | "));
        }
        text
    }
}

/// An outcome in a word.
fn word(outcome: &Result<String, String>) -> &str {
    const WORDS: [&str; 5] = ["refused", "simulated", "not reproduced", "reproduced", "not applicable"];
    let Ok(outcome) = outcome else { return "FAILED" };
    if outcome.contains("exit code 1") {
        return "says what it missed";
    }
    WORDS.into_iter().find(|word| outcome.starts_with(word)).unwrap_or("works")
}
