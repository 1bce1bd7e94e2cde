//! Folding without a call of the program: the library's thread folds all private memory when that has stopped growing, and again
//! where it pays.
//!
//! The first pass takes what it takes. Every other waits until the thread's CPU time is below its budget again. Orders and answers
//! are files in a directory that `ksmith run` makes, so that a program needs no signal and no descriptor for them:
//! `fold` is an order to all processes, each time that it is written; `PID.NUMBER` has the sums of one program. An order to all
//! programs of a user is a file that the daemon writes (`service/src/user_socket/fold.rs`).

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Done, Folded, Request, fold_all};
use crate::client::{self, Deadline};
use crate::lock::Exclusive;
use crate::sys::{self, Errno};
use crate::text::Line;
use crate::{file, marks, text};

/// When memory is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// When it has stopped growing, and again where it pays.
    EndOfInit,
    /// Every so many seconds.
    Every(u64),
    /// On an order only.
    OnDemand,
}

impl When {
    /// Parses `end-of-init`, `every=SECONDS` (an `s` may follow) or `on-demand`.
    pub fn of(words: &[u8]) -> Option<Self> {
        match words {
            b"end-of-init" => Some(Self::EndOfInit),
            b"on-demand" => Some(Self::OnDemand),
            _ => {
                let seconds = words.strip_prefix(b"every=")?;
                let seconds = text::decimal(seconds.strip_suffix(b"s").unwrap_or(seconds))?;
                (seconds > 0).then_some(Self::Every(seconds))
            }
        }
    }
}

/// The setting: 0 is off, 1 `EndOfInit`, 2 `OnDemand`, else the seconds and 2.
static WHEN: AtomicU64 = AtomicU64::new(0);
/// Thousandths of a core that later passes may take.
static BUDGET: AtomicU64 = AtomicU64::new(20);
/// The directory of orders and answers, with a zero byte at its end. Empty: there is none.
static PLACE: Exclusive<[u8; PATH]> = Exclusive::new([0; PATH]);
const PATH: usize = 256;

/// Sets what is to be done, before the thread starts.
pub fn set(when: Option<When>, budget: u64, place: Option<&[u8]>) {
    let number = match when {
        None => 0,
        Some(When::EndOfInit) => 1,
        Some(When::OnDemand) => 2,
        Some(When::Every(seconds)) => seconds.saturating_add(2),
    };
    WHEN.store(number, Relaxed);
    BUDGET.store(budget.clamp(1, 1000), Relaxed);
    if let (Some(place), Some(mut kept)) = (place, PLACE.take())
        && place.len() < PATH.saturating_sub(32)
    {
        kept.fill(0);
        kept.iter_mut().zip(place).for_each(|(kept, byte)| *kept = *byte);
    }
}

/// Whether this process is to be folded.
pub fn is_wanted() -> bool {
    WHEN.load(Relaxed) != 0
}

fn when() -> Option<When> {
    match WHEN.load(Relaxed) {
        0 => None,
        1 => Some(When::EndOfInit),
        2 => Some(When::OnDemand),
        more => Some(When::Every(more.saturating_sub(2))),
    }
}

/// Ticks in a second: the thread looks so often.
pub const TICKS: u64 = 4;

/// Ticks in which memory must not have grown: a quarter of the age, within these. Zeros that a program writes over in its first step
/// are written over by then.
const SHORTEST_WINDOW: u64 = TICKS / 2;
const LONGEST_WINDOW: u64 = 10 * TICKS;

/// A start that does not end is over after so many ticks.
const PATIENCE: u64 = 120 * TICKS;

/// Growth of one part in so many counts as none.
const STILL: u64 = 100;

/// A pass that gives back less than one part in so many of what it looked at did not pay.
const WORTH: u64 = 64;

/// Ticks until the next pass where the last one paid, and where none did for long.
const SOON: u64 = 10 * TICKS;
const LATE: u64 = 640 * TICKS;

/// What the thread knows of its process. A child of fork begins anew.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Ticks since the thread has begun, and those of the next pass.
    age: u64,
    next: u64,
    pause: u64,
    has_folded: bool,
    /// The most resident bytes since the last pass, and the age when they were last exceeded. A program that frees and allocates
    /// again and again does not grow.
    level: u64,
    level_age: u64,
    /// CPU time of all passes but the first, in nanoseconds.
    spent: u64,
    /// The age at which the first pass was over.
    begin: u64,
}

impl Schedule {
    /// That of a process that has just begun.
    pub const fn new() -> Self {
        Self { age: 0, next: 0, pause: SOON, has_folded: false, level: 0, level_age: 0, spent: 0, begin: 0 }
    }

    /// Takes in a tick with so many resident bytes. Returns whether to fold now.
    pub fn is_due(&mut self, when: When, resident: u64, is_ordered: bool, budget: u64) -> bool {
        self.age = self.age.saturating_add(1);
        let grown = resident.saturating_sub(self.level);
        let has_grown = grown > self.level / STILL;
        if has_grown {
            self.level = resident;
            self.level_age = self.age;
            // New memory may be folded soon.
            self.pause = SOON;
        }
        let window = (self.age / 4).clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
        let is_still = self.age.saturating_sub(self.level_age) >= window;
        if is_ordered {
            return true;
        }
        let is_affordable = {
            // Thousandths of a core in nanoseconds: a million a second.
            let ticks = self.age.saturating_sub(self.begin);
            self.spent <= ticks.saturating_mul(budget).saturating_mul(1_000_000 / TICKS)
        };
        match when {
            When::OnDemand => false,
            When::EndOfInit if !self.has_folded => is_still || self.age >= PATIENCE,
            When::EndOfInit => is_still && self.age >= self.next && is_affordable,
            When::Every(seconds) => {
                self.next = self.next.max(seconds.saturating_mul(TICKS));
                self.age >= self.next && (is_affordable || !self.has_folded)
            }
        }
    }

    /// Takes in a pass that took so much CPU time.
    pub fn folded(&mut self, when: When, folded: u64, looked: u64, cpu: u64) {
        if self.has_folded {
            self.spent = self.spent.saturating_add(cpu);
        } else {
            self.has_folded = true;
            self.begin = self.age;
        }
        self.pause = if folded < looked / WORTH { self.pause.saturating_mul(2).min(LATE) } else { SOON };
        self.next = self.age.saturating_add(match when {
            When::Every(seconds) => seconds.saturating_mul(TICKS),
            _ => self.pause,
        });
        self.level = self.level.saturating_sub(folded);
    }
}

/// The sums of one program.
#[derive(Debug, Clone, Copy)]
struct Sums {
    counts: Folded,
    passes: u64,
    cpu: u64,
    /// When they begin. After exec(2) there are new ones.
    since: u64,
}

/// What the library's thread keeps.
#[derive(Debug, Clone, Copy)]
pub struct Auto {
    schedule: Schedule,
    sums: Sums,
    /// When the last order was written that was carried out.
    order: u64,
    /// Whether the kernel has refused, so that no pass is of any use.
    is_over: bool,
}

impl Auto {
    /// Begins in this process.
    pub fn new() -> Self {
        let sums = Sums { counts: Folded::default(), passes: 0, cpu: 0, since: sys::now() };
        Self { schedule: Schedule::new(), sums, order: order(), is_over: false }
    }

    /// A tick has passed.
    pub fn tick(&mut self) {
        let Some(when) = when().filter(|_| !self.is_over) else { return };
        let order = order();
        let is_ordered = order != self.order;
        self.order = order;
        if !self.schedule.is_due(when, resident(), is_ordered, BUDGET.load(Relaxed)) {
            return;
        }
        let folded = fold_all(Request { threads: 1, is_still: false, is_without_io: false });
        match folded {
            Ok(Done { counts, cpu }) => {
                self.schedule.folded(when, counts.folded, counts.looked, cpu);
                self.sums.counts.add(&counts);
                self.sums.passes = self.sums.passes.saturating_add(1);
                self.sums.cpu = self.sums.cpu.saturating_add(cpu);
                tell(&self.sums, 0);
                tell_daemon(self.sums.counts.folded);
            }
            // The program folds by itself just now.
            Err(libc::EBUSY) => {}
            Err(errno) => {
                self.is_over = matches!(errno, libc::EPERM | libc::ENOSYS);
                tell(&self.sums, errno);
            }
        }
    }
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let mut buffer = [0_u8; 128];
    let mut pages = 0;
    let _ = file::lines(c"/proc/self/statm", &mut buffer, |line| {
        pages = text::words(line).nth(1).and_then(text::decimal).unwrap_or(0);
        false
    });
    pages.saturating_mul(marks::page() as u64)
}

/// The path of a file in the directory, if there is one.
fn path(name: impl FnOnce(Line<PATH>) -> Line<PATH>) -> Option<Line<PATH>> {
    let place = PLACE.take()?;
    let directory = CStr::from_bytes_until_nul(&*place).ok().filter(|place| !place.is_empty())?;
    Some(name(Line::new().add(directory.to_bytes()).add(b"/")).add(b"\0"))
}

/// When an order was written last, in nanoseconds; 0 if there is none. The job's own and the daemon's are alike.
fn order() -> u64 {
    let written = |path: &[u8]| CStr::from_bytes_with_nul(path).map_or(0, sys::written);
    let own = path(|path| path.add(b"fold")).map_or(0, |path| written(path.bytes()));
    own.max(written(client::fold_order(sys::user()).bytes()))
}

/// The longest time for the daemon's answer, in milliseconds.
const DAEMONS_TIME: core::ffi::c_int = 1000;

/// Tells the daemon what this program has folded, if one listens.
fn tell_daemon(folded: u64) {
    let request = Line::<64>::new().add(b"folded ").add_number(folded);
    let deadline = Deadline::in_milliseconds(DAEMONS_TIME).of_helper();
    let _ = client::ask(request.bytes(), deadline, |_| (), |_| Some(()));
}

/// Writes the sums of this program, whole: a reader finds the old or the new.
fn tell(sums: &Sums, errno: Errno) {
    let pid = u64::try_from(sys::pid()).unwrap_or(0);
    let Some(path) = path(|path| path.add_number(pid).add(b".").add_number(sums.since)) else { return };
    let Ok(path) = CStr::from_bytes_with_nul(path.bytes()) else { return };
    let Sums { counts, passes, cpu, .. } = sums;
    let mut line = Line::<512>::new();
    for (name, value) in [
        (&b"folded_bytes="[..], counts.folded),
        (b" looked_bytes=", counts.looked),
        (b" shared_bytes=", counts.shared),
        (b" pinned_bytes=", counts.pinned),
        (b" locked_bytes=", counts.locked),
        (b" huge_bytes=", counts.huge),
        (b" changed_bytes=", counts.changed),
        (b" cpu_nanoseconds=", *cpu),
        (b" passes=", *passes),
        (b" errno=", u64::try_from(errno).unwrap_or(0)),
    ] {
        line = line.add(name).add_number(value);
    }
    sys::write_file(path, line.add(b"\n").bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The seconds at which a process with that memory is folded, where each pass takes so much and folds so much.
    fn passes(when: When, memory: impl Fn(f64) -> u64, folded: u64, cpu: u64) -> Vec<f64> {
        let mut schedule = Schedule::new();
        let seconds = (1..=1000 * TICKS).map(|tick| tick as f64 / TICKS as f64);
        seconds
            .filter(|second| {
                let is_due = schedule.is_due(when, memory(*second), false, 20);
                if is_due {
                    schedule.folded(when, folded, 100 * MIB, cpu);
                }
                is_due
            })
            .collect()
    }

    #[test]
    fn words_and_seconds() {
        for (text, when) in [
            ("end-of-init", Some(When::EndOfInit)),
            ("on-demand", Some(When::OnDemand)),
            ("every=30s", Some(When::Every(30))),
            ("every=5", Some(When::Every(5))),
            ("every=0", None),
            ("every=s", None),
            ("often", None),
        ] {
            assert_eq!(When::of(text.as_bytes()), when, "{text}");
        }
    }

    #[test]
    fn the_first_pass_is_when_memory_has_stopped_growing() {
        let growing = |until: f64| move |second: f64| (second.min(until) * 100.0) as u64 * MIB;
        let first = |until| passes(When::EndOfInit, growing(until), 50 * MIB, 1_000_000)[0];
        assert!((50.0..=52.0).contains(&first(40.0)), "{}", first(40.0));
        assert!((2.5..=3.0).contains(&first(2.0)), "a short start: {}", first(2.0));
        assert_eq!(passes(When::EndOfInit, |_| 100 * MIB, 0, 1)[0], 0.75);
        assert_eq!(passes(When::EndOfInit, growing(1e9), 50 * MIB, 1)[0], 120.0, "it grows for ever");
        assert!(passes(When::OnDemand, |_| 100 * MIB, 0, 1).is_empty());
    }

    #[test]
    fn memory_that_is_freed_and_allocated_again_does_not_grow() {
        let swinging = |second: f64| if second.fract() < 0.5 { 100 * MIB } else { 150 * MIB };
        let first = passes(When::EndOfInit, swinging, 0, 1_000_000)[0];
        assert!(first < 2.0, "{first}");
    }

    #[test]
    fn a_pass_that_does_not_pay_makes_the_next_one_late() {
        let paying = passes(When::EndOfInit, |_| 100 * MIB, 50 * MIB, 1_000_000);
        let idle = passes(When::EndOfInit, |_| 100 * MIB, 0, 1_000_000);
        assert!(paying.len() > 40 && idle.len() < 10, "{paying:?} {idle:?}");
    }

    #[test]
    fn later_passes_stay_within_the_budget() {
        // Each takes 1 s, of which 20 ms a second are free: 50 s apart in the long run.
        for when in [When::EndOfInit, When::Every(5)] {
            let many = passes(when, |_| 100 * MIB, 50 * MIB, 1_000_000_000);
            assert!((15..=22).contains(&many.len()), "{when:?}: {many:?}");
        }
        assert_eq!(passes(When::Every(30), |_| 100 * MIB, 0, 1)[..3], [30.0, 60.0, 90.0]);
    }

    #[test]
    fn an_order_is_carried_out_at_once() {
        let mut schedule = Schedule::new();
        assert!(!schedule.is_due(When::OnDemand, MIB, false, 20));
        assert!(schedule.is_due(When::OnDemand, MIB, true, 20));
    }
}
