//! The command `ksmith sketch`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ksmith_core::guest::Guest;
use ksmith_core::printable::TextPage;
use ksmith_core::units::Bytes;
use ksmith_host::guests::GuestTracker;
use ksmith_host::memory::process::OpenProcess;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_service::config::Config;
use ksmith_service::control::ControlClient;
use ksmith_sketch::{
    CaptureOptions, HostFacts, RateRule, SamplingRate, SketchClock, SketchSubject, SketchSummary, capture,
    is_host_name, new_secret, read_secret,
};

use super::page_tables::fill_readings;
use super::{CommandFailure, GlobalArgs, amounts, naming, patience, print};

/// Write a sample of what guests hold, so that a fleet can find out which of them should share a host.
///
/// Reads the memory of guests once, disturbs nothing, and writes one Parquet file for this host. Its keyed fingerprint
/// alone decides whether a content is in the sample: all hosts with the same secret sample the same contents. So the
/// estimate of what two guests have in common is unbiased. Zero pages are counted separately. After a pause the sampled
/// pages are read again, since pages that change never merge.
///
/// Without the secret the file reveals how much guests have in common, their names, UUIDs, users, domains and figures, and the
/// host's figures. With it a reader can test whether a guest holds a known page: /usr/share/doc/ksmith/docs/internals/sketch-files.md.
///
/// Without guests it reads every virtual machine and every guest with mergeable memory. It needs root or CAP_SYS_PTRACE, but no
/// KSM.
#[derive(Debug, Args)]
pub struct SketchArgs {
    /// Guests and processes to read, opted in or not, by name, UUID, PID, kind:name or VMID
    #[arg(value_name = "GUEST", conflicts_with = "new_secret")]
    guests: Vec<String>,
    /// Write this Parquet file
    #[arg(long, value_name = "FILE", required_unless_present = "new_secret")]
    out: Option<PathBuf>,
    /// The fleet's secret: a file that only its owner may read [default: the configuration's, /etc/ksmith/fleet.key]
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Make a new secret for the fleet in this file, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "secret"])]
    new_secret: Option<PathBuf>,
    /// Keep this part of all contents, such as 1/64; use the same on all hosts of a fleet
    #[arg(long, value_name = "1/N")]
    rate: Option<SamplingRate>,
    /// Choose the rate so that the largest guest has at most about this many contents [default: the configuration's, 4096]
    #[arg(long, value_name = "N", conflicts_with = "rate", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    per_guest: Option<u64>,
    /// Read the sampled pages again after this time (10, 1min); 0 reads them once
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = amounts::wait)]
    again: Duration,
    /// The host's name in the fleet [default: the configuration's, or the kernel's]
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Option<String>,
}

/// Timeout for hypervisors to report their UUID.
const PATIENCE: Duration = Duration::from_secs(2);

impl SketchArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.new_secret {
            new_secret(path)?;
            if !global.json {
                let mut page = TextPage::new();
                page.line(format_args!(
                    "made {}: copy it to all hosts of the fleet, each with mode 600, and keep it secret",
                    path.display()
                ));
                print::page(&page)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let root = global.root();
        if !root.is_host() {
            let why = "memory can only be read on the running host, not in a captured tree: leave out --root";
            return Err(CommandFailure::usage(why).into());
        }
        let Some(out) = &self.out else {
            return Err(CommandFailure::usage("name the file to write with --out FILE").into());
        };
        let config = global.load_config()?;
        let secret = self.secret.as_deref().unwrap_or(&config.sketch.secret);
        let key = read_secret(secret).map_err(|error| CommandFailure::usage(error.to_string()))?;
        patience::watch();
        let mut sample = HostObserver::new(root.clone()).sample();
        let answer = ControlClient::connect(&config.daemon.control_socket).and_then(|mut daemon| daemon.status());
        fill_readings(&mut sample, &root, answer.ok().as_ref());
        let guests = GuestTracker::new(root.clone(), config.guests.libvirt_uri.clone())
            .list_within(&sample, PATIENCE)
            .guests;
        let options = CaptureOptions {
            subjects: self.subjects(&root, &guests, &config)?,
            rate: match (self.rate, self.per_guest) {
                (Some(rate), _) => RateRule::Stated(rate),
                (None, Some(contents)) => RateRule::PerGuest(contents),
                (None, None) => config.sketch.rate_rule(),
            },
            again: (!self.again.is_zero()).then_some(self.again),
        };
        let now = SketchClock::start().now().day_clock;
        let host = self.host.as_deref().or(config.sketch.host.as_deref());
        let facts = HostFacts::read(&root, &sample, host, config.sketch.reserved_bytes(), now);
        let found = capture(&options, &key).map_err(|error| CommandFailure::no_privilege(error.to_string()))?;
        let summary = found.write(out, facts, &key)?;
        print::answer(global.json, || &summary, || page(&summary, out, sample.page_size))
    }

    fn subjects(
        &self,
        root: &Root,
        guests: &[Guest],
        config: &Config,
    ) -> Result<Vec<SketchSubject>, CommandFailure> {
        let of = |guest: &Guest| SketchSubject::from_guest(guest, &config.domains, &config.balance);
        let mut wanted = self.guests.iter().peekable();
        if wanted.peek().is_none() {
            return Ok(guests.iter().map(of).collect());
        }
        let mut pids = Vec::new();
        for wanted in wanted {
            pids.extend(naming::processes(root, config, wanted)?);
        }
        let mut subjects = Vec::new();
        for pid in pids {
            let guest = guests.iter().find(|guest| guest.processes.iter().any(|process| process.pid == pid));
            let subject = match guest {
                Some(guest) => of(guest),
                None => OpenProcess::open(pid)
                    .map(|process| SketchSubject::from_process(&process, &config.balance))
                    .map_err(|why| {
                        CommandFailure::with_code(super::exit::FAILED, format!("process {pid}: {why}"))
                    })?,
            };
            subjects.push(subject);
        }
        subjects.sort_by_key(|subject| subject.pid);
        subjects.dedup_by_key(|subject| subject.pid);
        Ok(subjects)
    }
}

fn page(summary: &SketchSummary, out: &Path, page_size: u64) -> TextPage {
    let mut page = TextPage::new();
    let memory = Bytes::from(summary.pages.saturating_mul(page_size));
    page.line(format_args!(
        "wrote {}: {} guests with {memory}, {} contents at rate {}, {}",
        out.display(),
        summary.guests,
        summary.contents,
        summary.rate,
        Bytes::from(summary.bytes)
    ));
    page.lines(savings_notes(summary));
    for skipped in &summary.skipped {
        page.line(format_args!("left out {}: {}", skipped.guest, skipped.why));
    }
    page
}

/// Returns notes on the savings in the file: what no page tables confirm, and what they can't show any more.
fn savings_notes(summary: &SketchSummary) -> Vec<String> {
    let unverified = (summary.unverified_bytes > 0).then(|| {
        format!(
            "{} of what is saved without a look at page tables: collapses may have undone some, and freed zeros are not in it",
            Bytes::from(summary.unverified_bytes)
        )
    });
    let earlier = summary.earlier_zero_bytes.filter(|bytes| *bytes > 0).map(|bytes| {
        format!("splits may have freed up to {} more before page tables were first read", Bytes::from(bytes))
    });
    unverified.into_iter().chain(earlier).collect()
}

fn host(text: &str) -> Result<String, String> {
    match is_host_name(text) {
        true => Ok(text.to_owned()),
        false => Err("name it with letters, digits, dots, - and _, a letter or digit first".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sketch_says_what_of_its_savings_is_not_certain() {
        let notes = |unverified_bytes, earlier_zero_bytes| {
            savings_notes(&SketchSummary {
                rate: "1/64".to_owned(),
                guests: 1,
                pages: 1,
                zero_pages: 0,
                contents: 1,
                bytes: 1,
                unverified_bytes,
                earlier_zero_bytes,
                skipped: Vec::new(),
            })
        };
        assert_eq!([notes(0, None), notes(0, Some(0))], [Vec::<String>::new(), Vec::new()]);
        let [unverified, earlier] = &notes(3 << 20, Some(2 << 20))[..] else { panic!("two notes") };
        assert!(unverified.starts_with("3.00 MiB of what is saved without a look"), "{unverified}");
        assert!(earlier.starts_with("splits may have freed up to 2.00 MiB more"), "{earlier}");
    }
}
