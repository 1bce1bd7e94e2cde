//! A story: what happens on the simulated host. A scenario of the lab, or a made-up fleet.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ksmith_core::decide::PolicyLimits;
use ksmith_core::sim::{GuestDemand, GuestPlan, PAGE_SIZE, SimGuestId, SimMachine, UNIQUE};
use ksmith_host::bad_file::{BadFile, read_text};

use super::SimulatedHost;
use super::filling::{FilledGuest, StartedJob};
use super::fleet_file;
use super::wishes::StoryOverrides;
use crate::scenario::{GuestAction, GuestInstance, Scenario, ScenarioError, ScenarioForm};
use crate::{GuestPages, MemoryPart};

/// A course of events on the simulated host.
#[derive(Debug, Clone, PartialEq)]
pub enum SimulationStory {
    /// A scenario of the lab.
    Scenario(Scenario),
    /// Guests with their plans: a made-up fleet, or a replay.
    Planned {
        /// Name of the file, without its ending.
        name: String,
        /// Description in one sentence.
        about: String,
        /// The guests with all their memory.
        plans: Vec<GuestPlan>,
        /// The same guests with their demand for memory. Empty if that is not known.
        guests: Vec<(GuestPlan, GuestDemand)>,
        /// True if `plans` lack memory that comes and goes.
        has_demands: bool,
        /// The simulated time that it takes.
        duration: Duration,
        /// Memory of the host, in bytes.
        host_bytes: u64,
        /// The guests' rate of rewriting memory at night, in thousandths of the day's.
        night_permille: u32,
    },
}

/// An error of loading or simulating a story.
#[derive(Debug, thiserror::Error)]
pub enum StoryError {
    /// The file can't be read or is refused.
    #[error(transparent)]
    File(#[from] BadFile),
    /// The scenario is refused.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Contents of a guest are not known.
    #[error(
        "scenario {scenario} has guest {guest} with contents that are not known: only guests with parts can be simulated"
    )]
    Unknown {
        /// The scenario.
        scenario: String,
        /// The guest.
        guest: String,
    },
}

/// Reads a file, and gives its text a meaning.
pub(super) fn read<T>(
    path: &Path,
    what: &'static str,
    meaning: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, StoryError> {
    let unreadable = |source| BadFile::Unreadable { what, path: path.to_owned(), source };
    let text = read_text(path).map_err(unreadable)?;
    let refuse = |message: String| BadFile::Meaningless { path: path.to_owned(), message };
    Ok(meaning(&text).map_err(|message| refuse(message.trim_end().to_owned()))?)
}

impl SimulationStory {
    /// Reads the story at `path`.
    ///
    /// # Errors
    /// The file can't be read or is refused, or has guests with contents that are not known.
    pub fn load(path: &Path, form: ScenarioForm, wishes: StoryOverrides) -> Result<Self, StoryError> {
        let is_fleet = read(path, "scenario", |text| Ok(fleet_file::is_fleet(text)))?;
        if is_fleet {
            let (about, fleet) = read(path, "scenario", |text| fleet_file::parse(text, wishes))?;
            let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            return Ok(Self::Planned {
                name,
                about,
                plans: fleet.plans(),
                guests: fleet.guests(),
                has_demands: fleet.has_demands(),
                duration: fleet.duration,
                host_bytes: fleet.host_bytes,
                night_permille: fleet.night_permille,
            });
        }
        let mut scenario = Scenario::load(path, form)?;
        if let Some(pages) = wishes.pages {
            scenario.set_pages(pages);
        }
        match scenario.instances.iter().find(|instance| instance.kind.contents().is_none()) {
            Some(guest) => Err(StoryError::Unknown { scenario: scenario.name.clone(), guest: guest.name.clone() }),
            None => Ok(Self::Scenario(scenario)),
        }
    }

    /// The name on the command line.
    pub fn name(&self) -> &str {
        match self {
            Self::Scenario(scenario) => &scenario.name,
            Self::Planned { name, .. } => name,
        }
    }

    /// The description in one sentence.
    pub fn about(&self) -> &str {
        match self {
            Self::Scenario(scenario) => &scenario.about,
            Self::Planned { about, .. } => about,
        }
    }

    /// The pages that all guests' memory is on.
    pub(super) fn pages(&self) -> Option<GuestPages> {
        match self {
            Self::Scenario(scenario) => scenario.pages(),
            Self::Planned { .. } => Some(GuestPages::Small),
        }
    }

    /// The simulated time that it takes.
    pub fn duration(&self) -> Duration {
        match self {
            Self::Scenario(scenario) => scenario.duration,
            Self::Planned { duration, .. } => *duration,
        }
    }

    pub(crate) fn limits(&self) -> PolicyLimits {
        match self {
            Self::Scenario(scenario) => scenario.limits.clone(),
            Self::Planned { .. } => PolicyLimits::default(),
        }
    }

    /// The most bytes that guests hold.
    pub fn guest_bytes(&self) -> u64 {
        match self {
            Self::Scenario(scenario) => scenario.peak_bytes(),
            Self::Planned { host_bytes, .. } => *host_bytes,
        }
    }

    /// The length of a run of pages, chosen so that all parts of a scenario have whole runs.
    pub(super) fn run_pages(&self, host: &SimulatedHost) -> u32 {
        if let Some(pages) = host.run_pages {
            return pages;
        }
        match self {
            Self::Planned { host_bytes, .. } if *host_bytes <= SMALL_HOST => 8,
            Self::Planned { .. } => 64,
            Self::Scenario(scenario) => {
                let contents = scenario.instances.iter().filter_map(|instance| instance.kind.contents());
                let parts = contents.flat_map(|contents| &contents.0);
                let lengths = parts.map(count_pages).filter(|pages| *pages > 0);
                // The lowest bit that is set in any: the greatest power of two that divides all.
                let bits = lengths.fold(LONGEST_IN_SCENARIOS, |bits, pages| bits | pages);
                1 << bits.trailing_zeros()
            }
        }
    }

    /// About the memory that a run takes.
    pub(super) fn memory_needed(&self, host: &SimulatedHost) -> u64 {
        // 16 bytes a page, as much again for contents and guests that end, and what a run takes in any case.
        self.guest_bytes() / PAGE_SIZE / u64::from(self.run_pages(host)) * 32 + (64 << 20)
    }
}

/// Larger hosts are kept in long runs.
const SMALL_HOST: u64 = 64 << 30;

/// The longest run of a scenario: its guests are small.
const LONGEST_IN_SCENARIOS: u32 = 16;

/// Returns the pages that a part of a scenario has on the simulated machine.
fn count_pages(part: &MemoryPart) -> u32 {
    convert_pages(part.pages(), rustix::param::page_size())
}

/// Converts pages of a host to those of the simulated machine.
fn convert_pages(pages: usize, page_size: usize) -> u32 {
    u32::try_from((pages as u64).saturating_mul(page_size as u64) / PAGE_SIZE).unwrap_or(u32::MAX)
}

/// The guests of a scenario as plans, and what a timeline does to them.
#[derive(Debug)]
pub(super) struct StoryGuests {
    plans: Vec<GuestPlan>,
    parts: Vec<Vec<MemoryPart>>,
}

impl StoryGuests {
    pub fn from_scenario(scenario: &Scenario) -> Self {
        let mut labels: BTreeMap<u64, u16> = BTreeMap::new();
        let mut label = |seed: u64| {
            let next = labels.len() as u16;
            *labels.entry(seed).or_insert(next)
        };
        let parts: Vec<Vec<MemoryPart>> = scenario
            .instances
            .iter()
            .map(|instance| instance.kind.contents().map(|contents| contents.0.clone()).unwrap_or_default())
            .collect();
        let empty = |instance: &GuestInstance| {
            let plan = GuestPlan::new(&instance.name);
            if instance.kind.is_huge() { plan.huge() } else { plan }
        };
        let plans = scenario.instances.iter().zip(&parts).map(|(instance, parts)| {
            parts.iter().fold(empty(instance), |plan, part| match (*part, count_pages(part)) {
                (MemoryPart::Equal { seed, .. }, pages) => plan.equal(label(seed), pages),
                // Seeds of mixed parts are not those of equal ones.
                (MemoryPart::Mixed { seed, .. }, pages) => plan.mixed(label(!seed), pages),
                (MemoryPart::Zero { .. }, pages) => plan.zero(pages),
                (MemoryPart::Churn { every, .. }, pages) => plan.rewritten(pages, every),
                // A worker is set to work once its guest has started.
                (_, pages) => plan.unique(pages),
            })
        });
        Self { plans: plans.collect(), parts }
    }

    /// Carries out an action, and returns the write job that starts with it, if there is one. `guests` has the
    /// machine's guest for each that has started.
    pub fn apply_action(
        &self,
        machine: &mut SimMachine,
        guests: &mut BTreeMap<usize, SimGuestId>,
        run_pages: u32,
        deed: &GuestAction,
    ) -> Option<StartedJob> {
        match *deed {
            GuestAction::Start(guest) => {
                let (plan, parts) = (self.plans.get(guest)?, self.parts.get(guest)?.len());
                // As on the live kernel: the process is there first, and its memory comes page by page.
                let id = machine.add_guest(plan.name(), []);
                if plan.is_huge() {
                    machine.use_huge_pages(id);
                }
                guests.insert(guest, id);
                let contents = (0..parts).flat_map(|part| plan.part_contents(part, run_pages)).collect();
                return Some(StartedJob { guest, id, contents, is_new: true });
            }
            GuestAction::Stop(guest) => {
                if let Some(id) = guests.remove(&guest) {
                    machine.remove_guest(id);
                }
            }
            GuestAction::Rewrite { guest, part } | GuestAction::Refill { guest, part } => {
                let (plan, &id) = (self.plans.get(guest)?, guests.get(&guest)?);
                let is_refill = matches!(deed, GuestAction::Refill { .. });
                let contents = plan.part_contents(part, run_pages);
                let contents =
                    contents.map(|(place, content)| (place, if is_refill { content } else { UNIQUE })).collect();
                return Some(StartedJob { guest, id, contents, is_new: false });
            }
            GuestAction::Khugepaged(settings) => machine.set_khugepaged(settings),
            GuestAction::Work { guest, percent } => {
                let &id = guests.get(&guest)?;
                for (part, it) in self.parts.get(guest).into_iter().flatten().enumerate() {
                    if matches!(it, MemoryPart::Work { .. }) {
                        self.work(machine, id, guest, part, percent, run_pages);
                    }
                }
            }
        }
        None
    }

    /// Starts the rewriting of parts by a guest that has filled its memory.
    pub fn ready(&self, machine: &mut SimMachine, FilledGuest { guest, id }: FilledGuest, run_pages: u32) {
        for (part, it) in self.parts.get(guest).into_iter().flatten().enumerate() {
            match *it {
                MemoryPart::Work { percent, .. } => self.work(machine, id, guest, part, percent, run_pages),
                MemoryPart::Churn { every, .. } => self.rewrite(machine, id, guest, part, Some(every), run_pages),
                _ => {}
            }
        }
    }

    /// Sets the load of a guest's worker.
    fn work(
        &self,
        machine: &mut SimMachine,
        id: SimGuestId,
        guest: usize,
        part: usize,
        percent: u8,
        run_pages: u32,
    ) {
        let pages = self.parts.get(guest).and_then(|parts| parts.get(part)).map_or(0, count_pages);
        // It writes page after page, so that what it uses of a CPU is what its pages cost.
        let round = machine.write_time() * pages;
        let every = (percent > 0).then(|| round * 100 / u32::from(percent.max(1)));
        self.rewrite(machine, id, guest, part, every, run_pages);
    }

    /// Sets the interval at which a guest rewrites a part; `None` ends the rewriting.
    fn rewrite(
        &self,
        machine: &mut SimMachine,
        id: SimGuestId,
        guest: usize,
        part: usize,
        every: Option<Duration>,
        run_pages: u32,
    ) {
        let Some(plan) = self.plans.get(guest) else { return };
        let mut places = plan.part_contents(part, run_pages).map(|(place, _)| place);
        let Some(first) = places.next() else { return };
        machine.set_rewriting(id, first, 1 + places.count(), every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulated_machine_has_pages_of_its_own_size() {
        assert_eq!([4, 16, 64].map(|kib| convert_pages(3, kib << 10)), [3, 12, 48]);
        assert_eq!(convert_pages(usize::MAX, 64 << 10), u32::MAX);
    }
}
