//! A guest's memory on the machine, page by page, following what the guest's kernel does with it.

use crate::balance::sim::GuestMemoryUse;
use crate::sim::{GuestDemand, PAGE_SIZE, SimGuestId, SimMachine, UNIQUE, equal_content};

/// The pages of one guest that come and go, by number.
#[derive(Debug)]
pub(super) struct PageMirror {
    id: SimGuestId,
    /// Bytes in a page of the machine, or a run of them.
    run_bytes: u64,
    /// The memory that the guest can't do without, in bytes. Those pages are always there.
    pinned_bytes: u64,
    /// Runs of files of the image, and their label.
    image_runs: u64,
    image_files: u16,
    anonymous: Vec<u32>,
    hot: Vec<u32>,
    cold: Vec<u32>,
    /// Unused, and still there: the host does not know that they are free.
    free: Vec<u32>,
    /// Not there.
    absent: Vec<u32>,
}

impl PageMirror {
    /// Reserves the pages of a guest that has started.
    pub fn new(
        machine: &mut SimMachine,
        id: SimGuestId,
        demand: &GuestDemand,
        pinned_bytes: u64,
        run_bytes: u64,
    ) -> Self {
        let runs = demand.whole_bytes.saturating_sub(pinned_bytes) / run_bytes;
        let first = machine.reserve_pages(id, runs as usize).unwrap_or(0) as u64;
        // The last is taken first.
        let absent = (first..first + runs).rev().map(|run| run as u32).collect();
        Self {
            id,
            run_bytes,
            pinned_bytes,
            image_runs: demand.image_files_bytes / run_bytes,
            image_files: demand.image_files,
            anonymous: Vec::new(),
            hot: Vec::new(),
            cold: Vec::new(),
            free: Vec::new(),
            absent,
        }
    }

    /// Bytes of the guest that are there.
    #[cfg(test)]
    pub fn present_bytes(&self) -> u64 {
        self.pinned_bytes + self.present() * self.run_bytes
    }

    fn present(&self) -> u64 {
        (self.anonymous.len() + self.hot.len() + self.cold.len() + self.free.len()) as u64
    }

    /// Makes the machine's pages what the guest has now. What it has freed stays there until it is taken.
    pub fn follow(&mut self, machine: &mut SimMachine, uses: GuestMemoryUse) {
        let runs = |bytes: u64| (bytes / self.run_bytes) as usize;
        let (anonymous, hot, cold) = (runs(uses.anonymous), runs(uses.hot), runs(uses.cold));
        let touched = uses.touched.saturating_sub(self.pinned_bytes) / self.run_bytes;
        for (held, wanted) in [(&mut self.anonymous, anonymous), (&mut self.hot, hot), (&mut self.cold, cold)] {
            self.free.extend(held.drain(wanted.min(held.len())..));
        }
        let (image_runs, image_files) = (self.image_runs, self.image_files);
        let of_image = |place: usize| {
            let place = place as u64;
            if place < image_runs { equal_content(image_files, place as u32) } else { UNIQUE }
        };
        let own = |_: usize| UNIQUE;
        let contents: [(&mut Vec<u32>, usize, Content<'_>); 3] =
            [(&mut self.anonymous, anonymous, &own), (&mut self.hot, hot, &own), (&mut self.cold, cold, &of_image)];
        for (held, wanted, content) in contents {
            while held.len() < wanted
                && let Some(run) = self.free.pop().or_else(|| self.absent.pop())
            {
                machine.write_page(self.id, run as usize, content(held.len()));
                held.push(run);
            }
        }
        while self.present() > touched
            && let Some(run) = self.free.pop()
        {
            machine.take_page(self.id, run as usize);
            self.absent.push(run);
        }
    }
}

/// The content of a page by its place in what it is used for.
type Content<'a> = &'a dyn Fn(usize) -> u64;

/// The memory of a plan's pages, in bytes.
pub(super) fn plan_bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE
}
