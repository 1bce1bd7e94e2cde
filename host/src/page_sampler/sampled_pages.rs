//! Drawing and reading pages of processes, with a share of the waits for silent ones for each user.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::{Duration, Instant};

use ksmith_core::sample::ProcessId;

use crate::memory::error::UnreadableProcess;
use crate::memory::process::{AddressRange, OpenProcess};
use crate::proc_file::UnansweredRead;
use crate::reader::{
    ProcessReader, ReadPatience, SUSPECTS, SampledPage, SilentAccounts, SuspectAccount, WantedPages, accountable,
};

/// Addresses tried for each page: parts of a guest's memory may not be present.
const TRIES: usize = 4;

/// Deadlines for a batch of pages of one process, and for all pages.
const STALL: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// Silent processes of one user after which no more of its pages are read at that time: otherwise forty would use it up.
/// Guests may have one user all together, so that a few which stand still do not hide the others.
const SILENT_OF_ONE: usize = 8;

/// The location of a page: its process and virtual address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampledAddress {
    pub id: ProcessId,
    pub address: u64,
}

/// The answers of processes to a request for pages, in its order. `None` for one that was not asked.
type PageAnswers = Vec<Option<io::Result<Vec<Option<SampledPage>>>>>;

/// Access to processes, as drawing and reading pages needs it.
pub(crate) trait PageAccess: fmt::Debug {
    /// Returns the mappings of a process that KSM could merge.
    ///
    /// # Errors
    /// The process can't be read, or does not answer.
    fn list_stretches(&mut self, pid: u32) -> Result<Vec<AddressRange>, UnreadableProcess>;

    /// Reads pages of processes, as [`ProcessReader::read_pages`] does. Waits count to `shares`.
    fn read_pages(
        &mut self,
        wants: &[WantedPages<'_>],
        longest: Duration,
        shares: &mut SilentAccounts,
    ) -> PageAnswers;

    /// Looks up the account of a process.
    fn find_account(&self, pid: u32) -> SuspectAccount;
}

impl PageAccess for ProcessReader {
    fn list_stretches(&mut self, pid: u32) -> Result<Vec<AddressRange>, UnreadableProcess> {
        OpenProcess::open(pid).and_then(|process| process.stretches())
    }

    fn read_pages(
        &mut self,
        wants: &[WantedPages<'_>],
        longest: Duration,
        shares: &mut SilentAccounts,
    ) -> PageAnswers {
        self.read_pages_by_share(wants, ReadPatience::new(STALL, longest), shares)
    }

    fn find_account(&self, pid: u32) -> SuspectAccount {
        accountable::uid_of_pid(pid)
    }
}

/// Reads pages of processes in a child, since a process may block its reader.
#[derive(Debug, Default)]
pub(crate) struct SampledPageReader<A = ProcessReader> {
    processes: A,
}

impl SampledPageReader {
    /// Begins a turn, in which each user has one share of the waits.
    pub(crate) fn begin_shares() -> SilentAccounts {
        SilentAccounts::new(SILENT_OF_ONE)
    }
}

impl<A: PageAccess> SampledPageReader<A> {
    /// Draws pages of processes, so many of each, and reads them. Processes with unreadable memory are left out.
    pub(crate) fn draw(
        &mut self,
        wanted: impl Iterator<Item = (ProcessId, u64)>,
        page_size: u64,
        shares: &mut SilentAccounts,
    ) -> Vec<(SampledAddress, SampledPage)> {
        let random = RandomState::new();
        let mut parts = Vec::new();
        for (id, pages) in wanted {
            let rests = SUSPECTS.rests(id.pid, Instant::now());
            if rests || shares.is_held_back(id.pid, || self.processes.find_account(id.pid)) {
                continue;
            }
            // One process's at a time: a user may have as many mappings as the kernel lets.
            match self.processes.list_stretches(id.pid) {
                Ok(stretches) => parts.extend(tries(id, &stretches, pages, page_size, &random)),
                Err(UnreadableProcess::Unanswered(_)) => {
                    shares.count_silence(id.pid, || self.processes.find_account(id.pid));
                }
                Err(_) => {}
            }
        }
        self.read_parts(&parts, shares)
    }

    /// Reads these pages, if they are present and their processes answer.
    pub(crate) fn read(
        &mut self,
        places: &[Option<SampledAddress>],
        shares: &mut SilentAccounts,
    ) -> Vec<Option<SampledPage>> {
        self.read_within(places, LONGEST, shares)
    }

    /// Reads them within a time.
    pub(crate) fn read_within(
        &mut self,
        places: &[Option<SampledAddress>],
        longest: Duration,
        shares: &mut SilentAccounts,
    ) -> Vec<Option<SampledPage>> {
        let now = Instant::now();
        let asked: Vec<Option<SampledAddress>> =
            places.iter().map(|place| place.filter(|place| !SUSPECTS.rests(place.id.pid, now))).collect();
        let wanted: Vec<SampledAddress> = asked.iter().flatten().copied().collect();
        let addresses: Vec<u64> = wanted.iter().map(|place| place.address).collect();
        let mut rest = &addresses[..];
        let mut wants = Vec::new();
        for same in wanted.chunk_by(|one, other| one.id == other.id) {
            let (addresses, behind) = rest.split_at_checked(same.len()).unwrap_or_default();
            wants.extend(same.first().map(|place| WantedPages { pid: place.id.pid, addresses }));
            rest = behind;
        }
        let answers = self.processes.read_pages(&wants, longest, shares);
        // A process that did not answer before the deadline, was not asked, or has ended has no page.
        let pages_of = |(want, answer): (&WantedPages<'_>, Option<io::Result<_>>)| match answer {
            Some(Ok(pages)) => pages,
            Some(Err(error)) if UnansweredRead::find_in(&error).is_some() => {
                SUSPECTS.record_silence(want.pid, "mem", now);
                vec![None; want.addresses.len()]
            }
            _ => vec![None; want.addresses.len()],
        };
        let mut pages = wants.iter().zip(answers).flat_map(pages_of);
        asked.iter().map(|place| place.and_then(|_| pages.next()?)).collect()
    }

    /// Reads the first present page of each part.
    fn read_parts(
        &mut self,
        parts: &[[Option<SampledAddress>; TRIES]],
        shares: &mut SilentAccounts,
    ) -> Vec<(SampledAddress, SampledPage)> {
        let mut found: Vec<Option<(SampledAddress, SampledPage)>> = vec![None; parts.len()];
        for turn in 0..TRIES {
            let open = parts.iter().zip(&found).map(|(tries, found)| tries.get(turn).filter(|_| found.is_none()));
            let places: Vec<Option<SampledAddress>> = open.map(|place| *place?).collect();
            let pages = self.read(&places, shares).into_iter();
            for ((slot, place), page) in found.iter_mut().zip(places).zip(pages) {
                if let Some(drawn) = place.zip(page) {
                    *slot = Some(drawn);
                }
            }
        }
        found.into_iter().flatten().collect()
    }
}

/// Returns random candidate addresses for each of equal parts of a process's memory, to be tried in turn.
fn tries(
    id: ProcessId,
    stretches: &[AddressRange],
    count: u64,
    page_size: u64,
    random: &RandomState,
) -> impl Iterator<Item = [Option<SampledAddress>; TRIES]> {
    let pages: u64 = stretches.iter().map(|stretch| (stretch.end - stretch.start) / page_size).sum();
    let width = pages.div_ceil(count.max(1)).max(1);
    (0..count).map(move |part| {
        std::array::from_fn(|turn| {
            let within = random.hash_one((id.pid, part, turn)) % width;
            let address = nth_page(stretches, part * width + within, page_size)?;
            Some(SampledAddress { id, address })
        })
    })
}

/// Returns the address of the page with this number, counted through all stretches.
pub(crate) fn nth_page(stretches: &[AddressRange], mut number: u64, page_size: u64) -> Option<u64> {
    for stretch in stretches {
        let pages = (stretch.end - stretch.start) / page_size;
        if number < pages {
            return Some(stretch.start + number * page_size);
        }
        number -= pages;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use ksmith_core::kernel::PageEntry;

    use super::*;

    const PAGE: u64 = 4096;

    /// PIDs beyond those of any process, for the back-off of real ones.
    const FIRST: u32 = 4_200_000_000;

    fn of_user(user: u32, count: u32) -> impl Iterator<Item = u32> + Clone {
        (0..count).map(move |number| FIRST + user * 1000 + number)
    }

    fn user_of(pid: u32) -> u32 {
        (pid - FIRST) / 1000
    }

    /// Processes with 4 MiB each, some of which do not answer.
    #[derive(Debug, Default)]
    struct SimulatedProcesses {
        /// Those that do not answer at all, and those that answer until a page is read.
        silent: BTreeSet<u32>,
        silent_when_read: BTreeSet<u32>,
        /// Waits for processes, by user.
        waits: BTreeMap<u32, usize>,
    }

    impl SimulatedProcesses {
        fn wait_for(&mut self, pid: u32) -> UnansweredRead {
            *self.waits.entry(user_of(pid)).or_default() += 1;
            UnansweredRead::new(pid, "mem")
        }
    }

    impl PageAccess for SimulatedProcesses {
        fn list_stretches(&mut self, pid: u32) -> Result<Vec<AddressRange>, UnreadableProcess> {
            if self.silent.contains(&pid) {
                return Err(self.wait_for(pid).into());
            }
            Ok(vec![AddressRange { start: 1 << 20, end: 5 << 20 }])
        }

        fn read_pages(
            &mut self,
            wants: &[WantedPages<'_>],
            longest: Duration,
            shares: &mut SilentAccounts,
        ) -> PageAnswers {
            let mut left = longest;
            let mut answer = |want: &WantedPages<'_>| {
                let account = || Some(user_of(want.pid));
                if left.is_zero() || shares.is_held_back(want.pid, account) {
                    return None;
                }
                if self.silent.contains(&want.pid) || self.silent_when_read.contains(&want.pid) {
                    left = left.saturating_sub(STALL);
                    shares.count_silence(want.pid, account);
                    return Some(Err(self.wait_for(want.pid).into()));
                }
                let page = SampledPage { content: want.pid.into(), entry: PageEntry(0) };
                Some(Ok(vec![Some(page); want.addresses.len()]))
            };
            wants.iter().map(&mut answer).collect()
        }

        fn find_account(&self, pid: u32) -> SuspectAccount {
            Some(user_of(pid))
        }
    }

    fn reader(silent: impl Iterator<Item = u32>, when_read: impl Iterator<Item = u32>) -> Reader {
        let processes = SimulatedProcesses {
            silent: silent.collect(),
            silent_when_read: when_read.collect(),
            ..SimulatedProcesses::default()
        };
        SampledPageReader { processes }
    }

    type Reader = SampledPageReader<SimulatedProcesses>;

    fn id(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 7 }
    }

    /// As many as would use up the time of all.
    #[test]
    fn silent_processes_of_one_user_keep_no_pages_of_another_from_being_sampled() {
        let (silent, good) = (of_user(1, 200), of_user(2, 1));
        let mut reader = reader(silent.clone(), std::iter::empty());
        let places: Vec<Option<SampledAddress>> =
            silent.chain(good).map(|pid| Some(SampledAddress { id: id(pid), address: 1 << 20 })).collect();
        let pages = reader.read(&places, &mut SampledPageReader::begin_shares());
        let contents: Vec<u64> = pages.into_iter().flatten().map(|page| page.content).collect();
        assert_eq!(contents, of_user(2, 1).map(u64::from).collect::<Vec<_>>());
        assert_eq!(reader.processes.waits, [(1, SILENT_OF_ONE)].into());
    }

    #[test]
    fn a_drawing_waits_for_one_share_of_a_users_silent_processes_however_often_it_tries() {
        let (silent, when_read, good) = (of_user(3, 5), of_user(3, 100).skip(5), of_user(4, 2));
        let mut reader = reader(silent.clone(), when_read.clone());
        let wanted = silent.chain(when_read).chain(good.clone()).map(|pid| (id(pid), 10));
        let drawn = reader.draw(wanted, PAGE, &mut SampledPageReader::begin_shares());
        let of_each = good.map(|pid| drawn.iter().filter(|(place, _)| place.id.pid == pid).count());
        assert_eq!(of_each.collect::<Vec<_>>(), [10, 10]);
        assert_eq!((drawn.len(), reader.processes.waits), (20, [(3, SILENT_OF_ONE)].into()));
    }
}
