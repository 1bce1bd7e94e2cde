//! New memory beside much old memory: the schedule of its passes, and the decision whether a clean pass follows.
//!
//! Most pages of a new guest that merge are equal to pages that are merged already, or to those of other new guests.
//! Two smart passes merge both, and skip most old pages. Only contents that one old page alone holds need a clean pass,
//! which costs several times as much. Whether there are such contents shows in the new guests: if they merged as large
//! a part of their memory as old guests have merged, there is little to be found.
//!
//! Guests that arrive close together share their two passes. Waiting costs what the guests that are there could save:
//! `gain * wait`. Let `K = cost of two passes * price * horizon_seconds`, and let new memory be able to save `rate`
//! bytes more each second. Then passes every `sqrt(2 * K / rate)` seconds cost least in all. By then
//! `gain = sqrt(2 * K * rate)` has gathered, which is the threshold. If arrivals stay away, passes start once waiting has
//! cost as much as they do.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::beliefs::ClassBelief;
use super::guests::{GuestChanges, GuestMarks};
use super::probability::MergeProbability;
use super::situation::{HostSituation, ProcessHolding};
use super::sketched::{self, ArrivalEstimate};
use super::text;
use crate::sample::{ByteEstimate, ProcessId};
use crate::scan::ScanOutcome;

/// The estimate of new memory and of the part of it that merges.
#[derive(Debug, Clone)]
pub struct ArrivalModel {
    /// New bytes in each second, an exponential average.
    rate: f64,
    /// New bytes at the last sample, and when that was taken.
    last: (u64, Duration),
    /// Bytes times seconds that waiting has cost.
    waited: f64,
    /// The part of their memory that guests merge.
    part: f64,
    /// Bytes of each guest when a clean pass last visited it.
    met: FxHashMap<ProcessId, u64>,
    /// The part of what guests lack that a clean pass brings.
    probability: MergeProbability,
    /// The same where sketches say what it brings.
    sketched_probability: MergeProbability,
    /// Bytes that the guests lacked when the present clean pass began, and true if sketches gave the figure.
    lacked: (f64, bool),
    sketched: ArrivalEstimate,
    /// The estimate by sketches at the last [`ArrivalModel::estimate_unmet`] of the bytes that only a clean pass merges.
    unmet: Option<ByteEstimate>,
}

impl Default for ArrivalModel {
    fn default() -> Self {
        Self {
            rate: 0.0,
            last: (0, Duration::ZERO),
            waited: 0.0,
            part: 1.0,
            met: FxHashMap::default(),
            probability: MergeProbability::expecting(1.0),
            sketched_probability: MergeProbability::expecting(1.0),
            lacked: (0.0, false),
            sketched: ArrivalEstimate::default(),
            unmet: None,
        }
    }
}

impl ArrivalModel {
    /// Records the changes at the next sample.
    pub fn follow(&mut self, changes: GuestChanges, guests: &GuestMarks, now: &HostSituation) {
        if Self::skips_old(changes, now) {
            self.sketched.follow(guests, now);
        }
        self.part = self.merging_part(guests, now);
        let (before, at) = std::mem::replace(&mut self.last, (changes.grown_bytes, now.ksmd.at));
        let seconds = now.ksmd.at.saturating_sub(at).as_secs_f64();
        let rate_seconds = now.constants.rate_seconds;
        let kept = (-seconds / rate_seconds).exp();
        self.rate = self.rate * kept + changes.grown_bytes.saturating_sub(before) as f64 / rate_seconds;
        if changes.grown_bytes == 0 {
            self.waited = 0.0;
        } else {
            self.waited += self.gain(changes) * seconds.min(rate_seconds);
        }
        if self.met.len() > 2 * now.processes.len() {
            self.met.retain(|id, _| now.processes.iter().any(|holding| holding.id == *id));
        }
    }

    /// Returns true if new memory is given smart passes first, which skip most old memory. That is so if old memory is
    /// expensive to visit, or if skipping pays and sketches tell what was missed.
    pub fn skips_old(changes: GuestChanges, now: &HostSituation) -> bool {
        Self::is_dear(now) || now.sketches.is_some() && Self::skipping_pays(changes, now)
    }

    /// Returns true if a visit of all old memory for new guests has to bring more than the least that is worth a scan.
    ///
    /// Most of what new guests merge with is merged, and of the rest their sketches tell. What old guests grow by, as
    /// page cache, is more often equal to what one other holds.
    pub fn skipping_pays(changes: GuestChanges, now: &HostSituation) -> bool {
        let least = now.growth_bytes as f64 * now.constants.small_part;
        let old_part = 1.0 - (changes.grown_bytes as f64 / now.held_bytes.max(1) as f64).min(1.0);
        let price = Self::skipping_saves(now) * old_part * now.price;
        let is_for_new_guests = changes.grown_bytes > 0 && (changes.settled_bytes as f64) < least;
        is_for_new_guests && price >= least
    }

    /// Returns true if passes cost so much that guests that arrive close together share them.
    pub fn is_dear(now: &HostSituation) -> bool {
        Self::skipping_saves(now) >= now.constants.dear_seconds
    }

    /// CPU-seconds by which a clean pass costs more than a smart one once most pages are old.
    fn skipping_saves(now: &HostSituation) -> f64 {
        now.ksmd.clean_pass_seconds - now.smart_pass_seconds()
    }

    /// Records that passes for all new memory begin: it waits no more.
    pub fn note_start(&mut self) {
        self.waited = 0.0;
    }

    /// Returns the gain of the passes for new memory divided by their cost, waiting for others included.
    pub fn worth(&self, changes: GuestChanges, now: &HostSituation) -> f64 {
        let price = now.smart_passes_seconds(2) * now.price * now.constants.horizon_seconds;
        let gain = self.gain(changes);
        (gain / (2.0 * price * self.rate * self.part).sqrt()).max(self.waited / price)
    }

    /// Returns the bytes that merging new memory is expected to save: the estimate by sketches for new guests, and
    /// `merging_part` of the rest.
    fn gain(&self, changes: GuestChanges) -> f64 {
        let grown = changes.grown_bytes as f64;
        let (known, merging) = self
            .sketched
            .arriving()
            .map_or((0.0, 0.0), |arriving| (arriving.bytes, arriving.merging.bytes.min(arriving.bytes)));
        merging + (grown - known).max(0.0) * self.part
    }

    /// Estimates by sketches what guests lack for which old memory was skipped. It takes a while, and is done once when
    /// a scan has ended.
    pub fn estimate_unmet(&mut self, guests: &GuestMarks, now: &HostSituation) {
        self.unmet = sketched::unmet(guests, &self.met, now);
    }

    /// Returns true if sketches gave an estimate of what only a clean pass merges at the last [`ArrivalModel::estimate_unmet`].
    pub fn knows_unmet(&self) -> bool {
        self.unmet.is_some()
    }

    /// Returns the belief about what guests lack and a clean pass may bring.
    pub fn unmet(&self, guests: &GuestMarks, now: &HostSituation) -> ClassBelief {
        let (bytes, probability) = match self.unmet {
            Some(unmet) => (unmet.bytes, self.sketched_probability),
            None => (self.lack(guests, now), self.probability),
        };
        ClassBelief { bytes, probability, lifetime_part: 1.0 }
    }

    /// Records that a clean pass starts.
    pub fn note_clean_start(&mut self, guests: &GuestMarks, now: &HostSituation) {
        self.lacked = match self.unmet {
            Some(unmet) => (unmet.bytes, true),
            None => (self.lack(guests, now), false),
        };
    }

    /// Records that a clean pass has ended: it has visited all guests that were visited before.
    pub fn note_clean_end(&mut self, guests: &GuestMarks) {
        self.met = guests.visited().collect();
    }

    /// Compares what a clean pass brought with what guests had lacked. Comes after [`ArrivalModel::estimate_unmet`].
    pub fn learn(&mut self, outcome: &ScanOutcome) {
        let (lacked, is_sketched) = self.lacked;
        if lacked <= 0.0 {
            return;
        }
        match self.unmet.filter(|_| is_sketched) {
            // What is saved also changes with guests that come and go.
            Some(left) => self.sketched_probability.learn(1.0 - left.bytes / lacked, 1.0),
            None if is_sketched => {}
            None => self.probability.learn(outcome.saved_bytes as f64 / lacked, 1.0),
        }
    }

    /// Describes the estimate by sketches of what only a clean pass merges; `None` if there is none.
    pub fn in_words(&self) -> Option<String> {
        self.unmet.map(text::unmet)
    }

    /// The part of their memory that guests have merged which a clean pass has visited. `prior_guests` that merge
    /// wholly are added, so that a few guests do not decide alone.
    ///
    /// Where there are sketches, clean passes are rare, and all guests count that ksmd has visited.
    fn merging_part(&self, guests: &GuestMarks, now: &HostSituation) -> f64 {
        let is_met = |holding: &&ProcessHolding| {
            self.met.contains_key(&holding.id) || now.sketches.is_some() && guests.has_visited(holding.id)
        };
        let (merged, bytes) = now.processes.iter().filter(is_met).fold((0.0, 0.0), |(merged, bytes), holding| {
            (merged + holding.merged_bytes(now.ksmd.page_size), bytes + holding.bytes as f64)
        });
        let prior = now.constants.prior_guests * now.held_bytes as f64 / now.processes.len().max(1) as f64;
        ((merged + prior) / (bytes + prior).max(1.0)).min(1.0)
    }

    /// Bytes that guests which were visited twice seem to lack: `max(0, merging_part * bytes - merged_bytes)`, at most
    /// the bytes that no clean pass has visited, of each guest for which that is much.
    fn lack(&self, guests: &GuestMarks, now: &HostSituation) -> f64 {
        let part = self.merging_part(guests, now);
        let of_one = |holding: &ProcessHolding| {
            let met = self.met.get(&holding.id).copied().unwrap_or(0);
            let new = holding.bytes.saturating_sub(met) as f64;
            (part * holding.bytes as f64 - holding.merged_bytes(now.ksmd.page_size)).clamp(0.0, new)
        };
        let is_much = |(lack, holding): &(f64, &ProcessHolding)| {
            *lack >= holding.bytes as f64 * now.constants.noticeable_part
        };
        let visited = now.processes.iter().filter(|holding| guests.has_visited(holding.id));
        visited.map(|holding| (of_one(holding), holding)).filter(is_much).map(|(lack, _)| lack).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// A host with guests that hold and have merged so many GiB, with a clean pass of 100 seconds and a price of a GiB.
    fn host(at: u64, guests: &[(u32, u64, u64)]) -> HostSituation {
        let processes: Vec<_> = guests
            .iter()
            .map(|(pid, bytes, merged)| ProcessHolding {
                id: ProcessId { pid: *pid, start_ticks: 1 },
                bytes: bytes * GIB,
                cpu_ticks: 0,
                minor_faults: 0,
                merged_pages: merged * GIB / 4096,
            })
            .collect();
        HostSituation::for_test(Duration::from_secs(at), 100.0, GIB as f64 / 1000.0, processes)
    }

    fn visited(host: &HostSituation) -> GuestMarks {
        let mut guests = GuestMarks::default();
        guests.mark(&host.processes);
        guests
    }

    fn clean_pass_pays(arrivals: &ArrivalModel, guests: &GuestMarks, now: &HostSituation) -> bool {
        arrivals.unmet(guests, now).most() >= now.ksmd.clean_pass_seconds * now.price
    }

    fn grown(gib: u64) -> GuestChanges {
        GuestChanges { new_guests: 1, grown_bytes: gib * GIB, ..GuestChanges::default() }
    }

    #[test]
    fn old_memory_is_skipped_for_new_guests_where_to_visit_it_costs_more_than_a_scan_has_to_bring() {
        let skips = |changes, clean_pass_seconds, price_mib: f64| {
            let mut now = host(0, &[(1, 100, 40)]);
            now.ksmd.clean_pass_seconds = clean_pass_seconds;
            (now.price, now.unmerged_pages) = (price_mib * f64::from(1 << 20), 0);
            ArrivalModel::skipping_pays(changes, &now)
        };
        // A burst has to be for 4 MiB, and other scans for one. Skipping saves eight ninths of a pass.
        let new = grown(1);
        assert!(skips(new, 0.2, 8.0));
        assert!(!skips(new, 0.1, 8.0), "a pass is cheap");
        assert!(!skips(new, 0.2, 0.5), "the host is short of memory");
        assert!(!skips(grown(99), 0.2, 8.0), "nearly all memory is new");
        assert!(!skips(GuestChanges { settled_bytes: 1 << 20, ..new }, 0.2, 8.0), "old guests have grown too");
        assert!(!skips(GuestChanges::default(), 0.2, 8.0), "nothing is new");
        let skips_old = |changes, clean_pass_seconds| {
            let mut now = host(0, &[(1, 100, 40)]);
            now.ksmd.clean_pass_seconds = clean_pass_seconds;
            (now.price, now.unmerged_pages) = (f64::from(8 << 20), 0);
            ArrivalModel::skips_old(changes, &now)
        };
        assert!(!skips_old(new, 0.2), "there are no sketches");
        assert!(skips_old(GuestChanges { settled_bytes: GIB, ..new }, 3.0), "it is dear");
    }

    #[test]
    fn arrivals_that_are_frequent_are_waited_for_and_a_rare_one_is_not() {
        let wait = |every: u64| {
            let mut arrivals = ArrivalModel::default();
            let mut new = 0;
            for second in 0..7200 {
                let now = host(second, &[(1, 100, 40)]);
                new += u64::from(second % every == 0);
                arrivals.follow(grown(new), &GuestMarks::default(), &now);
                if new > 0 && arrivals.worth(grown(new), &now) >= 1.0 {
                    if second > 3600 {
                        return new;
                    }
                    new = 0;
                    arrivals.follow(GuestChanges::default(), &GuestMarks::default(), &now);
                }
            }
            panic!("passes are never due");
        };
        assert_eq!(wait(3000), 1);
        assert!(wait(3) > 1, "{}", wait(3));
        assert!(wait(1) > wait(3), "{}", wait(1));
    }

    #[test]
    fn however_little_is_new_its_passes_are_due_in_the_end() {
        let mut arrivals = ArrivalModel::default();
        let little = GuestChanges { grown_bytes: GIB / 64, ..GuestChanges::default() };
        let busy = grown(64);
        arrivals.follow(busy, &GuestMarks::default(), &host(0, &[(1, 100, 40)]));
        let is_due = (1..100_000).any(|second| {
            let now = host(second, &[(1, 100, 40)]);
            arrivals.follow(little, &GuestMarks::default(), &now);
            arrivals.worth(little, &now) >= 1.0
        });
        assert!(is_due);
    }

    #[test]
    fn what_is_new_after_passes_have_begun_has_not_waited_while_they_ran() {
        let mut arrivals = ArrivalModel::default();
        let little = GuestChanges { grown_bytes: GIB / 64, ..GuestChanges::default() };
        arrivals.follow(grown(1000), &GuestMarks::default(), &host(0, &[(1, 100, 40)]));
        for second in 1..100 {
            arrivals.follow(grown(64), &GuestMarks::default(), &host(second, &[(1, 100, 40)]));
        }
        let now = host(100, &[(1, 100, 40)]);
        assert!(arrivals.worth(little, &now) >= 1.0);
        arrivals.note_start();
        assert!(arrivals.worth(little, &now) < 1.0);
    }

    #[test]
    fn smart_passes_that_visit_all_young_pages_have_to_be_worth_more() {
        let mut arrivals = ArrivalModel::default();
        let mut now = host(0, &[(1, 100, 40)]);
        arrivals.follow(grown(10), &GuestMarks::default(), &now);
        let of_old = arrivals.worth(grown(1), &now);
        now.young_passes = 2;
        assert!(now.smart_passes_seconds(1) == 100.0 && now.smart_passes_seconds(2) == 200.0);
        assert!(now.smart_passes_seconds(3) > 200.0 && now.smart_passes_seconds(3) < 250.0);
        assert!(arrivals.worth(grown(1), &now) < of_old / 2.0);
    }

    #[test]
    fn new_guests_that_merged_as_much_as_old_ones_need_no_clean_pass() {
        let mut arrivals = ArrivalModel::default();
        let old: Vec<_> = (1..9).map(|pid| (pid, 10, 4)).collect();
        arrivals.note_clean_end(&visited(&host(0, &old)));
        let with = |merged| host(1, &[&old[..], &[(9, 10, merged)]].concat());
        assert!(!clean_pass_pays(&arrivals, &visited(&with(4)), &with(4)));
        assert!(clean_pass_pays(&arrivals, &visited(&with(1)), &with(1)));
        assert!(!clean_pass_pays(&arrivals, &visited(&host(0, &old)), &with(0)), "it has not been visited yet");
    }

    #[test]
    fn clean_passes_that_bring_nothing_are_made_no_more_until_more_is_at_stake() {
        let mut arrivals = ArrivalModel::default();
        let old: Vec<_> = (1..9).map(|pid| (pid, 10, 4)).collect();
        arrivals.note_clean_end(&visited(&host(0, &old)));
        let with = |guests: u32| {
            let new = (0..guests).map(|pid| (100 + pid, 10, 1));
            host(1, &old.iter().copied().chain(new).collect::<Vec<_>>())
        };
        for _ in 0..6 {
            arrivals.note_clean_start(&visited(&with(1)), &with(1));
            arrivals.learn(&ScanOutcome { saved_bytes: 0, cpu_seconds: 100.0 });
        }
        assert!(!clean_pass_pays(&arrivals, &visited(&with(1)), &with(1)));
        assert!(clean_pass_pays(&arrivals, &visited(&with(40)), &with(40)));
        arrivals.note_clean_start(&visited(&with(1)), &with(1));
        arrivals.learn(&ScanOutcome { saved_bytes: 10 << 30, cpu_seconds: 100.0 });
        assert!(clean_pass_pays(&arrivals, &visited(&with(1)), &with(1)), "it has brought something again");
    }
}
