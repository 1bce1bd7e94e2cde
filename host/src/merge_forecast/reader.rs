//! Draws and reads the pages of a forecast.
//!
//! Pages are read as page samples are: through `/proc/PID/mem`, in a child, and only where pagemap says that they are
//! present. `/proc/kpageflags` tells which of them lie in huge pages; where it can't be read none does.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use ksmith_core::merge_forecast::{ForecastDraft, ForecastPage, HugeRange};
use ksmith_core::sample::{HostForecast, ProcessId};
use ksmith_core::sketch::{SamplePositions, ZERO, fingerprint};
use twox_hash::XxHash3_64;

use crate::memory::process::AddressRange;
use crate::memory::scan::huge_page_size;
use crate::page_sampler::{FrameTables, SampledAddress, SampledPageReader, nth_page};
use crate::reader::{SampledPage, SilentAccounts};

/// Deadline for the pages that are drawn. They take a fifth of a second on a host that is not too busy.
const LONGEST: Duration = Duration::from_secs(8);

/// The most addresses that are tried for each page to draw: parts of a guest's memory may not be present.
const TRIES: f64 = 4.0;

/// Reads pages for forecasts.
#[derive(Debug)]
pub struct ForecastReader {
    pages: SampledPageReader,
    frames: FrameTables,
    random: RandomState,
    /// The content of a page of zeros.
    zeros: u64,
    /// Bytes in a huge page.
    huge_page_bytes: u64,
}

/// The memory of a process that could be merged.
#[derive(Debug, Clone)]
pub struct ForecastSpace {
    /// The process's PID.
    pub pid: u32,
    /// Its mappings that KSM could merge.
    pub stretches: Vec<AddressRange>,
}

impl ForecastSpace {
    fn pages(&self, page_size: u64) -> u64 {
        self.stretches.iter().map(|stretch| (stretch.end - stretch.start) / page_size).sum()
    }

    /// The reader needs the PID alone.
    fn place(&self, address: u64) -> SampledAddress {
        SampledAddress { id: ProcessId { pid: self.pid, start_ticks: 0 }, address }
    }
}

impl ForecastReader {
    /// Creates a reader. It starts its child when it reads.
    pub fn new() -> Self {
        let zeros = XxHash3_64::oneshot(&vec![0; rustix::param::page_size()]);
        Self {
            pages: SampledPageReader::default(),
            frames: FrameTables::open(),
            random: RandomState::new(),
            zeros,
            huge_page_bytes: huge_page_size(),
        }
    }

    /// Returns true if it can tell which pages are huge.
    pub fn tells_huge_pages(&self) -> bool {
        self.frames.show_flags()
    }

    /// Draws pages with the chance `rate` and reads them, `bytes` being present in all.
    pub fn forecast(&mut self, spaces: &[ForecastSpace], rate: f64, bytes: u64, page_size: u64) -> HostForecast {
        let seed = self.random.hash_one(bytes);
        let all: u64 = spaces.iter().map(|space| space.pages(page_size)).sum();
        let most = rate * bytes as f64 / page_size as f64 * TRIES;
        let rate = rate.min(most / all.max(1) as f64);
        let mut places = Vec::new();
        for space in spaces {
            let drawn = SamplePositions::new(seed, u64::from(space.pid), space.pages(page_size), rate);
            let addresses = drawn.filter_map(|page| nth_page(&space.stretches, page, page_size));
            places.extend(addresses.map(|address| Some(space.place(address))));
        }
        let mut shares = SampledPageReader::begin_shares();
        let read = self.pages.read_within(&places, LONGEST, &mut shares);
        let page = |(place, page): (&Option<SampledAddress>, Option<_>)| {
            let (place, page): (SampledAddress, SampledPage) = ((*place)?, page?);
            let flags = self.frames.flags(page.entry);
            // A page that maps the kernel's zero page takes no memory: never filled, folded, or merged with it.
            (!flags.is_zero_page()).then(|| ForecastPage {
                range: HugeRange { guest: place.id.pid, number: place.address / self.huge_page_bytes },
                page: place.address / page_size,
                content: self.fingerprint(page.content),
                is_huge: flags.is_huge(),
                is_merged: flags.is_merged(),
            })
        };
        let pages: Vec<ForecastPage> = places.iter().zip(read).filter_map(page).collect();
        let draft = ForecastDraft::new(pages, rate, page_size, self.huge_page_bytes / page_size);
        let wanted = draft.wanted_ranges(seed);
        let ranges = wanted.all().map(|range| self.read_range(range, spaces, page_size, &mut shares));
        let contents: Vec<Vec<u64>> = ranges.collect();
        draft.finish(&wanted, &contents)
    }

    /// Reads the fingerprints of all pages of a range.
    fn read_range(
        &mut self,
        range: HugeRange,
        spaces: &[ForecastSpace],
        page_size: u64,
        shares: &mut SilentAccounts,
    ) -> Vec<u64> {
        let Some(space) = spaces.iter().find(|space| space.pid == range.guest) else { return Vec::new() };
        let start = range.number * self.huge_page_bytes;
        let addresses = (start..start + self.huge_page_bytes).step_by(page_size as usize);
        let places: Vec<Option<SampledAddress>> = addresses.map(|address| Some(space.place(address))).collect();
        self.pages.read(&places, shares).into_iter().flatten().map(|page| self.fingerprint(page.content)).collect()
    }

    fn fingerprint(&self, content: u64) -> u64 {
        if content == self.zeros { ZERO } else { fingerprint(content) }
    }
}
