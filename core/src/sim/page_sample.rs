//! Drawing and reading pages of the simulated guests, as a host's memory is read to learn what has changed.

use super::guest::SimPageState;
use super::machine::SimMachine;
use crate::page_sample::{FrameKind, PageFingerprint};

/// One page of one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagePlace {
    guest: u32,
    page: u32,
}

impl SimMachine {
    /// About `count` pages of living guests, evenly spread.
    pub fn draw_places(&self, count: usize) -> Vec<PagePlace> {
        let step = (self.memory.living.runs as usize).div_ceil(count.max(1)).max(1);
        let mut places = Vec::with_capacity(count);
        let mut next = 0;
        for &guest in &self.memory.living.ids {
            let runs = self.memory.guests[guest as usize].pages.len();
            let places_of = (next..runs).step_by(step).map(|page| PagePlace { guest, page: page as u32 });
            places.extend(places_of.filter(|place| self.is_there(*place)));
            next = if next < runs { next + (runs - next).div_ceil(step) * step - runs } else { next - runs };
        }
        places
    }

    fn is_there(&self, PagePlace { guest, page }: PagePlace) -> bool {
        let page = self.memory.guests.get(guest as usize).and_then(|guest| guest.pages.get(page as usize));
        page.is_some_and(|page| !page.state.is_absent())
    }

    /// The fingerprint of a page. `None` if its guest has ended, or has given the page up.
    pub fn print(&self, place: PagePlace) -> Option<PageFingerprint> {
        let guest = self.memory.guests.get(place.guest as usize).filter(|guest| !guest.ended)?;
        let page = guest.pages.get(place.page as usize).filter(|page| !page.state.is_absent())?;
        let frame = match page.state {
            SimPageState::Merged => FrameKind::Merged { mappings: self.memory.stable.mappings(page.node) },
            SimPageState::ZeroTracked | SimPageState::Zero => FrameKind::Shared,
            state if state.is_freed() => FrameKind::Shared,
            _ => FrameKind::Own,
        };
        Some(PageFingerprint { guest: place.guest, content: self.memory.contents.sum(page.slot).into(), frame })
    }
}
