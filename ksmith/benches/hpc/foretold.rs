//! The daemon's forecasts of its scans beside what came of them, from its log.

use serde::Serialize;

/// The scans of a run that were foretold (`look_first`), together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct ForetoldScans {
    /// Scans that were begun.
    pub(crate) scans: u32,
    /// Scans that were not begun, as they would not pay.
    pub(crate) left: u32,
    /// Foretold and true savings of those that were begun, in MiB.
    pub(crate) saved_mib: [f64; 2],
    /// Foretold and true CPU-seconds of ksmd.
    pub(crate) cpu_seconds: [f64; 2],
}

impl ForetoldScans {
    /// Reads the log of `ksmith daemon -v`. A reason is logged with each setting that it changes, and again with each
    /// count of sampled pages.
    pub(crate) fn read(log: &str) -> Self {
        let mut all = Self::default();
        let mut last = None;
        for line in log.lines() {
            if let Some((_, looked)) = line.split_once("a scan would save about ") {
                let (looked, _) = looked.split_once(';').unwrap_or((looked, ""));
                all.left += u32::from(last.replace(looked) != Some(looked));
            }
            let Some((before, foretold)) = line.split_once(", foretold ") else { continue };
            let Some((_, came)) = before.rsplit_once(": ") else { continue };
            if last.replace(came) == Some(came) {
                continue;
            }
            let (Some(foretold), Some(came)) = (amounts(foretold), amounts(came)) else {
                panic!("a forecast in other words: {line}")
            };
            all.scans += 1;
            for (place, (saved, seconds)) in [foretold, came].into_iter().enumerate() {
                all.saved_mib[place] += saved;
                all.cpu_seconds[place] += seconds;
            }
        }
        all
    }
}

/// Reads `12.5 MiB saved in 0.40 CPU-s`; `12.5 MiB less saved` is negative.
fn amounts(text: &str) -> Option<(f64, f64)> {
    let mut words = text.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit = match words.next()? {
        "B" => 1.0 / f64::from(1 << 20),
        "KiB" => 1.0 / 1024.0,
        "MiB" => 1.0,
        "GiB" => 1024.0,
        _ => return None,
    };
    let sign = match words.next()? {
        "saved" => 1.0,
        "less" if words.next()? == "saved" => -1.0,
        _ => return None,
    };
    if words.next()? != "in" {
        return None;
    }
    Some((sign * number * unit, words.next()?.parse().ok()?))
}
