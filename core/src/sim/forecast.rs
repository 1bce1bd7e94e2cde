//! The forecast of merging in the simulated guests, by the arithmetic of the live one.

use super::PAGE_SIZE;
use super::content::ZERO_SLOT;
use super::guest::{MachineGuest, SimPageState};
use super::huge::HUGE_PAGES;
use super::machine::SimMachine;
use super::show::FIRST_PID;
use crate::merge_forecast::{ForecastDraft, ForecastPage, HugeRange};
use crate::sample::HostForecast;
use crate::sketch::{SamplePositions, ZERO, fingerprint, mix};

impl SimMachine {
    /// Draws pages of living guests with the chance `rate`, and computes the forecast. Runs of pages count as one page.
    pub fn forecast_merge(&self, rate: f64) -> HostForecast {
        let run_pages = u64::from(self.config.run_pages).max(1);
        let runs = (u64::from(HUGE_PAGES) / run_pages).max(1);
        let seed = mix(u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX));
        let mut pages = Vec::new();
        for &id in &self.memory.living.ids {
            let guest = &self.memory.guests[id as usize];
            for page in SamplePositions::new(seed, u64::from(id), guest.pages.len() as u64, rate) {
                if let Some(content) = content(guest, page) {
                    let range = HugeRange { guest: FIRST_PID.saturating_add(id), number: page / runs };
                    let is_huge = guest.huge.whole_at(page as u32).is_some();
                    let is_merged = guest.pages[page as usize].state == SimPageState::Merged;
                    pages.push(ForecastPage { range, page, content, is_huge, is_merged });
                }
            }
        }
        let draft = ForecastDraft::new(pages, rate, PAGE_SIZE * run_pages, runs);
        let wanted = draft.wanted_ranges(seed);
        let read = |range: HugeRange| {
            let guest = &self.memory.guests[range.guest.saturating_sub(FIRST_PID) as usize];
            (range.number * runs..(range.number + 1) * runs).filter_map(|page| content(guest, page)).collect()
        };
        draft.finish(&wanted, &wanted.all().map(read).collect::<Vec<Vec<u64>>>())
    }
}

/// Returns the fingerprint of a page. `None` if it takes no memory.
fn content(guest: &MachineGuest, page: u64) -> Option<u64> {
    let page = guest.pages.get(usize::try_from(page).ok()?)?;
    let takes_memory = page.state.is_private() || page.state == SimPageState::Merged;
    takes_memory.then(|| if page.slot == ZERO_SLOT { ZERO } else { fingerprint(mix(page.slot.into())) })
}
