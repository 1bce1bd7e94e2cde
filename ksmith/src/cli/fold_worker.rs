//! The command `ksmith fold-worker`, which the daemon starts. It is hidden from help.
//!
//! It reads requests from standard input and writes replies to standard output, one line of JSON each. A process may
//! block it for ever: the daemon then kills it.

use std::fs;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ksmith_core::fold::{FoldLook, FoldPass};
use ksmith_core::kernel::KsmStat;
use ksmith_core::reading::Reading;
use ksmith_host::fold::{FoldError, FoldSettings, FoldTarget, fold_hindrance};
use ksmith_host::memory::error::UnreadableProcess;
use ksmith_host::memory::pace::set_idle_priority;
use ksmith_host::own_use::OwnUse;
use ksmith_host::root::Root;
use ksmith_service::folder::protocol::{FoldAction, FoldOutcome, FoldReply, FoldRequest};

use super::GlobalArgs;

/// Look at processes, fold them and put their huge pages together, as the requests on standard input say, until it ends.
#[derive(Debug, Args)]
pub struct FoldWorkerArgs {}

impl FoldWorkerArgs {
    #[allow(clippy::disallowed_methods, reason = "its words go to the ksmith that started it")]
    pub(super) fn run(&self, _global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        prepare();
        let root = Root::host();
        let mut output = std::io::stdout();
        for line in std::io::stdin().lock().lines() {
            let request: FoldRequest = serde_json::from_str(&line?)?;
            let outcome = match fold_hindrance(&root) {
                Some(why) if request.action != FoldAction::Collapse => FoldOutcome::Hindered(why.to_string()),
                _ => serve(&root, &request).unwrap_or_else(|why| outcome_of(&why)),
            };
            let reply = FoldReply { cpu_seconds: OwnUse::now().cpu.as_secs_f64(), outcome };
            let mut text = serde_json::to_string(&reply)?;
            text.push('\n');
            output.write_all(text.as_bytes())?;
            output.flush()?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Takes the idle priority, and has the kernel kill this process when the daemon ends.
fn prepare() {
    set_idle_priority();
    // Each may be forbidden: the daemon ends it then by end of input, or kills it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let _ = fs::write("/proc/self/oom_score_adj", "500");
}

/// Carries out a request.
fn serve(root: &Root, request: &FoldRequest) -> Result<FoldOutcome, FoldError> {
    let target = FoldTarget::open(request.pid)?;
    if target.id().start_ticks != request.start_ticks {
        return Ok(FoldOutcome::Gone);
    }
    let settings = FoldSettings {
        least_zero_permille: request.least_zero_permille,
        cpu_limit: Duration::try_from_secs_f64(request.cpu_limit_seconds).ok(),
        ..FoldSettings::default()
    };
    match request.action {
        FoldAction::Collapse => {
            let cpu_limit = settings.cpu_limit.unwrap_or_default();
            Ok(FoldOutcome::Collapsed(target.collapse_small(root, request.least_zero_permille, cpu_limit)?))
        }
        FoldAction::Look => Ok(FoldOutcome::Looked(sample_process(root, &target, request, &settings)?)),
        FoldAction::Fold => {
            let tally = target.fold(&settings)?;
            let look = sample_process(root, &target, request, &settings)?;
            let pass = FoldPass {
                looked_bytes: tally.looked_bytes,
                freed_bytes: tally.freed_bytes,
                split_pages: tally.split_bytes / look.huge_page_bytes.max(1),
                cpu_seconds: tally.cpu_seconds,
            };
            Ok(FoldOutcome::Folded(pass, look))
        }
    }
}

fn sample_process(
    root: &Root,
    target: &FoldTarget,
    request: &FoldRequest,
    settings: &FoldSettings,
) -> Result<FoldLook, FoldError> {
    let sample = target.sample(request.samples, settings)?;
    // KSM's count comes first: what ksmd adds meanwhile then looks like a fold's, and the ledger bounds that.
    let ksm = root.text(format!("proc/{}/ksm_stat", request.pid)).and_then(|text| KsmStat::parse(&text));
    let ksm_zero_pages = match &ksm {
        Reading::Value(stat) => stat.zero_pages.unwrap_or(0),
        _ => 0,
    };
    Ok(FoldLook {
        ksm_zero_bytes: ksm_zero_pages.saturating_mul(rustix::param::page_size() as u64),
        zero_mapped_bytes: target.zero_mapped_bytes()?,
        huge_bytes: sample.huge_bytes,
        huge_page_bytes: sample.huge_page_size,
        sampled_pages: sample.sampled,
        foldable_pages: sample.foldable,
        zero_bytes: sample.zero_bytes,
    })
}

fn outcome_of(why: &FoldError) -> FoldOutcome {
    match why {
        FoldError::Unreadable(UnreadableProcess::NoSuchProcess | UnreadableProcess::Exited) => FoldOutcome::Gone,
        FoldError::Unreadable(UnreadableProcess::Unanswered(_)) => FoldOutcome::Silent,
        FoldError::Denied => FoldOutcome::Failed(
            "its huge pages may not be split or collapsed: this takes CAP_SYS_NICE and CAP_SYS_PTRACE, which the \
             systemd unit gives with packaging/systemd/options/fold.conf as a drop-in"
                .to_owned(),
        ),
        FoldError::NoCall(_) => FoldOutcome::Hindered(why.to_string()),
        FoldError::NoHeadroom { .. } | FoldError::Unreadable(_) => FoldOutcome::Failed(why.to_string()),
    }
}
