//! A made-up fleet: guests of a few images that fill a host, and come and go.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{GuestDemand, GuestPlan, PAGE_SIZE, SimConfig, SimMachine};

/// The guests of one host. Each page of a guest belongs to one part; what is left of its memory is unique.
#[derive(Debug, Clone, PartialEq)]
pub struct SimFleet {
    /// Memory of the host, in bytes.
    pub host_bytes: u64,
    /// The number of images.
    pub images: u16,
    /// Sizes of guests, in multiples of `size_step` bytes, all equally likely.
    pub sizes: RangeInclusive<u32>,
    /// The unit of `sizes`, in bytes.
    pub size_step: u64,
    /// The part of a guest that equals the same part of all guests.
    pub common: f64,
    /// The part that equals the same part of all guests of its image.
    pub image: f64,
    /// The part that is empty.
    pub zero: f64,
    /// The part that gets new contents once in `rewritten_every`.
    pub rewritten: f64,
    /// The duration of one round of rewriting.
    pub rewritten_every: Duration,
    /// A second part that gets new contents: what the guest works on.
    pub working: f64,
    /// The duration of one round of working.
    pub working_every: Duration,
    /// The part that is unlike any other while a guest boots, and equals that of all guests of its image then.
    pub booting: f64,
    /// The duration of a boot.
    pub boot: Duration,
    /// The part that a guest takes bit by bit, as a page cache does, and that equals that of all guests of its image.
    pub growing: f64,
    /// The time in which it grows.
    pub growing_over: Duration,
    /// The part that is page cache of its own which it reads again and again.
    pub hot: f64,
    /// The time in which it reads all of that once.
    pub hot_every: Duration,
    /// The part that is page cache of its own which it reads once, within `growing_over`.
    pub cold: f64,
    /// The part that programs take now and then.
    pub bursting: f64,
    /// The time from one run of these programs to the next. Each guest's first run is at a time of its own.
    pub burst_every: Duration,
    /// The duration of one run.
    pub burst_for: Duration,
    /// The time in which they take their memory.
    pub burst_within: Duration,
    /// The part of the guests that share nothing: what others have in common is unlike any other in them.
    pub strangers: f64,
    /// The pace of rewriting, and of coming and going, at night: see [`SimConfig::night_permille`].
    pub night_permille: u32,
    /// Time between two starts while the host fills.
    pub start_every: Duration,
    /// The part of the host's memory that guests fill.
    pub full: f64,
    /// The time from which guests come and go; later, if the host is not full by then.
    pub exchange_from: Duration,
    /// Time between two exchanges, at each of which one guest leaves and one of the same size comes. Zero: there are
    /// none.
    pub exchange_every: Duration,
    /// The end of the story.
    pub duration: Duration,
    /// Chooses sizes, images and those that leave.
    pub seed: u64,
}

/// An hour on a host of 16 GiB: guests of 1 to 4 GiB and eight images fill nine tenths of it, and from half an hour on
/// one leaves and one comes each minute.
impl Default for SimFleet {
    fn default() -> Self {
        Self {
            host_bytes: 16 << 30,
            images: 8,
            sizes: 1..=4,
            size_step: 1 << 30,
            common: 0.1,
            image: 0.2,
            zero: 0.1,
            rewritten: 0.01,
            rewritten_every: Duration::from_secs(60),
            working: 0.0,
            working_every: Duration::from_secs(1),
            booting: 0.0,
            boot: Duration::from_secs(30),
            growing: 0.0,
            growing_over: Duration::from_secs(3600),
            hot: 0.0,
            hot_every: Duration::from_secs(60),
            cold: 0.0,
            bursting: 0.0,
            burst_every: Duration::from_secs(7200),
            burst_for: Duration::from_secs(600),
            burst_within: Duration::from_secs(30),
            strangers: 0.0,
            night_permille: 1000,
            start_every: Duration::from_secs(5),
            full: 0.9,
            exchange_from: Duration::from_secs(1800),
            exchange_every: Duration::from_secs(60),
            duration: Duration::from_secs(3600),
            seed: 1,
        }
    }
}

impl SimFleet {
    /// The host that it runs on, with memory kept in runs of `run_pages` pages.
    pub fn config(&self, run_pages: u32) -> SimConfig {
        let night_permille = self.night_permille;
        SimConfig { total_bytes: self.host_bytes, run_pages, night_permille, ..SimConfig::default() }
    }

    /// Makes a machine on which the fleet's story begins.
    pub fn machine(&self, run_pages: u32) -> SimMachine {
        let mut machine = SimMachine::new(self.config(run_pages));
        self.plans().into_iter().for_each(|plan| machine.start(plan));
        machine
    }

    /// Returns true if guests have memory that comes and goes, which [`plans`](Self::plans) leave out.
    pub fn has_demands(&self) -> bool {
        self.hot + self.cold + self.bursting > 0.0
    }

    /// The guests' plans, in the order of their starts.
    pub fn plans(&self) -> Vec<GuestPlan> {
        let growing = |(plan, demand): (GuestPlan, GuestDemand)| {
            let pages = u32::try_from(demand.image_files_bytes / PAGE_SIZE).unwrap_or(u32::MAX);
            if pages > 0 { plan.growing(demand.image_files, pages, demand.files_over) } else { plan }
        };
        self.guests().into_iter().map(growing).collect()
    }

    /// The guests in the order of their starts: what they can't do without, and what comes and goes.
    pub fn guests(&self) -> Vec<(GuestPlan, GuestDemand)> {
        let mut dice = SplitMix64(self.seed);
        let mut plans = Vec::new();
        // Of those that run: the place in `plans` and the size.
        let mut living = Vec::new();
        let mut free = (self.host_bytes as f64 * self.full) as u64;
        let mut at = Duration::ZERO;
        while plans.len() < MOST {
            let size = self.size(&mut dice);
            if size == 0 || size > free {
                break;
            }
            free -= size;
            living.push((plans.len(), size));
            plans.push(self.plan(plans.len(), size, at, &mut dice));
            at += self.start_every;
        }
        at = at.max(self.exchange_from);
        while !self.exchange_every.is_zero() && at < self.duration && !living.is_empty() && plans.len() < MOST {
            let leaving = dice.below(living.len() as u64) as usize;
            let (index, size) = living.swap_remove(leaving);
            plans[index].0.stops = Some(at);
            living.push((plans.len(), size));
            plans.push(self.plan(plans.len(), size, at, &mut dice));
            at += match (self.night_permille, self.is_night(at)) {
                (1..1000, true) => self.exchange_every * 1000 / self.night_permille,
                _ => self.exchange_every,
            };
        }
        plans
    }

    fn is_night(&self, at: Duration) -> bool {
        self.night_permille != 1000 && at.as_secs() / (12 * 3600) % 2 == 1
    }

    fn size(&self, dice: &mut SplitMix64) -> u64 {
        let choices = u64::from(self.sizes.end().saturating_sub(*self.sizes.start())) + 1;
        (u64::from(*self.sizes.start()) + dice.below(choices)) * self.size_step
    }

    fn plan(&self, number: usize, bytes: u64, at: Duration, dice: &mut SplitMix64) -> (GuestPlan, GuestDemand) {
        let all = u32::try_from(bytes / PAGE_SIZE).unwrap_or(u32::MAX);
        let mut left = all;
        let mut part = |share: f64| {
            let pages = ((f64::from(all) * share) as u32).min(left);
            left -= pages;
            pages
        };
        let (common, image) = (part(self.common), part(self.image));
        let (zero, rewritten) = (part(self.zero), part(self.rewritten));
        let (working, booting, growing) = (part(self.working), part(self.booting), part(self.growing));
        let (hot, cold, bursting) = (part(self.hot), part(self.cold), part(self.bursting));
        let images = self.images.max(1);
        let of_image = 1 + dice.below(images.into()) as u16;
        let is_stranger =
            self.strangers > 0.0 && (dice.below(1 << 20) as f64) < self.strangers * f64::from(1 << 20);
        if is_stranger {
            let plan = GuestPlan::new(format!("guest-{}", number + 1))
                .rewritten(rewritten, self.rewritten_every)
                .unique(all - rewritten)
                .starting_at(at);
            return (plan, GuestDemand { whole_bytes: u64::from(all) * PAGE_SIZE, ..GuestDemand::default() });
        }
        let plan = GuestPlan::new(format!("guest-{}", number + 1))
            .equal(0, common)
            .equal(of_image, image)
            .zero(zero)
            .rewritten(rewritten, self.rewritten_every)
            .unique(left)
            .starting_at(at);
        // Labels of an image: its files, what its boot leaves, and its page cache.
        let plan = if working > 0 { plan.rewritten(working, self.working_every) } else { plan };
        let plan = if booting > 0 { plan.settling(of_image + images, booting, self.boot) } else { plan };
        let in_bytes = |pages: u32| u64::from(pages) * PAGE_SIZE;
        // Dice of its own, so that these programs change nothing else of the story.
        let mut own_dice = SplitMix64(self.seed ^ (number as u64 + 1) << 32);
        let burst_every = u64::try_from(self.burst_every.as_millis()).unwrap_or(u64::MAX);
        let demand = GuestDemand {
            whole_bytes: in_bytes(all),
            hot_bytes: in_bytes(hot),
            hot_every: self.hot_every,
            image_files_bytes: in_bytes(growing),
            image_files: of_image + 2 * images,
            own_files_bytes: in_bytes(cold),
            files_over: self.growing_over,
            bursting_bytes: in_bytes(bursting),
            burst_every: self.burst_every,
            burst_for: self.burst_for,
            burst_within: self.burst_within,
            burst_from: Duration::from_millis(own_dice.below(burst_every)),
        };
        (plan, demand)
    }
}

/// Guests that a story may have at most.
const MOST: usize = 1_000_000;

/// A generator of numbers that look random: SplitMix64.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_fill_the_host_and_one_comes_for_each_that_leaves() {
        let fleet = SimFleet { host_bytes: 64 << 30, ..SimFleet::default() };
        let plans = fleet.plans();
        let running = |at: u64| {
            let at = Duration::from_secs(at);
            let runs = |plan: &&GuestPlan| plan.starts <= at && plan.stops.is_none_or(|stops| stops > at);
            let running: Vec<_> = plans.iter().filter(runs).collect();
            (running.len(), running.iter().map(|plan| plan.pages() * PAGE_SIZE).sum::<u64>() >> 30)
        };
        let (guests, gib) = running(1799);
        assert!((54..=57).contains(&gib), "{gib} GiB");
        assert_eq!(running(0), (1, (plans[0].pages() * PAGE_SIZE) >> 30));
        assert_eq!(running(3599), (guests, gib));
        assert_eq!(plans.len(), guests + 30);
        assert_eq!(plans.iter().filter(|plan| plan.stops.is_some()).count(), 30);
    }

    #[test]
    fn boots_settle_and_page_caches_grow() {
        let fleet = SimFleet {
            images: 1,
            sizes: 1..=1,
            size_step: 16 << 20,
            host_bytes: 36 << 20,
            booting: 0.125,
            growing: 0.125,
            growing_over: Duration::from_secs(100),
            exchange_every: Duration::ZERO,
            ..SimFleet::default()
        };
        for run_pages in [1, 16] {
            let mut machine = SimMachine::new(fleet.config(run_pages));
            fleet.plans().into_iter().for_each(|plan| machine.start(plan));
            let mut attainable = |seconds: u64| {
                machine.advance(Duration::from_secs(seconds).saturating_sub(machine.now()));
                machine.attainable_pages().div_ceil(128)
            };
            let (young, booted, grown) = (attainable(6), attainable(36), attainable(200));
            // Of two guests of 4096 pages: 512 that the boot leaves, and 512 of page cache, a part of which is there early.
            assert!((4..=6).contains(&(booted - young)), "{young}, then {booted}");
            assert!((2..=4).contains(&(grown - booted)), "{booted}, then {grown}");
        }
    }

    #[test]
    fn guests_come_more_rarely_at_night() {
        let day = SimFleet { duration: Duration::from_secs(24 * 3600), ..SimFleet::default() };
        let night = SimFleet { night_permille: 100, ..day.clone() };
        let later = |fleet: &SimFleet| {
            fleet.plans().iter().filter(|plan| plan.starts >= Duration::from_secs(12 * 3600)).count()
        };
        assert!(later(&day) > 9 * later(&night) && later(&night) > 60, "{} {}", later(&day), later(&night));
    }

    #[test]
    fn the_seed_decides() {
        let plans = |seed| SimFleet { seed, ..SimFleet::default() }.plans();
        assert_eq!(plans(1), plans(1));
        assert_ne!(plans(1), plans(2));
    }
}
