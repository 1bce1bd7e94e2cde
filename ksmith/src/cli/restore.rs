//! The command `ksmith restore`.

use std::process::ExitCode;

use clap::Args;

use super::{Failure, Global, control, exit, print};
use ksmith_host::act::{Journal, Lock, LockError, RestoreError, StateDir, Writer, restore};
use ksmith_host::guests::{OffList, Why};
use ksmith_host::root::Root;
use ksmith_host::undo::UndoStore;
use ksmith_service::balance::{GivenBack, Lacking, Ledger};
use ksmith_service::config::Config;
use ksmith_service::domains::switch_on_again;

/// Undo what a killed ksmith left behind: settings, paused programs, and memory taken from guests.
///
/// ksmith notes each change in /run/ksmith/undo.json before it makes the change: the first value of each setting, each
/// guest that it switches off, and the memory that it takes from guests. A ksmith that ends restores everything
/// itself, unless it is ended by SIGKILL or a fault of its own, such as SIGSEGV. Memory is given back to each guest, up to the memory that the guest was started with.
///
/// Ends with 1 if something could not be restored, and says what, why, and what to do: a guest without all its
/// memory, or a setting that needs more memory than is available. It stays noted, for a later `ksmith restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Say what would be restored, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Restore even while a ksmith is running
    #[arg(long)]
    force: bool,
    /// Discard what is noted about settings: keep it under another name, and change no setting
    #[arg(long, conflicts_with = "dry_run")]
    discard: bool,
}

impl RestoreArgs {
    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let root = control::require(global)?;
        let state = StateDir::of(&root);
        // Before the journal is read, because a ksmith that starts meanwhile would note what is about to be
        // restored.
        let _lock = if self.dry_run || self.force { None } else { Some(lock(&state)?) };
        if self.discard {
            return discard(global, &state);
        }
        let journal = Journal::open(&state)?;
        let was_empty = journal.is_empty();
        let mut writer = Writer::new(&root, self.dry_run).with_journal(journal);
        let restored = restore(&mut writer, self.force).map_err(|error| match error {
            RestoreError::OwnerAlive { .. } => anyhow::Error::from(Failure::impossible(error.to_string())),
            error => error.into(),
        })?;
        let mut restored = restored;
        let memory = self.guests(global, &root, &mut restored.notes)?;
        restored.notes.extend(memory.notes);
        let was_empty = was_empty && restored.notes.is_empty() && memory.lacking.is_empty();
        let changes: Vec<String> = restored.changes.iter().map(ToString::to_string).collect();
        let left: Vec<&str> = restored.left.iter().map(|(knob, _)| knob.name()).collect();
        let missing = missing(&left, &memory.lacking, &memory.faults, &state);
        if global.json {
            let whole = serde_json::json!({
                "changes": changes, "notes": restored.notes, "left": left, "lacking": memory.lacking,
            });
            print::json(&whole)?;
            return missing.map_or(Ok(ExitCode::SUCCESS), |missing| Err(missing.into()));
        }
        let verb = if self.dry_run { "would restore" } else { "restored" };
        for change in &changes {
            print::line(format_args!("{verb} {change}"))?;
        }
        for note in &restored.notes {
            print::line(format_args!("note: {note}"))?;
        }
        match (was_empty, restored.left.is_empty()) {
            (true, _) => print::line("nothing to restore: no ksmith left anything behind")?,
            (false, true) if !self.dry_run => print::line("all settings restored")?,
            _ => {}
        }
        missing.map_or(Ok(ExitCode::SUCCESS), |missing| Err(missing.into()))
    }

    /// Switches on the guests that a daemon switched off, unless guests of different domains could then merge.
    /// Gives guests back the memory that was taken from them.
    fn guests(&self, global: &Global, root: &Root, notes: &mut Vec<String>) -> anyhow::Result<GivenBack> {
        let config = Config::load(global.config.as_deref())?;
        let (off, libvirt) = (OffList::open(&StateDir::of(root))?, &config.guests.libvirt_uri);
        notes.extend(off.restore(root, libvirt, Why::Prune, self.dry_run));
        notes.extend(switch_on_again(root, &off, config.domains.on_exit, libvirt, self.dry_run));
        Ok(Ledger::open(&StateDir::of(root))?.restore(root, libvirt, self.dry_run))
    }
}

/// Says what was not restored, for which guest, and what to do.
fn missing(left: &[&str], lacking: &[Lacking], faults: &[String], state: &StateDir) -> Option<Failure> {
    let settings = left.iter().map(|name| format!("{name} needs more memory than there is, see above"));
    let guests = lacking.iter().map(ToString::to_string);
    let all: Vec<String> = settings.chain(guests).chain(faults.iter().cloned()).collect();
    (!all.is_empty()).then(|| {
        Failure::with_code(
            exit::FAILED,
            format!(
                "not everything was put back: {}. It stays noted in {}: see to that and run ksmith restore again",
                all.join("; "),
                state.path().display()
            ),
        )
    })
}

fn lock(state: &StateDir) -> anyhow::Result<Lock> {
    Lock::take(state).map_err(|error| match error {
        LockError::Held { pid: Some(pid) } => {
            Failure::impossible(RestoreError::OwnerAlive { pid }.to_string()).into()
        }
        error @ LockError::Held { pid: None } => Failure::impossible(error.to_string()).into(),
        error => error.into(),
    })
}

fn discard(global: &Global, state: &StateDir) -> anyhow::Result<ExitCode> {
    let aside = UndoStore::new(state).discard()?;
    if global.json {
        print::json(&serde_json::json!({ "discarded": aside.first(), "files": aside }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if aside.is_empty() {
        print::line("there is no journal to give up")?;
    }
    for aside in aside {
        print::line(format_args!("the journal is given up; it is kept as {}", aside.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
