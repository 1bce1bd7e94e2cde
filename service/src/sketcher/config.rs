//! The table `[sketch]` of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use ksmith_core::contradiction::Contradiction;
use ksmith_host::root::Root;
use ksmith_sketch::{RateRule, RotationOptions, SamplingRate, is_host_name};
use serde::Deserialize;

/// The table `[sketch]`: the sketch file of this host, and its cost limits.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SketchConfig {
    /// True if the daemon keeps a sketch file.
    pub enabled: bool,
    /// The fleet's secret.
    pub secret: PathBuf,
    /// The directory of the file.
    pub directory: PathBuf,
    /// The host's name in the fleet. Without it, the kernel's.
    pub host: Option<String>,
    /// The part of all contents that is kept, such as `1/64`.
    pub rate: Option<String>,
    /// Without a rate: contents of the largest guest, about.
    pub per_guest: u64,
    /// Minutes between two files.
    pub every_minutes: u32,
    /// The pause before the second look, in seconds. 0: there is none.
    pub again_seconds: u32,
    /// Per cent of one CPU that reading may take on average.
    pub max_cpu_percent: f64,
    /// Memory that a planner is to leave free, in MiB.
    pub reserved_mib: u64,
}

impl Default for SketchConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            secret: PathBuf::from("/etc/ksmith/fleet.key"),
            directory: PathBuf::from("/var/lib/ksmith/sketch"),
            host: None,
            rate: None,
            per_guest: 4096,
            every_minutes: 60,
            again_seconds: 60,
            max_cpu_percent: 0.1,
            reserved_mib: 0,
        }
    }
}

impl SketchConfig {
    /// Returns the first setting that makes no sense.
    pub fn contradiction(&self) -> Option<Contradiction> {
        let of = |key: &str, why: &str| Contradiction::new(&[&["sketch", key]], format!("[sketch] {key}: {why}"));
        if let Some(Err(why)) = self.rate.as_ref().map(|rate| rate.parse::<SamplingRate>()) {
            return Some(of("rate", &why.to_string()));
        }
        let (key, why) = match self {
            Self { secret, .. } if !secret.is_absolute() => ("secret", "name an absolute path"),
            Self { directory, .. } if !directory.is_absolute() => ("directory", "name an absolute path"),
            Self { host: Some(host), .. } if !is_host_name(host) => {
                ("host", "name it with letters, digits, dots, - and _, a letter or digit first")
            }
            Self { per_guest, .. } if !(1..=1 << 20).contains(per_guest) => {
                ("per_guest", "it takes 1 to 1048576 contents")
            }
            Self { every_minutes: 0, .. } => ("every_minutes", "it must be over 0"),
            Self { max_cpu_percent, .. } if !(*max_cpu_percent > 0.0 && *max_cpu_percent <= 100.0) => {
                ("max_cpu_percent", "it must be over 0 and at most 100")
            }
            _ => return None,
        };
        Some(of(key, why))
    }

    /// Returns the path of this host's file, which is below the root of a captured or a simulated tree.
    pub(super) fn file(&self, root: &Root) -> PathBuf {
        let kernels = root.text("proc/sys/kernel/hostname");
        let kernels = kernels.value().map(|name| name.trim().replace('/', "-")).filter(|name| !name.is_empty());
        let host = self.host.clone().or(kernels).unwrap_or_else(|| "host".to_owned());
        let directory = match root.is_host() {
            true => self.directory.clone(),
            false => root.path(self.directory.strip_prefix("/").unwrap_or(&self.directory)),
        };
        directory.join(format!("{host}.parquet"))
    }

    /// Returns the memory that a planner is to leave free, if any.
    pub fn reserved_bytes(&self) -> Option<u64> {
        (self.reserved_mib > 0).then(|| self.reserved_mib.saturating_mul(1 << 20))
    }

    /// Returns the rule by which the rate is chosen.
    pub fn rate_rule(&self) -> RateRule {
        let stated = self.rate.as_ref().and_then(|rate| rate.parse().ok());
        stated.map_or(RateRule::PerGuest(self.per_guest), RateRule::Stated)
    }

    pub(super) fn every(&self) -> Duration {
        Duration::from_secs(60 * u64::from(self.every_minutes))
    }

    pub(super) fn rotation(&self) -> RotationOptions {
        RotationOptions {
            rate: self.rate_rule(),
            again: (self.again_seconds > 0).then(|| Duration::from_secs(u64::from(self.again_seconds))),
            every: self.every(),
        }
    }
}
