//! Sums over the living guests, kept up to date, so that a sample of a thousand guests is cheap.

use super::guest::MachineGuest;

/// The living guests, and sums over them.
#[derive(Debug, Clone, Default)]
pub(super) struct LivingGuests {
    /// Their ids, ascending.
    pub ids: Vec<u32>,
    /// The runs of pages that they hold.
    pub runs: u64,
    /// The CPU time of their writes.
    write_ns: u64,
    /// The sum of their loads, in thousandths of a CPU.
    load_permille: u64,
    /// The sum of load times start, in thousandths of a nanosecond.
    load_started: u128,
}

impl LivingGuests {
    pub fn add(&mut self, id: u32, guest: &MachineGuest) {
        self.ids.push(id);
        self.runs += guest.present();
        self.write_ns += guest.write_ns;
        self.load(guest.load_permille, guest.started_ns);
    }

    /// Adds the load of a guest that started at `started_ns`.
    pub fn load(&mut self, permille: u32, started_ns: u64) {
        self.load_permille += u64::from(permille);
        self.load_started += u128::from(permille) * u128::from(started_ns);
    }

    pub fn remove(&mut self, id: u32, guest: &MachineGuest) {
        if let Ok(at) = self.ids.binary_search(&id) {
            self.ids.remove(at);
        }
        self.runs -= guest.present();
        self.write_ns -= guest.write_ns;
        self.load_permille -= u64::from(guest.load_permille);
        self.load_started -= u128::from(guest.load_permille) * u128::from(guest.started_ns);
    }

    /// Counts runs that a guest has got.
    pub fn grow(&mut self, runs: u64) {
        self.runs += runs;
    }

    /// Counts a run that a guest has given up.
    pub fn shrink(&mut self) {
        self.runs -= 1;
    }

    /// Counts the CPU time of a write.
    pub fn write(&mut self, cost_ns: u64) {
        self.write_ns += cost_ns;
    }

    /// The CPU time that they have used until `now_ns`.
    pub fn cpu_ns(&self, now_ns: u64) -> u64 {
        let load = (u128::from(now_ns) * u128::from(self.load_permille)).saturating_sub(self.load_started) / 1000;
        self.write_ns.saturating_add(u64::try_from(load).unwrap_or(u64::MAX))
    }
}
