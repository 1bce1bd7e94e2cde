//! `ksmith status`: the host's KSM at one moment, for people and for programs.

use std::fmt;

use ksmith_core::account::{self, Share, Totals};
use ksmith_core::decide::domains::DomainsReport;
use ksmith_core::kernel::{Run, Value};
use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;
use ksmith_core::units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::{BalanceStatus, Table};

/// Everything `status` shows.
#[derive(Debug, Clone)]
pub struct Status {
    /// What was seen.
    pub sample: Sample,
    /// Per cent of one CPU that ksmd uses. `None` where it can't be measured.
    pub ksmd_cpu_percent: Option<f64>,
    /// The daemon that controls KSM, if there is one.
    pub daemon: Option<DaemonStatus>,
    /// Who may share with whom. `None` where guests were not looked at.
    pub domains: Option<DomainsReport>,
    /// What balance does. `None` where no daemon does it.
    pub balance: Option<BalanceStatus>,
}

/// What a running daemon says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Its PID.
    pub pid: u32,
    /// The policy in charge.
    pub policy: String,
    /// What the policy is doing, in one word.
    pub state: String,
    /// Why.
    pub reason: String,
    /// CPU time the daemon itself has used, in seconds.
    pub cpu_seconds: f64,
    /// The daemon's resident memory.
    pub rss_bytes: u64,
    /// Seconds since it started.
    pub uptime_seconds: f64,
}

/// One process with mergeable memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessStatus {
    /// Its PID.
    pub pid: u32,
    /// The guest's or the program's name.
    pub name: String,
    /// Resident bytes; merged pages count in full.
    pub rss_bytes: u64,
    /// See [`Share`].
    #[serde(flatten)]
    pub share: Share,
}

impl Status {
    /// The processes with their shares, and the bytes saved in processes that hide their figures.
    pub fn processes(&self) -> (Vec<ProcessStatus>, u64) {
        let (shares, unattributed) = account::shares(&self.sample);
        let processes = self.sample.processes.iter().zip(shares).map(|(process, share)| ProcessStatus {
            pid: process.id.pid,
            name: process.name.to_string(),
            rss_bytes: process.rss_bytes,
            share,
        });
        (processes.collect(), unattributed)
    }

    /// What could not be read, one sentence each. Files that this kernel lacks are not among them.
    pub fn errors(&self) -> Vec<String> {
        let sample = &self.sample;
        let mut errors: Vec<String> = sample
            .ksm
            .entries()
            .filter_map(|(field, reading)| fault(&format!("/sys/kernel/mm/ksm/{}", field.name), &reading))
            .collect();
        errors.extend(fault("ksmd's schedstat", &sample.ksmd_cpu_ns));
        errors.extend(fault("/proc/meminfo", &sample.memory));
        errors.extend(fault("/proc/vmstat", &sample.vmstat));
        errors.extend(fault("/proc/stat", &sample.cpu));
        errors.extend(fault("/proc/pressure/memory", &sample.memory_pressure));
        errors.extend(fault("/proc/pressure/cpu", &sample.cpu_pressure));
        if sample.hidden_processes > 0 {
            errors.push(format!(
                "{} processes do not show their KSM figures to this user; run as root to see all",
                sample.hidden_processes
            ));
        }
        errors
    }

    /// The stable JSON form: every KSM file under its kernel name (`null` where this kernel lacks it), the derived
    /// figures, the processes, the daemon.
    pub fn to_json(&self) -> serde_json::Value {
        let mut root = Map::new();
        for (field, reading) in self.sample.ksm.entries() {
            root.insert(field.name.to_owned(), json!(reading.value()));
        }
        let totals = Totals::of(&self.sample);
        let (processes, unattributed_bytes) = self.processes();
        let more = json!({
            "page_size": self.sample.page_size,
            "saved_bytes": totals.saved_bytes,
            "overhead_bytes": totals.overhead_bytes,
            "profit_bytes": totals.profit_bytes,
            "exposure_bytes": totals.exposure_bytes,
            "headroom_bytes": totals.headroom_bytes,
            "ksmd_cpu_percent": self.ksmd_cpu_percent,
            "cow_ksm": self.sample.vmstat.value().and_then(|vm| vm.cow_ksm),
            "processes": processes,
            "unattributed_bytes": unattributed_bytes,
            "hidden_processes": self.sample.hidden_processes,
            "daemon": self.daemon,
            "domains": self.domains,
            "balance": self.balance,
            "errors": self.errors(),
        });
        if let serde_json::Value::Object(more) = more {
            root.extend(more);
        }
        serde_json::Value::Object(root)
    }

    fn headline(&self) -> String {
        let ksm = &self.sample.ksm;
        let state = match (ksm.run_state(), &ksm.run) {
            (Some(Run::Stopped), _) => "KSM is stopped; what is merged stays merged",
            (Some(Run::Running), _) => "KSM is running",
            (Some(Run::Unmerged), _) => "KSM is stopped and everything is unmerged",
            (None, Reading::Absent) => return "KSM: this kernel has none".to_owned(),
            (None, Reading::Denied) => return "KSM: its settings may not be read by this user".to_owned(),
            (None, _) => "KSM is in a state that ksmith does not know",
        };
        match (&self.daemon, self.ksmd_cpu_percent) {
            (Some(daemon), _) if ksm.run_state() == Some(Run::Stopped) => {
                format!("KSM is parked by ksmith (pid {}); what is merged stays merged", daemon.pid)
            }
            (_, Some(percent)) if ksm.run_state() == Some(Run::Running) => {
                format!("{state}; ksmd uses {percent:.1} % of a CPU")
            }
            _ => state.to_owned(),
        }
    }
}

fn fault<T>(source: &str, reading: &Reading<T>) -> Option<String> {
    match reading {
        Reading::Denied => Some(format!("{source}: permission denied; run as root")),
        Reading::Malformed(why) => Some(format!("{source}: {why}")),
        Reading::Value(_) | Reading::Absent => None,
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        if let Some(daemon) = &self.daemon {
            writeln!(f, "policy    {}: {}, {}", daemon.policy, daemon.state, daemon.reason)?;
        }
        if self.sample.ksm.is_present() {
            let totals = Totals::of(&self.sample);
            let bytes = |bytes: u64| Bytes::from(bytes);
            writeln!(
                f,
                "saved     {}  (metadata {}, profit {})",
                bytes(totals.saved_bytes),
                bytes(totals.overhead_bytes),
                Bytes::from(totals.profit_bytes)
            )?;
            let headroom = totals.headroom_bytes.map_or("unknown".to_owned(), |b| bytes(b).to_string());
            let warning = if totals.is_overexposed() { "  WARNING: more than the host has" } else { "" };
            writeln!(f, "exposure  {}  (headroom {headroom}){warning}", bytes(totals.exposure_bytes))?;
            writeln!(f, "settings  {}", knobs_in_words(&self.sample))?;
            if let Some(domains) = &self.domains {
                writeln!(f, "domains   {}", domains.meaning)?;
            }
            if let Some(BalanceStatus { policy, state, reason, taken_bytes, exposed }) = &self.balance {
                let taken = match taken_bytes {
                    0 => String::new(),
                    taken => format!("; {} taken from guests", bytes(*taken)),
                };
                writeln!(f, "balance   {policy}: {state}, {reason}{taken}")?;
                if let Some(exposed) = exposed {
                    writeln!(f, "          {exposed}")?;
                }
            }
            self.fmt_processes(f)?;
        }
        for error in self.errors() {
            writeln!(f, "note      {error}")?;
        }
        Ok(())
    }
}

impl Status {
    fn fmt_processes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More than this and a person wants `ksmith guests`, or `--json`.
        const SHOWN: usize = 20;
        let (mut processes, unattributed) = self.processes();
        if processes.is_empty() {
            return writeln!(f, "processes none with mergeable memory{}", seen_by(self));
        }
        processes.sort_by_key(|process| std::cmp::Reverse(process.share.saved_bytes));
        let mut table = Table::new(["process", "pid", "rss", "merged", "saved", "profit"]);
        for process in processes.iter().take(SHOWN) {
            let Share { merged_bytes, saved_bytes, profit_bytes } = process.share;
            table.row([
                process.name.clone(),
                process.pid.to_string(),
                Bytes::from(process.rss_bytes).to_string(),
                Bytes::from(merged_bytes).to_string(),
                Bytes::from(saved_bytes).to_string(),
                Bytes::from(profit_bytes).to_string(),
            ]);
        }
        write!(f, "\n{table}")?;
        if processes.len() > SHOWN {
            writeln!(f, "… and {} more; --json shows all", processes.len() - SHOWN)?;
        }
        if unattributed > 0 {
            writeln!(f, "{} more saved in processes that are not shown", Bytes::from(unattributed))?;
        }
        Ok(())
    }
}

fn seen_by(status: &Status) -> &'static str {
    if status.sample.hidden_processes > 0 { " that this user may see" } else { "" }
}

/// The settings that this kernel has, in the kernel's own words.
fn knobs_in_words(sample: &Sample) -> String {
    let shown = ["pages_to_scan", "sleep_millisecs", "smart_scan", "use_zero_pages", "advisor_mode"];
    let entries = sample.ksm.entries().filter(|(field, _)| shown.contains(&field.name));
    let words = entries.filter_map(|(field, reading)| {
        let value: &Value = reading.value()?;
        Some(format!("{} {value}", field.name))
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "unknown".to_owned() } else { words.join(", ") }
}
