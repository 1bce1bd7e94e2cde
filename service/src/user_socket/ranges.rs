//! The ranges of a process's memory that are worth merging: read as it is, compared within the user's own programs.
//!
//! Nothing of another user's memory goes into the answer: else a user could ask which of its pages another user has,
//! by a faster way than KSM itself opens. The reading is that of `ksmith estimate`, so merged pages stay merged and
//! nothing is faulted in.

use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ksmith_core::job::{ContentCensus, MemoryStretch, RangeTally, choose_stretches};
use ksmith_core::kernel::PidStat;
use ksmith_core::sample::ProcessId;

use super::budget::{BudgetError, UserBudgets};
use super::peer::{OtherRights, UserPeer};
use super::protocol::AdvisedRange;
use super::reading_thread::{HeldUpReadings, ReadingError, ReadingWatch};
use ksmith_host::memory::frames::FrameTable;
use ksmith_host::memory::pace::ReadPace;
use ksmith_host::memory::pinned::PinningCheck;
use ksmith_host::memory::process::{MappingDetail, OpenProcess};
use ksmith_host::memory::salt::FingerprintSalt;
use ksmith_host::memory::scan::{ScanBuffers, ScanContext, page_size};
use ksmith_host::own_use::thread_cpu;
use ksmith_host::root::Root;

/// The unit of judgement: 64 pages, and more if only a part of the contents is counted. Smaller pieces would split the
/// kernel's mappings further.
const PIECE: u64 = 256 << 10;

/// The most ranges of one answer.
const MOST: usize = 1024;

/// The age up to which a reading of a user's programs serves: ranks of one program ask within seconds.
const FRESH: Duration = Duration::from_secs(5);

/// Bytes that are scanned at once if single pieces need no count of zero pages.
const WINDOW: u64 = 64 << 20;

/// The most address space of one process that is looked through: it costs 2 GiB of page map for each TiB.
const MOST_ADDRESSES: u64 = 2 << 40;

/// The most memory of other processes that is read for comparison: 16 GiB take some eight seconds.
const MOST_BYTES: u64 = 16 << 30;

/// Pages that a reading remembers, with 16 bytes each: it bounds the daemon's memory.
const REMEMBERED: u64 = 1 << 20;

/// The largest process that is advised.
const LARGEST: u64 = 256 << 30;

/// The time after which a reading compares with no more processes. Small processes that map much are cheap to create
/// and expensive to read.
const LONGEST: Duration = Duration::from_secs(30);

/// Processes smaller than this are not compared with.
const SMALLEST: u64 = 1 << 20;

/// An error of a request for advice.
#[derive(Debug, thiserror::Error)]
pub enum RangesError {
    /// The user's budget is used up.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// Other requests are served.
    #[error("other programs' memory is being read; ask again in a minute")]
    Busy,
    /// The process has ceased to be the user's.
    #[error(
        "your process has other rights or another program than when it connected, or may not be read by its user"
    )]
    NotTheUsers,
    /// A process of the user's has held up an earlier reading, and still does.
    #[error("your memory could not be read in time, last that of your process {0}; ask again later")]
    HeldUp(u32),
    /// The process can't be read.
    #[error("your memory can't be read: {0}")]
    Unreadable(String),
    /// It is too large.
    #[error("your memory is larger than the daemon reads ({} GiB)", LARGEST >> 30)]
    TooLarge,
}

impl From<OtherRights> for RangesError {
    fn from(OtherRights: OtherRights) -> Self {
        Self::NotTheUsers
    }
}

impl From<ReadingError> for RangesError {
    fn from(error: ReadingError) -> Self {
        match error {
            ReadingError::HeldUp(pid) => Self::HeldUp(pid),
            ReadingError::Busy => Self::Busy,
            ReadingError::Failed(why) => Self::Unreadable(why.to_string()),
        }
    }
}

/// The longest wait for a turn. A reading may take [`LONGEST`]; libksmith waits a minute for its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads memory and advises. It makes one reading at a time: other requests wait for a limited time, and are answered
/// from the same reading if that serves.
#[derive(Debug)]
pub struct RangesAdviser {
    shelf: Mutex<ReadingShelf>,
    is_free: Condvar,
    patience: Duration,
    held_up: HeldUpReadings,
}

/// Returns the longest time of a reading for a process of `rss` bytes: a minute, for which libksmith waits, and a second
/// for each GiB, of which a second usually reads two.
fn longest_reading(rss: u64) -> Duration {
    Duration::from_secs(60 + (rss >> 30))
}

impl Default for RangesAdviser {
    fn default() -> Self {
        Self {
            shelf: Mutex::default(),
            is_free: Condvar::new(),
            patience: PATIENCE,
            held_up: HeldUpReadings::default(),
        }
    }
}

/// The last reading, while no request has it.
#[derive(Debug, Default)]
struct ReadingShelf {
    is_taken: bool,
    last: Option<ProgramsReading>,
}

/// The turn of a request, with the last reading, which it returns on drop.
#[derive(Debug)]
struct AdviserTurn<'a> {
    adviser: &'a RangesAdviser,
    last: Option<ProgramsReading>,
}

impl Drop for AdviserTurn<'_> {
    fn drop(&mut self) {
        let mut shelf = self.adviser.shelf();
        *shelf = ReadingShelf { is_taken: false, last: self.last.take() };
        drop(shelf);
        self.adviser.is_free.notify_one();
    }
}

/// An answer and the CPU time it took.
#[derive(Debug, Clone, PartialEq)]
pub struct RangesAdvice {
    /// In the order of addresses.
    pub ranges: Vec<AdvisedRange>,
    /// CPU time of reading; 0 if another request's reading served.
    pub cpu: Duration,
}

/// The contents of a user's programs at one time.
#[derive(Debug)]
struct ProgramsReading {
    taken: Instant,
    user: u32,
    census: ContentCensus,
    read: Vec<(ProcessId, u64, Arc<[MemoryPiece]>)>,
}

/// Some pages: their addresses and contents.
#[derive(Debug)]
struct MemoryPiece {
    start: u64,
    end: u64,
    tally: RangeTally,
    zero_mapped: u64,
}

impl RangesAdviser {
    fn shelf(&self) -> MutexGuard<'_, ReadingShelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> Result<AdviserTurn<'_>, RangesError> {
        let waited = self.is_free.wait_timeout_while(self.shelf(), self.patience, |shelf| shelf.is_taken);
        let (mut shelf, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if shelf.is_taken {
            return Err(RangesError::Busy);
        }
        shelf.is_taken = true;
        Ok(AdviserTurn { adviser: self, last: shelf.last.take() })
    }

    /// Returns the ranges of the peer's memory with at least `worth_permille` equal pages.
    ///
    /// The user is charged for the reading, whatever its outcome.
    ///
    /// # Errors
    /// It can't be read, or paid for.
    pub fn advise(
        &self,
        peer: &UserPeer,
        worth_permille: u64,
        budget: &UserBudgets,
    ) -> Result<RangesAdvice, RangesError> {
        let rss = rss_bytes(peer.id).ok_or_else(|| RangesError::Unreadable("the process has ended".to_owned()))?;
        if rss > LARGEST {
            return Err(RangesError::TooLarge);
        }
        let mut turn = self.turn()?;
        // Only now: of many that ask at once and have waited here, the first may have used it up.
        budget.check(peer.accountable_uid)?;
        let mut cpu = Duration::ZERO;
        let ranges = peer.examine(|| self.ranges_by_reading(&mut turn.last, peer, rss, worth_permille, &mut cpu));
        budget.charge(peer.accountable_uid, cpu);
        Ok(RangesAdvice { ranges: ranges?, cpu })
    }

    fn ranges_by_reading(
        &self,
        last: &mut Option<ProgramsReading>,
        peer: &UserPeer,
        rss: u64,
        worth_permille: u64,
        cpu: &mut Duration,
    ) -> Result<Vec<AdvisedRange>, RangesError> {
        let usable = last.as_ref().is_some_and(|reading| reading.serves(peer, rss));
        if !usable {
            *last = None;
            let begin = Instant::now();
            let user = RequestingProcess { id: peer.id, user: peer.user, name: peer.name.clone() };
            let read =
                move |watch: &ReadingWatch| (ProgramsReading::read_programs(&user, rss, watch), thread_cpu());
            let read = self.held_up.run(peer.accountable_uid, longest_reading(rss), read);
            // One that is held up costs the time for which it kept others waiting: it may take no CPU.
            *cpu = read.as_ref().map_or_else(|_| begin.elapsed(), |(_, used)| *used);
            *last = Some(read?.0?);
        }
        Ok(last.as_ref().map_or_else(Vec::new, |reading| reading.ranges(peer.id, worth_permille)))
    }
}

/// The process that sent the request, and its user.
#[derive(Debug)]
struct RequestingProcess {
    id: ProcessId,
    user: u32,
    name: String,
}

impl ProgramsReading {
    /// Returns true if it is recent, of this user, and has this process at about its present size.
    fn serves(&self, peer: &UserPeer, rss: u64) -> bool {
        let is_like = |then: u64| rss.abs_diff(then) <= then / 16;
        self.user == peer.user
            && self.taken.elapsed() < FRESH
            && self.read.iter().any(|(id, then, _)| *id == peer.id && is_like(*then))
    }

    fn read_programs(peer: &RequestingProcess, rss: u64, watch: &ReadingWatch) -> Result<Self, RangesError> {
        let unreadable = |why: String| RangesError::Unreadable(why);
        let begin = Instant::now();
        let salt = FingerprintSalt::new().map_err(|why| unreadable(why.to_string()))?;
        let context = ScanContext {
            salt,
            pace: ReadPace::new(None),
            frames: FrameTable::open(),
            // Pinning would be faster; it is not worth the risk here.
            quiet: PinningCheck::never(),
            page_size: page_size(),
        };
        let mut companions = companions(peer, watch);
        let mut bytes = 0_u64;
        companions.retain(|(_, rss)| {
            bytes = bytes.saturating_add(*rss);
            bytes <= MOST_BYTES
        });
        let all = companions.iter().map(|(_, rss)| rss).sum::<u64>().saturating_add(rss);
        let census = ContentCensus::new(all / page_size(), REMEMBERED);
        let mut reading = Self { taken: Instant::now(), user: peer.user, census, read: Vec::new() };
        reading.add(&context, peer.id, rss, watch).map_err(unreadable)?;
        for (id, rss) in companions {
            if begin.elapsed() > LONGEST || !watch.is_wanted() {
                break;
            }
            // One that ends or can't be read is no companion.
            let _ = reading.add(&context, id, rss, watch);
        }
        reading.census.close();
        reading.taken = Instant::now();
        Ok(reading)
    }

    fn add(&mut self, context: &ScanContext, id: ProcessId, rss: u64, watch: &ReadingWatch) -> Result<(), String> {
        watch.begin(id.pid);
        let process = OpenProcess::open(id.pid).map_err(|why| why.to_string())?;
        // Opened by its number: it must still be the same.
        if start_ticks(id.pid) != Some(id.start_ticks) {
            return Err("the process has ended".to_owned());
        }
        let memory = process.memory(MappingDetail::Headings).map_err(|why| why.to_string())?;
        // Asked with the memory open, which an exec after this would leave empty: a set-user-id program that the user
        // has begun is not the user's to read.
        if !process.is_of(self.user) {
            return Err("it is not its user's to read".to_owned());
        }
        let has_zero_pages = memory.ksm.zero_pages.unwrap_or(0) > 0;
        let mut scratch = ScanBuffers::new();
        let addresses = memory.stretches.iter().map(|stretch| stretch.end - stretch.start);
        if addresses.fold(0, u64::saturating_add) > MOST_ADDRESSES {
            return Err(format!("it maps more than {} TiB", MOST_ADDRESSES >> 40));
        }
        let mut pieces: Vec<MemoryPiece> = Vec::new();
        let mut stretches = memory.stretches.clone();
        stretches.sort_unstable_by_key(|stretch| stretch.start);
        let size = PIECE << self.census.shift();
        // The kernel's zero page has no content to report: it is only counted, so piece by piece.
        let window = if has_zero_pages { size } else { WINDOW.max(size) };
        for stretch in stretches {
            let mut start = stretch.start;
            while start < stretch.end {
                if !watch.is_wanted() {
                    return Err("it was read for too long".to_owned());
                }
                let end = ((start / window + 1) * window).min(stretch.end);
                let piece_of = |address: u64| MemoryPiece {
                    start: (address / size * size).max(start),
                    end: ((address / size + 1) * size).min(end),
                    tally: RangeTally::default(),
                    zero_mapped: 0,
                };
                let before = pieces.len();
                let census = &mut self.census;
                let told = scratch
                    .scan(context, &memory, start..end, |address, fingerprint| {
                        if pieces
                            .get(before..)
                            .and_then(<[MemoryPiece]>::last)
                            .is_none_or(|last| last.end <= address)
                        {
                            pieces.push(piece_of(address));
                        }
                        if let Some(last) = pieces.last_mut() {
                            last.tally.add(fingerprint, census);
                        }
                    })
                    .map_err(|_| "the process has ended".to_owned())?;
                if has_zero_pages && told.zero_mapped > 0 {
                    if pieces.len() == before {
                        pieces.push(piece_of(start));
                    }
                    if let Some(last) = pieces.last_mut() {
                        last.zero_mapped = told.zero_mapped;
                    }
                }
                start = end;
            }
        }
        self.read.push((id, rss, pieces.into()));
        Ok(())
    }

    fn ranges(&self, id: ProcessId, worth_permille: u64) -> Vec<AdvisedRange> {
        let pieces = self.read.iter().find(|(read, ..)| *read == id).map(|(.., pieces)| pieces);
        let stretch = |piece: &MemoryPiece| MemoryStretch {
            start: piece.start,
            end: piece.end,
            pages: piece.tally.pages() + piece.zero_mapped,
            // KSM has merged those already: to leave them out would bring them back.
            equal: piece.tally.equal(&self.census) + piece.zero_mapped,
        };
        let all: Vec<MemoryStretch> = pieces.into_iter().flat_map(|pieces| pieces.iter().map(stretch)).collect();
        let range = |stretch: &MemoryStretch| AdvisedRange {
            start: stretch.start,
            end: stretch.end,
            share_permille: stretch.permille(),
        };
        choose_stretches(&all, worth_permille, MOST).iter().map(range).collect()
    }
}

/// Returns the PIDs of processes of this effective user. Of others' no file is read, since it might not answer.
fn list_pids(user: u32) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let its = entries.filter(move |entry| entry.metadata().is_ok_and(|found| found.uid() == user));
    its.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the user's other processes that are likely to have equal pages, likeliest first: the same program, then
/// those that have opted in.
fn companions(peer: &RequestingProcess, watch: &ReadingWatch) -> Vec<(ProcessId, u64)> {
    let mut found: Vec<(bool, u64, ProcessId)> = list_pids(peer.user)
        .filter(|pid| *pid != peer.id.pid)
        .take_while(|pid| watch.begin(*pid))
        .filter_map(|pid| {
            let stat = stat(pid)?;
            let rss = stat.rss_pages?.saturating_mul(page_size());
            if stat.is_kernel_thread || stat.is_zombie || rss < SMALLEST {
                return None;
            }
            let process = OpenProcess::open(pid).ok()?;
            let is_same = stat.comm == peer.name;
            let belongs = process.is_of(peer.user) && (is_same || process.ksm().is_involved());
            belongs.then_some((is_same, rss, ProcessId { pid, start_ticks: stat.start_ticks }))
        })
        .collect();
    found.sort_unstable_by_key(|(is_same, rss, id)| (!is_same, std::cmp::Reverse(*rss), *id));
    found.into_iter().map(|(_, rss, id)| (id, rss)).collect()
}

fn stat(pid: u32) -> Option<PidStat> {
    let text = Root::host().text(format!("proc/{pid}/stat"));
    PidStat::parse(text.value()?).ok()
}

fn start_ticks(pid: u32) -> Option<u64> {
    stat(pid).map(|stat| stat.start_ticks)
}

fn rss_bytes(id: ProcessId) -> Option<u64> {
    stat(id.pid)
        .filter(|stat| stat.start_ticks == id.start_ticks)
        .and_then(|stat| Some(stat.rss_pages? * page_size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_waits_too_long_is_told_to_come_back() {
        let adviser = RangesAdviser { patience: Duration::from_millis(20), ..RangesAdviser::default() };
        let turn = adviser.turn().unwrap();
        assert!(matches!(adviser.turn(), Err(RangesError::Busy)));
        drop(turn);
        assert!(adviser.turn().is_ok());
    }

    #[test]
    fn processes_of_other_users_are_left_unread() {
        let own = std::process::id();
        let user = rustix::process::geteuid().as_raw();
        assert!(list_pids(user).any(|pid| pid == own));
        assert!(list_pids(user ^ 0x4000_0000).all(|pid| pid != own));
    }

    #[test]
    fn a_waiting_request_has_the_next_turn() {
        let adviser = RangesAdviser::default();
        let turn = adviser.turn().unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| adviser.turn().is_ok());
            drop(turn);
            assert!(next.join().unwrap());
        });
    }
}
