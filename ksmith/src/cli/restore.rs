//! The command `ksmith restore`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::{CommandFailure, GlobalArgs, amounts, control, print};
use crate::exit;
use ksmith_host::act::{
    KnobWriter, KsmJournal, KsmLock, LockError, RestoreError, RestoreOutcome, StateDir, UndoError, UnmergeOptions,
    restore_within,
};
use ksmith_host::guests::OffList;
use ksmith_host::root::Root;
use ksmith_host::undo::UndoStore;
use ksmith_service::balance::{GivenBack, MemoryLedger};
use ksmith_service::domains::switch_on_again;

/// Undo what a killed ksmith left behind: settings, paused programs, and memory taken from guests.
///
/// ksmith records each change in /run/ksmith/undo.json before it makes the change: the original value of each setting
/// and the last one written, each guest that it switches off, and the memory that it takes from guests. A ksmith that
/// ends restores everything itself, unless SIGKILL or a crash ends it. No configuration is read. Settings come first,
/// then all guests at once. One failure does not keep the rest from being restored. A setting that another program has
/// changed since stays as it is. Memory is given back to each guest, up to the memory that the guest was started with.
///
/// Exits with 1 if something could not be restored, such as a guest's memory, or a setting that needs more memory or
/// time than there is. It says what, why, and what to do, and keeps the record for a later `ksmith restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Say what would be restored, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Restore even while a ksmith is running
    #[arg(long)]
    force: bool,
    /// Give up unmerging after this long, where a setting needs everything unmerged
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = amounts::wait)]
    patience: Duration,
    /// Discard what is recorded about settings: keep it under another name, and change no setting
    #[arg(long, conflicts_with = "dry_run")]
    discard: bool,
}

impl RestoreArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = control::require(global)?;
        let state = StateDir::from_root(&root);
        // Before the journal is read, because a ksmith that starts meanwhile would note what is about to be
        // restored.
        let _lock = if self.dry_run || self.force { None } else { Some(lock(&state)?) };
        if self.discard {
            return discard(global, &state);
        }
        let mut journal = KsmJournal::open_to_restore(&state);
        let damage = journal.take_faults();
        let mut faults: Vec<String> = damage.iter().map(ToString::to_string).collect();
        let was_empty = journal.is_empty();
        let restored = self.settings(&root, journal, &mut faults)?;
        let (notes, memory) = self.guests(&root, &state, &mut faults);
        let notes: Vec<&String> = restored.notes.iter().chain(&notes).chain(&memory.notes).collect();
        let changes: Vec<String> = restored.changes.iter().map(ToString::to_string).collect();
        let left: Vec<&str> = restored.left.iter().map(|(knob, _)| knob.name()).collect();
        let missing = missing(&left, &memory, &faults, &state).map(|message| match damage.first() {
            // It stays damaged, so that a later attempt is useless.
            Some(UndoError::Damaged { .. }) => CommandFailure::impossible(message),
            _ => CommandFailure::with_code(exit::FAILED, message),
        });
        if global.json {
            let whole = serde_json::json!({
                "changes": changes, "notes": notes, "left": left, "lacking": memory.lacking, "failed": faults,
            });
            print::json(&whole)?;
            return missing.map_or(Ok(ExitCode::SUCCESS), |missing| Err(missing.into()));
        }
        let verb = if self.dry_run { "would restore" } else { "restored" };
        for change in &changes {
            print::line(format_args!("{verb} {change}"))?;
        }
        for note in &notes {
            print::line(format_args!("note: {note}"))?;
        }
        match (was_empty && notes.is_empty(), missing.is_none()) {
            (true, true) => print::line("nothing to restore: no ksmith left anything behind")?,
            (false, true) if !self.dry_run => print::line("all settings restored")?,
            _ => {}
        }
        missing.map_or(Ok(ExitCode::SUCCESS), |missing| Err(missing.into()))
    }

    /// Restores the settings, the paused programs and ksmd's CPUs.
    fn settings(
        &self,
        root: &Root,
        journal: KsmJournal,
        faults: &mut Vec<String>,
    ) -> Result<RestoreOutcome, CommandFailure> {
        let how = UnmergeOptions { force: false, patience: self.patience };
        let mut writer = KnobWriter::new(root, self.dry_run).with_journal(journal);
        match restore_within(&mut writer, self.force, how) {
            Ok(restored) => Ok(restored),
            Err(error @ RestoreError::OwnerAlive { .. }) => Err(CommandFailure::impossible(error.to_string())),
            Err(error) => {
                faults.push(error.to_string());
                let RestoreError::Incomplete { restored, .. } = error else { return Ok(RestoreOutcome::default()) };
                Ok(*restored)
            }
        }
    }

    /// Switches on the guests that a daemon switched off, unless guests of different domains could then merge.
    /// Returns to all guests the memory that was taken from them.
    fn guests(&self, root: &Root, state: &StateDir, faults: &mut Vec<String>) -> (Vec<String>, GivenBack) {
        let (off, of_switches) = OffList::open_to_restore(state);
        let (ledger, of_memory) = MemoryLedger::open_to_restore(state);
        for why in of_switches.into_iter().chain(of_memory) {
            faults.push(format!("an entry of {} is not understood: {why}", state.undo().display()));
        }
        let mut notes = off.restore(root, |guest| guest.why.is_of_pruning(), self.dry_run);
        notes.extend(switch_on_again(root, &off, self.dry_run));
        let mut memory = ledger.restore(root, self.dry_run);
        faults.append(&mut memory.faults);
        (notes, memory)
    }
}

/// Returns a message on everything that was not restored, with what to do; `None` if all was.
fn missing(left: &[&str], memory: &GivenBack, faults: &[String], state: &StateDir) -> Option<String> {
    let settings = left.iter().map(|name| format!("{name} needs everything unmerged, see above"));
    let guests = memory.lacking.iter().map(ToString::to_string);
    let all: Vec<String> = settings.chain(guests).chain(faults.iter().cloned()).collect();
    (!all.is_empty()).then(|| {
        format!(
            "not everything was restored: {}. It stays recorded in {}: correct that, and run `ksmith restore` \
            again",
            all.join("; "),
            state.path().display()
        )
    })
}

fn lock(state: &StateDir) -> anyhow::Result<KsmLock> {
    KsmLock::acquire(state).map_err(|error| match error {
        LockError::Held { pid: Some(pid) } => {
            CommandFailure::impossible(RestoreError::OwnerAlive { pid }.to_string()).into()
        }
        error @ LockError::Held { pid: None } => CommandFailure::impossible(error.to_string()).into(),
        error => error.into(),
    })
}

fn discard(global: &GlobalArgs, state: &StateDir) -> anyhow::Result<ExitCode> {
    let aside = UndoStore::new(state).discard()?;
    if global.json {
        print::json(&serde_json::json!({ "discarded": aside }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match aside {
        Some(aside) => print::line(format_args!("the journal is discarded; it is kept as {}", aside.display()))?,
        None => print::line("there is no journal to discard")?,
    }
    Ok(ExitCode::SUCCESS)
}
