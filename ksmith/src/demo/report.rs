//! What the demo showed, as JSON and as a table.

use std::fmt;

use ksmith_core::units::Bytes;
use serde::{Serialize, Serializer};

use super::stage::Mode;
use crate::show::Table;

/// The result of a demo.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Whether the figures are real.
    #[serde(serialize_with = "word")]
    pub mode: Mode,
    /// What merging can save, known beforehand from the guests' contents.
    pub mergeable_bytes: u64,
    /// What it did save.
    pub saved_bytes: u64,
    /// Seconds from the start until 90 % of `mergeable_bytes` were saved. `None`: that was not reached.
    pub seconds_to_90: Option<f64>,
    /// Seconds from the late guest's start until 90 % of what it adds was saved.
    pub late_seconds_to_90: Option<f64>,
    /// Seconds in all.
    pub seconds: f64,
    /// ksmd's CPU under the policy; the passes made the kernel's way are not counted.
    pub ksmd_cpu_seconds: f64,
    /// ksmith's own CPU, this view included.
    pub ksmith_cpu_seconds: f64,
    /// ksmith's own memory.
    pub ksmith_rss_bytes: u64,
    /// Pages of guests that did not hold what they should: 0, or something is very wrong.
    pub wrong_pages: usize,
    /// Whether every setting is as it was.
    pub restored: bool,
}

fn word<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(mode.word())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.saved_bytes as f64 / self.mergeable_bytes.max(1) as f64;
        let seconds = |seconds: Option<f64>| seconds.map_or("not reached".to_owned(), |s| format!("{s:.1} s"));
        let mut table = Table::new([
            match self.mode {
                Mode::Live => "measured on this kernel",
                Mode::Simulated => "SIMULATED",
            },
            "",
        ]);
        let label = |text: &str| match self.mode {
            Mode::Live => text.to_owned(),
            Mode::Simulated => format!("SIMULATED {text}"),
        };
        table.row([label("mergeable, known beforehand"), Bytes::from(self.mergeable_bytes).to_string()]);
        table.row([label("saved"), format!("{} ({percent:.1} %)", Bytes::from(self.saved_bytes))]);
        table.row([label("time to 90 %"), seconds(self.seconds_to_90)]);
        table.row([label("the late guest's part, after its start"), seconds(self.late_seconds_to_90)]);
        table.row([label("ksmd's CPU"), format!("{:.2} s", self.ksmd_cpu_seconds)]);
        table.row([label("ksmith's own CPU"), format!("{:.2} s", self.ksmith_cpu_seconds)]);
        table.row([label("ksmith's own memory"), Bytes::from(self.ksmith_rss_bytes).to_string()]);
        write!(f, "{table}")?;
        if self.wrong_pages > 0 {
            writeln!(f, "{} pages of guests DO NOT HOLD WHAT THEY SHOULD", self.wrong_pages)?;
        }
        f.write_str(if self.restored {
            "all settings restored"
        } else {
            "settings are NOT all restored: ksmith restore"
        })
    }
}
