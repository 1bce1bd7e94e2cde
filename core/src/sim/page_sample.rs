//! Drawing and reading pages of the simulated guests, as a host's memory is read to learn what has changed.

use super::guest::State;
use super::machine::Machine;
use crate::page_sample::{Fingerprint, Frame};

/// One page of one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    guest: u32,
    page: u32,
}

impl Machine {
    /// About `count` pages of living guests, evenly spread.
    pub fn draw_places(&self, count: usize) -> Vec<Place> {
        let living = || self.memory.guests.iter().enumerate().filter(|(_, guest)| !guest.ended);
        let pages: usize = living().map(|(_, guest)| guest.pages.len()).sum();
        let step = pages.div_ceil(count.max(1)).max(1);
        let all = living().flat_map(|(id, guest)| (0..guest.pages.len()).map(move |page| (id, page)));
        all.step_by(step).map(|(guest, page)| Place { guest: guest as u32, page: page as u32 }).collect()
    }

    /// The fingerprint of a page. `None` if its guest has ended.
    pub fn print(&self, place: Place) -> Option<Fingerprint> {
        let guest = self.memory.guests.get(place.guest as usize).filter(|guest| !guest.ended)?;
        let page = guest.pages.get(place.page as usize)?;
        let frame = match page.state {
            State::Merged => Frame::Merged { mappings: self.memory.stable.mappings(page.node) },
            State::ZeroTracked | State::Zero => Frame::Shared,
            _ => Frame::Own,
        };
        Some(Fingerprint { guest: place.guest, content: self.memory.contents.get(page.slot).sum.into(), frame })
    }
}
