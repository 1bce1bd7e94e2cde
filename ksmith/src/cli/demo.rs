//! The command `ksmith demo`.

use std::process::ExitCode;

use clap::Args;
use ksmith_core::kernel::{Meminfo, RunState};
use ksmith_core::sample::Sample;
use ksmith_core::units::Bytes;

use super::{CommandFailure, GlobalArgs, amounts, control, print};
use crate::show;
use ksmith_host::ksm_counts::ksm_as_counted;
use ksmith_host::live::LiveHost;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_host::signals;
use ksmith_lab::GuestPages;
use ksmith_lab::demo::{DemoMode, DemoReport, DemoScript, DemoView, LiveStage, SimulatedStage, opening, play};

/// Show merging on four small guests: merged within seconds, one late guest included, settings restored.
///
/// The guests are processes with known memory, on huge pages like virtual machines: half of it is equal in all, a tenth
/// is empty, a tenth is rewritten all the time, and an eighth is equal only in the first and the last guest. So the
/// table at the end can compare the savings with the attainable ones. The last guest starts late, after ksmd has made
/// passes with smart_scan: the kernel's own settings would then hardly ever merge its eighth.
///
/// If it reaches less than 95 % of the attainable savings, it says what was missed and why, and exits with 1.
///
/// Without KSM or without root the demo runs on a simulated ksmd and says so on every line. It refuses a host
/// where KSM is in use or processes offer memory to it.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Memory of each guest: MiB, or with a unit as in 1.5G
    #[arg(long, value_name = "SIZE", default_value = "96", value_parser = amounts::mebibytes)]
    size: u32,
    /// Pages of the guests' memory [default: huge, if this host gives huge pages]
    #[arg(long, value_enum)]
    pages: Option<GuestPages>,
    /// Run on the simulated ksmd, even if the kernel has KSM
    #[arg(long)]
    simulated: bool,
    /// Run even if other processes use KSM: with --pages small their merged pages count in the figures
    #[arg(long)]
    force: bool,
}

impl DemoArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = global.live_root()?;
        let why_simulated = self.why_simulated(&root);
        let mode = if why_simulated.is_some() { DemoMode::Simulated } else { DemoMode::Live };
        let view = DemoView::new(mode, global.json);
        let pages = usize::try_from(u64::from(self.size) * (1 << 20) / mode.page_bytes())?;
        let script = DemoScript::new(pages);
        let pages = self.pages(&root, mode)?;
        view.say(&opening(mode, u64::from(self.size) << 20, pages));
        let report = if let Some(why) = why_simulated {
            view.say(&format!("({why})"));
            play(SimulatedStage::new(pages), &script, view)?
        } else {
            let mut observer = HostObserver::new(root);
            let sample = observer.sample();
            self.check_unused(&sample)?;
            self.check_memory(&sample)?;
            let interrupts = signals::catch()?.listen()?;
            let control = control::take_control(global, false, false)?;
            let keep = global.load_config()?.huge_pages.keep_terms(&Root::host());
            let stage = LiveStage::new(LiveHost::new(observer, control), interrupts, pages, keep)?;
            play(stage, &script, view)?
        };
        print(global, &report)?;
        let is_good = report.restored && report.wrong_pages == 0 && report.missed.is_none();
        Ok(if is_good { ExitCode::SUCCESS } else { crate::exit::FAILED.into() })
    }

    /// Returns the pages that guests are to be on. A simulated host gives any.
    fn pages(&self, root: &Root, mode: DemoMode) -> Result<GuestPages, CommandFailure> {
        let is_given = |pages: GuestPages| mode == DemoMode::Simulated || pages.are_given(root);
        match self.pages {
            Some(pages) if is_given(pages) => Ok(pages),
            Some(_) => Err(CommandFailure::impossible(
                "this host gives no huge pages of 2 MiB (enabled and hpage_pmd_size in /sys/kernel/mm/transparent_hugepage): \
                 use --pages small",
            )),
            None if is_given(GuestPages::Huge) => Ok(GuestPages::Huge),
            None => Ok(GuestPages::Small),
        }
    }

    fn why_simulated(&self, root: &Root) -> Option<&'static str> {
        if self.simulated {
            Some("as asked")
        } else if !ksm_as_counted(root).is_present() {
            Some("this kernel has no KSM")
        } else if !rustix::process::geteuid().is_root() {
            Some("changing KSM's settings needs root: sudo ksmith demo shows it on this kernel")
        } else {
            None
        }
    }

    /// Refuses a host where KSM is in use, or where the demo would merge the memory of other processes. Their memory
    /// would stay merged, and count in the figures. Pages of ended processes, which the gauges still count, are
    /// no use of KSM.
    fn check_unused(&self, sample: &Sample) -> Result<(), CommandFailure> {
        if self.force {
            return Ok(());
        }
        let run = sample.ksm.run_state();
        let gauged = sample.ksm.saved_pages();
        let saved = sample.merged_by_the_living().map_or(gauged, |living| living.min(gauged)) * sample.page_size;
        if run == Some(RunState::Running) || saved > 0 {
            let is = if run == Some(RunState::Running) { "runs" } else { "has run" };
            return Err(CommandFailure::impossible(format!(
                "KSM is in use on this host (it {is}, {} saved), and the demo would disturb it: use --simulated, or \
                 --force",
                Bytes::from(saved)
            )));
        }
        let others = sample.processes.iter().filter(|process| process.may_merge());
        let offered: u64 = others.clone().map(|process| process.known_rss_bytes()).sum();
        // Less memory than that of one guest hardly changes the figures.
        if offered > u64::from(self.size) << 20 {
            return Err(CommandFailure::impossible(format!(
                "{} processes with {} of memory offer it to KSM, and the demo would merge and count that too: \
                 use --simulated, or --force",
                others.count(),
                Bytes::from(offered)
            )));
        }
        Ok(())
    }

    /// Refuses a host with too little memory, with `--force` too, because the guests really use their memory.
    fn check_memory(&self, sample: &Sample) -> Result<(), CommandFailure> {
        let Some(available) = sample.host.memory.value().and_then(Meminfo::obtainable) else { return Ok(()) };
        let largest = largest_guest_mib(available);
        if u64::from(self.size) <= largest {
            return Ok(());
        }
        let remedy = match largest {
            0..SMALLEST_MIB => "use --simulated".to_owned(),
            _ => format!("--size {largest} fits, and so does --simulated"),
        };
        Err(CommandFailure::impossible(format!(
            "four guests of {} need {}, {} are available, and the host is to keep {MARGIN_MIB} MiB of them: {remedy}",
            Bytes::from(u64::from(self.size) << 20),
            Bytes::from(u64::from(self.size) << 22),
            Bytes::from(available),
        )))
    }
}

/// Memory in MiB that the demo leaves to the host.
const MARGIN_MIB: u64 = 512;

/// The smallest `--size`.
const SMALLEST_MIB: u64 = 4;

/// Returns the size in MiB of the largest guest of which four fit into `available` bytes.
fn largest_guest_mib(available: u64) -> u64 {
    (available >> 20).saturating_sub(MARGIN_MIB) / 4
}

fn print(global: &GlobalArgs, report: &DemoReport) -> anyhow::Result<()> {
    if global.json {
        print::json(&report)?;
    } else {
        print::page(&show::demo::text(report))?;
    }
    Ok(())
}
