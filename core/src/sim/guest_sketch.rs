//! Reading simulated guests for their sketches.

use super::content::{ZERO_SLOT, is_unique};
use super::guest::SimPageState;
use super::machine::SimMachine;
use super::show::FIRST_PID;
use crate::sample::{GuestSketch, ProcessId, ReadPage};
use crate::sketch::{SamplePositions, mix};

impl SimMachine {
    /// The sketch of a guest, from pages drawn at random. `None` if there is no such guest.
    pub fn sketch(&self, id: ProcessId) -> Option<GuestSketch> {
        let guest = id.pid.checked_sub(FIRST_PID)?;
        let runs = self.memory.guests.get(guest as usize).filter(|guest| !guest.ended)?.pages.len();
        let pages = runs as u64 * u64::from(self.config.run_pages);
        let part = GuestSketch::pages_to_read(pages) as f64 / pages.max(1) as f64;
        let mut sketch = GuestSketch::new(id, pages);
        let places = SamplePositions::new(self.now_ns, u64::from(guest), pages, part);
        places.filter_map(|place| self.read_page(id, place)).for_each(|page| sketch.add(page));
        sketch.shrink();
        Some(sketch)
    }

    /// A page of a guest, as it is read for a sketch. `None` if there is none.
    pub fn read_page(&self, id: ProcessId, place: u64) -> Option<ReadPage> {
        let guest = self.memory.guests.get(id.pid.checked_sub(FIRST_PID)? as usize).filter(|guest| !guest.ended)?;
        let run_pages = u64::from(self.config.run_pages);
        let page = guest.pages.get(usize::try_from(place / run_pages).ok()?)?;
        let of_run = u64::from(self.memory.contents.sum(page.slot)) << 1 | u64::from(is_unique(page.slot));
        let fingerprint = if page.slot == ZERO_SLOT { 0 } else { mix(mix(of_run) ^ (place % run_pages)).max(1) };
        let mappings = match page.state {
            SimPageState::Merged => u64::from(self.memory.stable.mappings(page.node)),
            SimPageState::ZeroTracked | SimPageState::Zero => 1,
            _ => 0,
        };
        Some(ReadPage { place, fingerprint, mappings })
    }
}
