//! The arithmetic of a forecast: pages drawn at random, then a few huge pages whole.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::sample::{HostForecast, MergeForecast, ProcessForecast};
use crate::sketch::{ZERO, mix};

/// The most huge pages of all guests that are read whole: half of them for zeros, half for equal pages.
const RANGES: usize = 32;

/// The most pages of these. Where a huge page has more than 512, fewer are read.
const RANGE_PAGES: usize = 16_384;

/// Huge pages of one guest that are read whole for each of the two, where the others do not tell of it.
const GUEST_RANGES: usize = 4;

/// Drawn pages without which a guest has no forecast of its own.
const LEAST_DRAWN: u64 = 30;

/// A page that was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForecastPage {
    /// Its huge page, or the range that one could back.
    pub range: HugeRange,
    /// The number of the page within its guest.
    pub page: u64,
    /// Its fingerprint, or [`ZERO`].
    pub content: u64,
    /// True if it lies in a huge page.
    pub is_huge: bool,
    /// True if it is merged.
    pub is_merged: bool,
}

/// The range of one huge page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HugeRange {
    /// The PID of the guest's process.
    pub guest: u32,
    /// The number of the range within the guest.
    pub number: u64,
}

/// The first half of a forecast: the drawn pages, and what they have in common.
#[derive(Debug, Clone)]
pub struct ForecastDraft {
    pages: Vec<ForecastPage>,
    /// The number of drawn pages with each content. Zeros are not among them.
    drawn: FxHashMap<u64, u32>,
    /// The chance with which each page was drawn.
    rate: f64,
    page_size: u64,
    /// Pages in a huge page.
    huge_pages: f64,
}

/// The drawn pages of one guest or of all. Of two numbers, the first one is that of pages in small pages.
#[derive(Debug, Clone, Copy, Default)]
struct DrawnCounts {
    pages: u64,
    huge: u64,
    zeros: [u64; 2],
    /// Pages that equal another one that was drawn.
    equal: [u64; 2],
    /// Pages among them that are merged already.
    merged: u64,
    /// Pairs and triples of equal pages that were drawn, for each page its part of them.
    pairs: f64,
    triples: f64,
}

/// A huge page that was read whole.
#[derive(Debug, Clone, Copy)]
struct ReadRange {
    range: HugeRange,
    zeros: f64,
    /// Pages with a content that was drawn elsewhere.
    found: f64,
}

/// The huge pages to be read whole, for one kind of page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedRanges {
    /// Ranges with a drawn page of zeros, a page each.
    zero: Vec<HugeRange>,
    /// Ranges with a drawn page that equals another, a page each.
    equal: Vec<HugeRange>,
}

impl WantedRanges {
    /// Returns all of them. One may stand there twice.
    pub fn all(&self) -> impl Iterator<Item = HugeRange> + '_ {
        self.zero.iter().chain(&self.equal).copied()
    }
}

impl ForecastDraft {
    /// Creates a draft of pages of `page_size` bytes, `huge_pages` of them in a huge page, of which each was drawn with
    /// the chance `rate`, 0 to 1.
    pub fn new(pages: Vec<ForecastPage>, rate: f64, page_size: u64, huge_pages: u64) -> Self {
        let mut drawn = FxHashMap::default();
        for page in pages.iter().filter(|page| page.content != ZERO) {
            *drawn.entry(page.content).or_default() += 1;
        }
        Self { pages, drawn, rate: rate.clamp(f64::MIN_POSITIVE, 1.0), page_size, huge_pages: huge_pages as f64 }
    }

    /// Returns the number of huge pages of all guests that are read whole for each kind of page, at most.
    fn most_ranges(&self) -> usize {
        (RANGE_PAGES / self.huge_pages.max(1.0) as usize).clamp(2, RANGES) / 2
    }

    /// Chooses the huge pages to be read whole: those of pages that would merge, drawn at random. Of each guest there are a few,
    /// but no more pages are read for that than were drawn.
    pub fn wanted_ranges(&self, seed: u64) -> WantedRanges {
        let most = self.pages.len() / (self.huge_pages.max(1.0) as usize) / 2;
        let choose = |is_zero: bool| {
            let mut pages: Vec<&ForecastPage> =
                self.merging().filter(|page| (page.content == ZERO) == is_zero).collect();
            pages.sort_unstable_by_key(|page| mix(seed ^ mix(u64::from(page.range.guest) << 40 ^ page.page)));
            let mut of_guests: FxHashMap<u32, usize> = FxHashMap::default();
            let (mut wanted, mut more) = (Vec::new(), Vec::new());
            for page in pages {
                let rank = of_guests.entry(page.range.guest).or_default();
                if wanted.len() < self.most_ranges() {
                    wanted.push(page.range);
                } else if *rank < GUEST_RANGES {
                    more.push((*rank, page.range));
                }
                *rank += 1;
            }
            // One of each guest before a second one of any.
            more.sort_by_key(|(rank, _)| *rank);
            wanted.extend(more.into_iter().take(most).map(|(_, range)| range));
            wanted
        };
        WantedRanges { zero: choose(true), equal: choose(false) }
    }

    /// Computes the forecast. `contents` are the fingerprints of the pages of each wanted range, in the order of
    /// [`WantedRanges::all`]; none of a range that could not be read.
    pub fn finish(&self, wanted: &WantedRanges, contents: &[Vec<u64>]) -> HostForecast {
        let read: Vec<Option<ReadRange>> =
            wanted.all().zip(contents).map(|(range, contents)| self.find_merging(range, contents)).collect();
        let (of_zeros, of_equal) = read.split_at(wanted.zero.len().min(read.len()));
        let known = |read: &[Option<ReadRange>]| read.iter().flatten().copied().collect::<Vec<ReadRange>>();
        // The first ones were drawn from those of all guests.
        let of_all = [of_zeros, of_equal].map(|read| known(&read[..read.len().min(self.most_ranges())]));
        let (total, guests) = self.count();
        let is_known = |(_, counts): &(u32, DrawnCounts)| counts.pages >= LEAST_DRAWN;
        let processes = guests.into_iter().filter(is_known).map(|(pid, counts)| {
            let mut ranges = [of_zeros, of_equal].map(known);
            for (own, all) in ranges.iter_mut().zip(&of_all) {
                own.retain(|read| read.range.guest == pid);
                if own.is_empty() {
                    own.clone_from(all);
                }
            }
            let forecast = self.estimate(&counts, &ranges);
            let (copies, chance) = counts.copies(self.rate);
            let merged = counts.merged as f64 / (self.rate * chance) * (copies - 1.0) / copies;
            let new_bytes = forecast.saved_bytes.saturating_sub(self.bytes(merged));
            ProcessForecast { pid, forecast, new_bytes }
        });
        let processes: Vec<ProcessForecast> = processes.collect();
        let of_total = self.estimate(&total, &of_all);
        HostForecast { total: sum_splits(of_total, &processes), processes }
    }

    /// Computes the forecast for these drawn pages. `ranges` are huge pages of theirs that were read whole, drawn at random
    /// from those with zeros and from those with equal pages.
    fn estimate(&self, drawn: &DrawnCounts, ranges: &[Vec<ReadRange>; 2]) -> MergeForecast {
        let bytes = |pages: f64| self.bytes(pages);
        let (copies, chance) = drawn.copies(self.rate);
        let (whole, in_huge) = (drawn.pages as f64 / self.rate, drawn.huge as f64 / self.rate);
        let [zeros_in_small, zeros] = drawn.zeros.map(|pages| pages as f64 / self.rate);
        let [equal_in_small, equal] = drawn.equal.map(|pages| pages as f64 / (self.rate * chance));
        let saved_in_small = zeros_in_small + equal_in_small * (copies - 1.0) / copies;
        let [of_zeros, of_equal] = ranges.each_ref().map(|read| self.mean_inverse(read, chance));
        let split = ((zeros * of_zeros + equal * of_equal) * self.huge_pages).min(in_huge);
        let saved = (zeros + equal * (copies - 1.0) / copies).min(in_huge);
        MergeForecast {
            bytes: bytes(whole),
            huge_bytes: bytes(in_huge),
            saved_bytes: bytes((saved + saved_in_small).min(whole)),
            saved_in_huge_bytes: bytes(saved),
            split_bytes: bytes(split.max(saved)),
        }
    }

    fn bytes(&self, pages: f64) -> u64 {
        (pages * self.page_size as f64).round().max(0.0) as u64
    }

    /// Counts the drawn pages, of all guests and of each.
    fn count(&self) -> (DrawnCounts, BTreeMap<u32, DrawnCounts>) {
        let mut total = DrawnCounts::default();
        let mut guests: BTreeMap<u32, DrawnCounts> = BTreeMap::new();
        for page in &self.pages {
            let copies = self.drawn.get(&page.content).copied().unwrap_or(0);
            total.add(page, copies);
            guests.entry(page.range.guest).or_default().add(page, copies);
        }
        (total, guests)
    }

    /// Returns the drawn pages in huge pages that are zeros or equal another drawn page.
    fn merging(&self) -> impl Iterator<Item = &ForecastPage> {
        let is_found = |page: &&ForecastPage| {
            page.content == ZERO || self.drawn.get(&page.content).is_some_and(|drawn| *drawn > 1)
        };
        self.pages.iter().filter(|page| page.is_huge).filter(is_found)
    }

    /// Finds the pages of a range that merge: its zeros, and its equal pages that were drawn elsewhere. `None` if it could not
    /// be read.
    fn find_merging(&self, range: HugeRange, contents: &[u64]) -> Option<ReadRange> {
        let mut own: FxHashMap<u64, u32> = FxHashMap::default();
        for page in self.pages.iter().filter(|page| page.range == range) {
            *own.entry(page.content).or_default() += 1;
        }
        let is_elsewhere = |content: &&u64| {
            let [drawn, own] = [&self.drawn, &own].map(|counts| counts.get(content).copied().unwrap_or(0));
            drawn > own
        };
        let zeros = contents.iter().filter(|content| **content == ZERO).count() as f64;
        let found = contents.iter().filter(is_elsewhere).count() as f64;
        (!contents.is_empty()).then_some(ReadRange { range, zeros, found })
    }

    /// Returns the mean inverse of the number of pages that merge in these ranges, at least one in each: zeros, and equal pages
    /// by the `chance` that another of them was drawn elsewhere. 0 of none.
    fn mean_inverse(&self, read: &[ReadRange], chance: f64) -> f64 {
        let merging = |read: &ReadRange| (read.zeros + read.found / chance).clamp(1.0, self.huge_pages.max(1.0));
        read.iter().map(|read| merging(read).recip()).sum::<f64>() / (read.len() as f64).max(1.0)
    }
}

/// Replaces the splits of all memory by those of its processes, as far as they have forecasts. Few equal pages that are scattered
/// over many huge pages are seldom among the ranges that were drawn from all, and then weigh much; of each process some are read.
fn sum_splits(total: MergeForecast, processes: &[ProcessForecast]) -> MergeForecast {
    let sum = |figure: fn(&MergeForecast) -> u64| {
        processes.iter().map(|process| figure(&process.forecast)).fold(0, u64::saturating_add)
    };
    let rest_part = 1.0 - sum(|forecast| forecast.huge_bytes) as f64 / (total.huge_bytes as f64).max(1.0);
    let rest = total.split_bytes as f64 * rest_part.clamp(0.0, 1.0);
    let split = sum(|forecast| forecast.split_bytes).saturating_add(rest as u64);
    MergeForecast {
        split_bytes: split.clamp(total.saved_in_huge_bytes.min(total.huge_bytes), total.huge_bytes),
        ..total
    }
}

impl DrawnCounts {
    /// Adds a page whose content was drawn so many times. Zeros count as drawn never.
    fn add(&mut self, page: &ForecastPage, copies: u32) {
        self.pages += 1;
        self.huge += u64::from(page.is_huge);
        let place = usize::from(page.is_huge);
        if page.content == ZERO {
            self.zeros[place] += 1;
        } else if copies > 1 {
            self.equal[place] += 1;
            self.merged += u64::from(page.is_merged);
            let others = f64::from(copies - 1);
            self.pairs += others / 2.0;
            self.triples += others * (others - 1.0) / 6.0;
        }
    }

    /// Returns the copies of a content that has any, in the mean over pairs, and the chance that another of them is drawn.
    ///
    /// With c copies each, pairs and triples are drawn in the mean as `C(c, 2) rate²` and `C(c, 3) rate³`, so that
    /// `c = 2 + 3 triples / (pairs rate)`. Each page has its part of the pairs and triples that it is in.
    fn copies(&self, rate: f64) -> (f64, f64) {
        let copies = if self.pairs > 0.0 { 2.0 + 3.0 * self.triples / (self.pairs * rate) } else { 2.0 };
        (copies, (1.0 - (1.0 - rate).powf(copies - 1.0)).max(f64::MIN_POSITIVE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::fingerprint;

    const GUEST_RANGES: u64 = 256;

    /// A mixture by name, and the least and most per cent that are saved, split, and saved of what is split.
    type MixtureCase = (&'static str, Mixture, [f64; 2], [f64; 2], [f64; 2]);

    /// A content by guest and page; `None` for one of its own.
    type Mixture = fn(u64) -> Option<u64>;

    fn content(guest: u64, page: u64, mixture: Mixture) -> u64 {
        let own = || fingerprint(mix(guest << 40 | page | 1 << 60));
        mixture(page).map_or_else(own, |content| if content == 0 { ZERO } else { fingerprint(mix(content)) })
    }

    /// Draws pages of guests with the same mixture in huge pages, reads what is wanted, and computes the forecast.
    fn forecast(guests: u64, rate: f64, seed: u64, mixture: Mixture) -> MergeForecast {
        forecast_each(&vec![mixture; guests as usize], rate, seed).total
    }

    /// Computes the forecast of guests with a mixture each.
    fn forecast_each(mixtures: &[Mixture], rate: f64, seed: u64) -> HostForecast {
        let range = |guest: u64, number| HugeRange { guest: guest as u32, number };
        let mut pages = Vec::new();
        for (guest, &mixture) in (0..).zip(mixtures) {
            for page in crate::sketch::SamplePositions::new(mix(seed) ^ guest, 0, GUEST_RANGES * 512, rate) {
                let content = content(guest, page, mixture);
                let range = range(guest, page / 512);
                pages.push(ForecastPage { range, page, content, is_huge: true, is_merged: false });
            }
        }
        let draft = ForecastDraft::new(pages, rate, 4096, 512);
        let wanted = draft.wanted_ranges(seed);
        let read = |range: HugeRange| {
            let (guest, mixture) = (u64::from(range.guest), mixtures[range.guest as usize]);
            (0..512).map(|page| content(guest, range.number * 512 + page, mixture)).collect()
        };
        draft.finish(&wanted, &wanted.all().map(read).collect::<Vec<Vec<u64>>>())
    }

    /// The per cent of all bytes that are saved and split, and of the split that are saved.
    fn percent(forecast: &MergeForecast) -> [f64; 3] {
        let part = |bytes: u64| bytes as f64 / forecast.bytes as f64 * 100.0;
        [part(forecast.saved_in_huge_bytes), part(forecast.split_bytes), forecast.saved_part() * 100.0]
    }

    #[test]
    fn fewer_huge_pages_are_read_where_they_are_larger() {
        let page = |number| ForecastPage {
            range: HugeRange { guest: 0, number },
            page: number * 8192,
            content: ZERO,
            is_huge: true,
            is_merged: false,
        };
        let pages: Vec<ForecastPage> = (0..2000).map(page).collect();
        let read =
            |huge_pages| ForecastDraft::new(pages.clone(), 0.1, 65_536, huge_pages).wanted_ranges(1).zero.len();
        assert_eq!([512, 2048, 8192].map(read), [16, 4, 1]);
    }

    #[test]
    fn the_splits_of_guests_that_differ_add_up_to_those_of_the_host() {
        let runs: Mixture = |page| (page / 1024 % 2 == 0).then_some(page + 1);
        let scattered: Mixture = |page| (page % 50 == 0).then_some((1 << 40) + page);
        let mixtures = [runs, runs, scattered, scattered];
        for seed in 0..20 {
            let forecast = forecast_each(&mixtures, 0.25, seed);
            let [_, split, _] = percent(&forecast.total);
            // Half of the huge pages of two guests, and all of two.
            assert!((50.0..95.0).contains(&split), "seed {seed}: {split} %");
            let parts: u64 = forecast.processes.iter().map(|process| process.forecast.split_bytes).sum();
            assert_eq!(forecast.total.split_bytes, parts, "seed {seed}");
        }
    }

    #[test]
    fn scattered_pages_split_everything_and_pages_in_runs_what_they_fill() {
        let mixtures: [MixtureCase; 6] = [
            ("1 %", |page| (mix(page) % 100 < 1).then_some(page + 1), [0.1, 1.3], [5.0, 100.0], [0.1, 3.0]),
            ("20 %", |page| (mix(page) % 100 < 20).then_some(page + 1), [7.0, 13.0], [85.0, 100.0], [7.0, 13.0]),
            (
                "20 % in runs",
                |page| (page / 2048 % 5 == 0).then_some(page + 1),
                [7.0, 13.0],
                [16.0, 26.0],
                [35.0, 70.0],
            ),
            (
                "50 % zeros in runs",
                |page| (page / 2048 % 2 == 0).then_some(0),
                [45.0, 55.0],
                [45.0, 55.0],
                [99.0, 100.0],
            ),
            ("30 % zeros", |page| (mix(page) % 10 < 3).then_some(0), [27.0, 33.0], [85.0, 100.0], [27.0, 36.0]),
            ("nothing", |_| None, [0.0, 0.0], [0.0, 0.0], [100.0, 100.0]),
        ];
        for (name, mixture, saved, split, part) in mixtures {
            for seed in 0..20 {
                let figures = percent(&forecast(2, 0.087, seed, mixture));
                for (figure, [least, most]) in figures.into_iter().zip([saved, split, part]) {
                    assert!((least..=most).contains(&figure), "{name}, {seed}: {figures:?}");
                }
            }
        }
    }

    #[test]
    fn zeros_in_runs_do_not_hide_scattered_pages() {
        for seed in 0..20 {
            let mixture: Mixture = |page| match page / 2048 % 2 {
                0 => Some(0),
                _ => (mix(page) % 100 < 10).then_some(page + 1),
            };
            let [_, split, part] = percent(&forecast(4, 0.06, seed, mixture));
            assert!(split > 85.0 && (45.0..65.0).contains(&part), "{seed}: {split} {part}");
        }
    }

    #[test]
    fn each_guest_has_a_forecast_of_its_own_beside_others_of_another_kind() {
        let half: Mixture = |page| (page / 2048 % 2 == 0).then_some(page + 1);
        let scattered: Mixture = |page| (mix(page) % 100 < 1).then_some(page + (1 << 30));
        for seed in 0..5 {
            let forecast = forecast_each(&[half, half, half, half, scattered, scattered], 0.15, seed);
            let pids: Vec<u32> = forecast.processes.iter().map(|part| part.pid).collect();
            assert_eq!(pids, [0, 1, 2, 3, 4, 5]);
            for part in &forecast.processes {
                let [saved, split, of_split] = percent(&part.forecast);
                match part.pid {
                    0..4 => {
                        assert!((33.0..42.0).contains(&saved) && (45.0..56.0).contains(&split), "{seed}: {part:?}")
                    }
                    _ => assert!(split > 25.0 && of_split < 2.5, "{seed}: {part:?}"),
                }
            }
            let bytes: u64 = forecast.processes.iter().map(|part| part.forecast.bytes).sum();
            assert!(bytes.abs_diff(forecast.total.bytes) < 16, "{forecast:?}");
            assert_eq!(forecast.of_process(3), Some(&forecast.processes[3].forecast));
        }
    }

    #[test]
    fn for_single_guests_no_more_pages_are_read_than_were_drawn() {
        let page = |n: u64| ForecastPage {
            range: HugeRange { guest: n as u32 % 100, number: n / 100 },
            page: n,
            content: ZERO,
            is_huge: true,
            is_merged: false,
        };
        let drawn = |pages: u64| ForecastDraft::new((0..pages).map(page).collect(), 0.1, 4096, 512);
        let wanted = drawn(10_240).wanted_ranges(1);
        assert_eq!((wanted.zero.len(), wanted.equal.len()), (16 + 10, 0));
        // Of each guest one, before a second one of any.
        let wanted = drawn(102_400).wanted_ranges(1);
        let guests: std::collections::BTreeSet<u32> = wanted.zero.iter().map(|range| range.guest).collect();
        assert!(wanted.zero.len() == 16 + 100 && guests.len() == 100, "{}", guests.len());
        let forecast = drawn(29).finish(&WantedRanges::default(), &[]);
        assert!(forecast.processes.is_empty() && forecast.total.huge_bytes > 0, "too few of each are drawn");
    }

    #[test]
    fn what_is_merged_already_is_not_newly_saved() {
        // Of two guests half of the pages are equal, and half of these are merged.
        let page = |n: u64| ForecastPage {
            range: HugeRange { guest: n as u32 % 2, number: 0 },
            page: n / 2,
            content: if (n / 2).is_multiple_of(2) { n / 2 } else { n | 1 << 40 },
            is_huge: false,
            is_merged: (n / 2).is_multiple_of(4),
        };
        let draft = ForecastDraft::new((1..=4000).map(page).collect(), 1.0, 4096, 512);
        let forecast = draft.finish(&WantedRanges::default(), &[]);
        for part in forecast.processes {
            let [saved, new] = [part.forecast.saved_bytes, part.new_bytes].map(|bytes| bytes / 4096);
            assert!(saved.abs_diff(500) <= 2 && new.abs_diff(250) <= 2, "{part:?}");
        }
    }

    #[test]
    fn small_pages_are_not_split() {
        let page = |page, content| ForecastPage {
            range: HugeRange { guest: 1, number: 0 },
            page,
            content,
            is_huge: false,
            is_merged: false,
        };
        let draft = ForecastDraft::new(vec![page(0, 7), page(1, 7), page(2, ZERO)], 0.5, 4096, 512);
        let wanted = draft.wanted_ranges(1);
        assert_eq!(wanted, WantedRanges::default());
        let forecast = draft.finish(&wanted, &[]).total;
        assert_eq!((forecast.huge_bytes, forecast.split_bytes, forecast.saved_part()), (0, 0, 1.0));
    }
}
