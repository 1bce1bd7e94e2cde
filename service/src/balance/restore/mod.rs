//! Gives guests back the memory that was taken from them, as the ledger has it.

use std::time::Duration;

use super::actuators::{actuator, cgroup_actuator};
use super::ledger::{LedgerEntry, MemoryLedger};
use super::{ActuatorError, GivenBack, LackingGuest, MemoryActuator};
use ksmith_core::units::TimeSpan;
use ksmith_host::guests::{GuestTracker, has_ended};
use ksmith_host::pool::each_within;
use ksmith_host::root::Root;

/// The time limit for all guests together. One takes ten seconds at most, and some may have to wait for others.
const PATIENCE: Duration = Duration::from_secs(30);

impl MemoryLedger {
    /// Gives all guests their whole memory back, all at once, and returns the outcome. Ended guests are removed.
    pub fn restore(&self, root: &Root, dry_run: bool) -> GivenBack {
        let (root, ledger) = (root.clone(), self.clone());
        self.restore_with(dry_run, PATIENCE, move |entry| match &entry.cgroup {
            Some(was) if was.has_ended(&root) => Err(ActuatorError::Gone),
            Some(was) => cgroup_actuator(&root, &was.path, &entry.key, &ledger),
            None => {
                let guests = GuestTracker::new(root.clone(), entry.libvirt.clone().unwrap_or_default());
                let target = guests.target_by_id(entry.process.into()).ok_or_else(|| {
                    match has_ended(&root, entry.process) {
                        true => ActuatorError::Gone,
                        false => ActuatorError::Unable("what it is can't be read".to_owned()),
                    }
                })?;
                actuator(&root, &target, &entry.key, &ledger)
            }
        })
    }

    fn restore_with(
        &self,
        dry_run: bool,
        patience: Duration,
        actuator: impl Fn(&LedgerEntry) -> Result<Box<dyn MemoryActuator>, ActuatorError> + Send + Sync + 'static,
    ) -> GivenBack {
        let entries = self.entries();
        let outcomes = each_within(entries.clone(), patience, move |entry: &LedgerEntry| {
            let mut actuator = actuator(entry)?;
            if dry_run { Ok(entry.whole_bytes) } else { actuator.resize(entry.whole_bytes) }
        });
        let mut all = GivenBack::default();
        for (entry, outcome) in entries.iter().zip(outcomes) {
            let (name, whole) = (&entry.name, entry.whole_bytes >> 20);
            // As its actuator has noted it by now.
            let given = || self.entry(&entry.key, entry.process).map_or(entry.given_bytes, |now| now.given_bytes);
            match outcome {
                Some(Ok(_)) if dry_run => {
                    all.notes.push(format!("{name} would get its {whole} MiB again"));
                    continue;
                }
                Some(Ok(given)) if given >= entry.whole_bytes => {
                    all.notes.push(format!("{name} has its {whole} MiB again"));
                }
                Some(Ok(given)) => {
                    let why = "it takes no more for now: its driver does not follow, or its host has no more";
                    all.lacking.push(LackingGuest::from_entry(entry, given, why.to_owned()));
                    continue;
                }
                Some(Err(ActuatorError::Gone)) => {}
                Some(Err(error)) => {
                    all.lacking.push(LackingGuest::for_error(entry, given(), &error));
                    continue;
                }
                None => {
                    let why = format!("it did not answer within {}", TimeSpan(patience));
                    all.lacking.push(LackingGuest::from_entry(entry, given(), why));
                    continue;
                }
            }
            if !dry_run && let Err(error) = self.strike(&entry.key) {
                all.faults.push(error.to_string());
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
