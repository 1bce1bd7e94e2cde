//! Memory in huge pages under the daemon's defaults: what is said to be saved stays true while khugepaged hurries, and all
//! settings are restored.

use rustix::process::Signal;

use crate::fold_stress::restorer::hurry_khugepaged;
use crate::huge_pages::{has_khugepaged, held, khugepaged};
use crate::merge_readings::{SIZE, pss, start_programs, sum, tolerance};
use crate::scripted::ScriptedProgram;
use crate::support::program::{RunningProgram, ksmith, status};
use crate::support::{KernelLock, number, skipped, wait_until};

fn saved() -> u64 {
    status().and_then(|status| status["saved_bytes"].as_u64()).unwrap()
}

/// A daemon with two programs that it has merged.
struct MergedPrograms {
    daemon: RunningProgram,
    programs: [ScriptedProgram; 2],
    /// PSS of the programs before.
    before: u64,
}

impl MergedPrograms {
    /// Waits until the daemon has parked ksmd, and says what is saved. `None` where [`start_programs`] gives none.
    fn start() -> Option<Self> {
        let programs = start_programs()?;
        let before = pss(&programs);
        let daemon = RunningProgram::daemon("", &[]);
        let merged = Self { daemon, programs, before };
        wait_until("they are merged, and it is said", || {
            let (freed, saved) = merged.freed_and_saved();
            number("run") == 0 && freed > SIZE / 5 && saved.abs_diff(freed) <= tolerance(freed)
        });
        Some(merged)
    }

    /// Returns what PSS has lost, and what is said to be saved.
    fn freed_and_saved(&self) -> (u64, u64) {
        (self.before.saturating_sub(pss(&self.programs)), saved())
    }

    fn merged_bytes(&self) -> u64 {
        sum(&self.programs, |sums| sums.ksm)
    }
}

#[test]
fn by_default_what_is_said_to_be_saved_is_true_at_each_sample_while_khugepaged_hurries() {
    let Some(lock) = KernelLock::acquire() else { return };
    if !has_khugepaged() {
        return;
    }
    let before = held();
    let Some(mut merged) = MergedPrograms::start() else { return };
    assert_eq!(held(), (0, 0), "{}", merged.daemon.log());
    let kept = merged.merged_bytes();
    {
        let Some(_hurried) = hurry_khugepaged() else { return skipped("khugepaged can't be hurried") };
        let walks = khugepaged("full_scans");
        // The walk under way may have begun before.
        wait_until("khugepaged has gone over all memory several times", || {
            let (freed, saved) = merged.freed_and_saved();
            assert!(saved.abs_diff(freed) <= tolerance(freed), "{freed} freed by PSS, {saved} said to be saved");
            khugepaged("full_scans") >= walks + 6
        });
    }
    assert!(merged.merged_bytes() >= kept / 100 * 95, "{} of {kept} bytes are merged", merged.merged_bytes());
    merged.daemon.signal(Signal::TERM);
    assert_eq!(merged.daemon.wait().code(), Some(0), "{}", merged.daemon.log());
    assert_eq!((held(), lock.changed_settings()), (before, Vec::new()));
}

#[test]
fn by_default_a_killed_daemon_leaves_settings_that_restore_restores() {
    let Some(lock) = KernelLock::acquire() else { return };
    if !has_khugepaged() {
        return;
    }
    let before = held();
    let Some(MergedPrograms { daemon, programs, .. }) = MergedPrograms::start() else { return };
    daemon.kill();
    assert_eq!(held(), (0, 0), "nothing is restored yet");
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("restored max_ptes_shared 0 -> 256") && out.contains("max_ptes_none 0 -> 511"), "{out}");
    assert_eq!((held(), lock.changed_settings()), (before, Vec::new()));
    drop(programs);
}
