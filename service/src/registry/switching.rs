//! The guests that the registry switches: those that are not worth merging, and those with diverging pages.

use ksmith_core::decide::{
    DecisionReason, PrunableGuest, PruneCircumstances, PruneGround, PruneOrder, SHORT_PERCENT,
};
use ksmith_core::guest::{Guest, GuestId, SwitchOffReason};
use ksmith_core::kernel::RunState;
use ksmith_core::sample::{ProcessForecast, Sample};
use ksmith_host::act::UnmergeHeadroom;
use ksmith_host::guests::{GuestSnapshot, GuestTarget, OffList};
use ksmith_host::root::Root;
use tracing::{info, warn};

use super::switches::{Done, SwitchOrderError, order as order_switch};
use super::worker::RegistryWorker;

impl RegistryWorker {
    pub(super) fn prune(&mut self, sample: &Sample, snapshot: &GuestSnapshot) {
        self.now = sample.at;
        let may_offer = self.may_offer();
        let (Some(prune), Some(off)) = (&mut self.prune, &self.off) else { return };
        let host = PruneCircumstances {
            full_scans: sample.ksm.full_scans.get().unwrap_or(0),
            is_parked: sample.ksm.run_state() != Some(RunState::Running),
            is_short: self.shortage.record_sample(sample, SHORT_PERCENT).is_none(),
        };
        // A guest that is off because of its trust domain stays off, whatever merging it would save.
        let outside: Vec<GuestId> =
            off.listed(SwitchOffReason::Domain).iter().map(|guest| guest.process.into()).collect();
        let targets: Vec<(&Guest, GuestTarget)> = snapshot
            .list
            .guests
            .iter()
            .filter(|guest| !outside.contains(&guest.id()))
            .filter_map(|guest| Some((guest, snapshot.target(guest)?)))
            .filter(|(_, target)| target.check(false).is_ok())
            .collect();
        let candidates: Vec<PrunableGuest> = targets.iter().map(|(guest, _)| prunable(guest, sample)).collect();
        for order in prune.decide(sample.at, host, &candidates) {
            let PruneOrder { id, on, ground, .. } = order;
            let Some((guest, target)) = targets.iter().find(|(_, target)| target.id == id) else { continue };
            let ready = match on {
                true if !may_offer => Err(SwitchOrderError::Exposed),
                true => Ok(()),
                false => prepare_to_unmerge(&self.root, guest, target, off, reason_of(ground)),
            };
            match ready.and_then(|()| order_switch(&mut self.switches, target.clone(), on)) {
                Ok(()) => {
                    let text = format!("{} (pid {}): {order}", target.name, id.pid());
                    info!("{text}");
                    let state = if on { "on" } else { "off" };
                    // A history that is written too slowly lacks it; the log has it.
                    let _ = self.notes.try_send(DecisionReason::new(state, text));
                }
                Err(why) => {
                    warn!("{} (pid {}): merging stays as it is: {why}", target.name, id.pid());
                    prune.record_outcome(id, sample.at, false);
                }
            }
        }
    }

    /// Switches off one guest for balance. It is switched on again when the daemon ends.
    pub(super) fn switch_off(&mut self, key: &str) {
        let snapshot = self.last();
        let found = snapshot.list.guests.iter().find(|guest| key.parse() == Ok(guest.id()));
        let target = found.and_then(|guest| Some((guest, snapshot.target(guest)?)));
        let (Some((guest, target)), Some(off)) = (target, &self.off) else { return };
        let ready = target.check(false).map_err(SwitchOrderError::from);
        let ready =
            ready.and_then(|()| prepare_to_unmerge(&self.root, guest, &target, off, SwitchOffReason::Prune));
        match ready.and_then(|()| order_switch(&mut self.switches, target.clone(), false)) {
            Ok(()) => info!("{} (pid {}): merging off: its pages diverge", target.name, target.id.pid()),
            Err(why) => warn!("{}: merging stays on: {why}", target.name),
        }
    }

    pub(super) fn settle(&mut self, (target, on, outcome): Done) {
        if let Err(error) = &outcome {
            warn!("{error}");
        }
        self.guests.ask_again(target.id);
        if let Some(prune) = &mut self.prune {
            prune.record_outcome(target.id, self.now, outcome.is_ok());
        }
        // A switch-off that failed half way stays on the list: some of its memory may be off.
        if on
            && outcome.is_ok()
            && let Some(off) = &self.off
            && let Err(error) = off.remove_processes(&[target.id.process()].into())
        {
            warn!("{error}");
        }
    }
}

fn prunable(guest: &Guest, sample: &Sample) -> PrunableGuest {
    let is_its_own = |part: &&ProcessForecast| guest.processes.iter().any(|id| id.pid == part.pid);
    let parts = sample.process_forecasts.iter().filter(is_its_own).map(|part| part.forecast);
    PrunableGuest {
        id: guest.id(),
        profit_bytes: guest.figures.profit_bytes,
        saved_bytes: guest.figures.saved_bytes,
        split_bytes: guest.figures.known(guest.split.map(|split| split.bytes)).flatten(),
        forecast: parts.reduce(|sum, part| sum.plus(&part)),
        // A kernel that says no is right; one that says yes may mean the firmware.
        offered: guest.offered.or(guest.mergeable.filter(|mergeable| !mergeable)),
        obstacle: guest.lasting_obstacle().map(str::to_owned),
    }
}

/// Checks that the host can hold what is unmerged, and notes the guest on disk for a later ksmith.
fn prepare_to_unmerge(
    root: &Root,
    guest: &Guest,
    target: &GuestTarget,
    off: &OffList,
    why: SwitchOffReason,
) -> Result<(), SwitchOrderError> {
    UnmergeHeadroom::for_guest(root, guest.figures.counted_merged_bytes()).check()?;
    Ok(off.note_pruned(target, why)?)
}

fn reason_of(ground: PruneGround) -> SwitchOffReason {
    match ground {
        PruneGround::Splits => SwitchOffReason::Splits,
        PruneGround::Loss | PruneGround::Obstacle => SwitchOffReason::Prune,
    }
}
