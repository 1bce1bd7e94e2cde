//! The states of one page while it is folded, walked through completely: a folding thread, a program that writes and reads, a device
//! that has the page pinned, forks, threads that begin and end, and other mappings take their steps in every order. No write is lost,
//! neither in the program nor in a child, and no thread that has ended is waited for.
//!
//! It stands for a model in TLA+ or by loom: the actors meet in the kernel's page tables, which no tool for atomics of Rust sees. One page
//! is enough, since no safeguard depends on another page; and the walk is complete, which random runs are not.
//!
//! The steps are those of `src/fold/window.rs`; what the kernel does in each is what ioctl_userfaultfd(2) and mm/userfaultfd.c say.
//! With a safeguard taken out the walk finds a lost write: so each is needed, and the walk would see its absence.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::collections::HashSet;

/// What keeps writes from being lost.
#[derive(Debug, Clone, Copy)]
struct Safeguards {
    /// Writers wait from the protection on.
    protects: bool,
    /// The page is looked at while it is protected.
    has_second_look: bool,
    /// Accesses wait while the page is not there.
    watches_holes: bool,
    /// The kernel takes out no page that is pinned.
    refuses_pinned: bool,
    /// The page is looked at when it has been taken out.
    has_third_look: bool,
    /// A fork waits until the folding thread has read of it, and no page is taken out meanwhile.
    tells_forks: bool,
    /// Only what was zero at the first look is protected.
    has_first_look: bool,
    /// A page that is not there when it is to be taken out does not count as taken.
    passes_over_holes: bool,
    /// No thread begins while a chunk is folded, and no chunk is folded while one begins.
    has_gate: bool,
    /// The range is watched for changes of its mapping before the first look.
    watches_first: bool,
}

/// Where forks are told: nothing is protected.
const TOLD: Safeguards = Safeguards {
    protects: false,
    has_second_look: false,
    watches_holes: true,
    refuses_pinned: true,
    has_third_look: true,
    tells_forks: true,
    has_first_look: true,
    passes_over_holes: true,
    has_gate: true,
    watches_first: true,
};

/// Where forks are not told.
const UNTOLD: Safeguards = Safeguards { protects: true, has_second_look: true, tells_forks: false, ..TOLD };

/// A page of memory: what it holds, whether a device has pinned it, and whether a child's page table has it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Page {
    value: u8,
    is_pinned: bool,
    is_shared: bool,
}

const NEW: Page = Page { value: 0, is_pinned: false, is_shared: false };

/// The next step of the folding thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Close,
    Watch,
    FirstLook,
    Protect,
    SecondLook,
    WatchHoles,
    TakeOut,
    ThirdLook,
    PutBack,
    Release,
    ReadEvents,
    Discard,
    Done,
}

/// A fork that the folding thread has not read of: what the child has, what it must have, and whether it lacks the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Fork {
    has: u8,
    wanted: u8,
    lacks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    home: Option<Page>,
    target: Option<Page>,
    is_protected: bool,
    is_watched: bool,
    is_registered: bool,
    step: Step,
    fork: Option<Fork>,
    has_pin: bool,
    /// What the last write that is complete has written.
    truth: u8,
    writes_left: u8,
    device_writes_left: u8,
    pins_left: u8,
    forks_left: u8,
    passes_left: u8,
    /// Whether the page has the word that the kernel clears as a thread ends.
    has_thread: bool,
    /// How often another thread may discard the page, as asked for before the range was watched.
    discards_left: u8,
    /// Whether a thread is being made with the page in its stack, and how often one may be: as asked for by the program.
    is_beginning: bool,
    births_left: u8,
    /// How often the memory may be unmapped, and mapped anew for a thread of libc's own.
    mappings_left: u8,
    /// Whether the folding thread has to read of that, and whether it is so.
    is_changed: bool,
    is_libcs: bool,
}

impl State {
    fn first() -> Self {
        Self {
            home: Some(NEW),
            target: None,
            is_protected: false,
            is_watched: false,
            is_registered: false,
            step: Step::Close,
            fork: None,
            has_pin: false,
            truth: 0,
            writes_left: 2,
            device_writes_left: 2,
            pins_left: 2,
            forks_left: 2,
            passes_left: 2,
            has_thread: false,
            discards_left: 1,
            is_beginning: false,
            births_left: 0,
            mappings_left: 0,
            is_changed: false,
            is_libcs: false,
        }
    }

    /// A page of zeros that becomes the stack of a thread.
    fn of_a_birth() -> Self {
        Self { births_left: 2, mappings_left: 1, writes_left: 1, pins_left: 0, forks_left: 1, ..Self::first() }
    }

    /// Whether the gate is closed.
    fn is_closed(&self) -> bool {
        !matches!(self.step, Step::Close | Step::Discard | Step::Done)
    }

    /// A page with the data of a thread, which is never zero while the thread lives.
    fn of_a_thread() -> Self {
        Self {
            home: Some(Page { value: 9, ..NEW }),
            truth: 9,
            has_thread: true,
            writes_left: 0,
            pins_left: 0,
            ..Self::first()
        }
    }

    /// Whether an access in the program sees the page as it is; `None`: it waits.
    fn seen(&self) -> Option<u8> {
        match self.home {
            Some(page) => Some(page.value),
            None if self.is_watched => None,
            None => Some(0),
        }
    }

    /// The page, made writable for the program or for a device. `None`: that waits.
    fn writable(&self) -> Option<Page> {
        match self.home {
            Some(_) if self.is_protected => None,
            // A copy for the program alone, where a child has the page too.
            Some(page) => Some(Page { is_shared: false, ..page }),
            None if self.is_watched => None,
            None => Some(NEW),
        }
    }

    /// All states that the program, a device and the kernel can make of this one. An error names what is lost.
    fn others(self, guards: Safeguards) -> Result<Vec<Self>, String> {
        let mut next = Vec::new();
        if self.seen().is_some_and(|seen| seen != self.truth) {
            return Err(format!("a read sees {:?}, not {}", self.seen(), self.truth));
        }
        if self.has_thread {
            // The thread ends. The kernel does not wait, and so fails to write where another access would wait.
            let Some(page) = self.writable() else {
                return Err("a thread that has ended is waited for".to_owned());
            };
            let home = Some(Page { value: 1, ..page });
            next.push(Self { home, truth: 1, has_thread: false, writes_left: 2, ..self });
        }
        // A thread is made, begins, and is there.
        let may_begin = self.births_left > 0 && !self.is_beginning && !self.has_thread;
        if may_begin && !self.is_libcs && !(guards.has_gate && self.is_closed()) {
            next.push(Self { is_beginning: true, births_left: self.births_left - 1, ..self });
        }
        if let Some(page) = self.writable().filter(|_| self.is_beginning && !self.has_thread) {
            next.push(Self { home: Some(Page { value: 9, ..page }), truth: 9, has_thread: true, ..self });
        }
        if self.is_beginning && self.has_thread {
            next.push(Self { is_beginning: false, ..self });
        }
        // The memory is unmapped, and libc maps it anew for a thread of its own. Nothing watches that mapping yet.
        if may_begin && self.mappings_left > 0 && !self.is_libcs {
            let new = Self { home: None, truth: 0, is_protected: false, is_watched: false, ..self };
            next.push(Self { is_changed: self.is_registered, is_libcs: true, mappings_left: 0, ..new });
        }
        // That thread does not stop at the gate.
        let fresh = self.writable().filter(|_| may_begin && self.is_libcs && self.home.is_none());
        if let Some(page) = fresh {
            let home = Some(Page { value: 9, ..page });
            next.push(Self { home, truth: 9, has_thread: true, births_left: self.births_left - 1, ..self });
        }
        // Discarding waits where a range is watched, but for one that was asked for before.
        if self.discards_left > 0
            && !self.has_thread
            && !self.is_libcs
            && self.home.is_some_and(|page| !page.is_pinned)
        {
            next.push(Self { home: None, truth: 0, discards_left: 0, ..self });
        }
        if let Some(page) = self.writable() {
            // A program writes neither to the data of a thread nor to libc's memory.
            if self.writes_left > 0 && !self.has_thread && !self.is_libcs {
                for value in [0, self.writes_left] {
                    let home = Some(Page { value, ..page });
                    next.push(Self { home, truth: value, writes_left: self.writes_left - 1, ..self });
                }
            }
            if self.pins_left > 0 && !self.has_pin {
                let home = Some(Page { is_pinned: true, ..page });
                next.push(Self { home, has_pin: true, pins_left: self.pins_left - 1, ..self });
            }
        }
        if self.has_pin {
            let at_pinned = |change: fn(Page, u8) -> Page, value: u8| {
                let one =
                    |page: Option<Page>| page.map(|page| if page.is_pinned { change(page, value) } else { page });
                Self { home: one(self.home), target: one(self.target), ..self }
            };
            next.push(Self { has_pin: false, ..at_pinned(|page, _| Page { is_pinned: false, ..page }, 0) });
            if self.device_writes_left > 0 {
                for value in [0, 100 + self.device_writes_left] {
                    let written = at_pinned(|page, value| Page { value, ..page }, value);
                    next.push(Self { truth: value, device_writes_left: self.device_writes_left - 1, ..written });
                }
            }
        }
        // Not beside I/O under way: open(2).
        if self.forks_left > 0 && self.fork.is_none() && !self.has_pin {
            let has = self.home.map_or(0, |page| page.value);
            let home = self.home.map(|page| Page { is_shared: true, ..page });
            let forked = Self { home, forks_left: self.forks_left - 1, ..self };
            if guards.tells_forks && self.is_registered {
                // What was taken out of memory that is unmapped by now is refused by the child's.
                let fork = Fork { has, wanted: self.truth, lacks: self.home.is_none() && !self.is_changed };
                next.push(Self { fork: Some(fork), ..forked });
            } else if has == self.truth {
                next.push(forked);
            } else {
                return Err(format!("a child has {has}, not {}", self.truth));
            }
        }
        if let Some(page) = self.home.filter(|page| page.is_shared) {
            // The child has ended, or has written.
            next.push(Self { home: Some(Page { is_shared: false, ..page }), ..self });
        }
        Ok(next)
    }

    /// What the folding thread makes of this state.
    fn folded(self, guards: Safeguards) -> Result<Option<Self>, String> {
        let at = |step: Step| Self { step, ..self };
        let is_zero = |page: Option<Page>| page.is_some_and(|page| page.value == 0);
        Ok(Some(match self.step {
            // The folding thread leaves the chunk alone after a while.
            Step::Close if guards.has_gate && self.is_beginning => at(Step::Done),
            Step::Close if !guards.watches_first => at(Step::FirstLook),
            Step::Close => at(Step::Watch),
            Step::Watch => Self { is_registered: true, is_changed: false, ..at(Step::FirstLook) },
            Step::FirstLook if is_zero(self.home) => at(Step::Protect),
            // Pages between two runs of zero pages are in the range too.
            Step::FirstLook if self.home.is_some() && !guards.has_first_look => at(Step::Protect),
            Step::FirstLook => at(Step::Release),
            // The kernel protects nothing while a change was not read.
            Step::Protect if self.is_changed => at(Step::Release),
            Step::Protect => Self { is_protected: guards.protects, is_registered: true, ..at(Step::SecondLook) },
            Step::SecondLook if guards.has_second_look && !is_zero(self.home) => at(Step::Release),
            Step::SecondLook => at(Step::WatchHoles),
            Step::WatchHoles => Self { is_watched: guards.watches_holes, ..at(Step::TakeOut) },
            Step::TakeOut => {
                // What another page table has is never taken out.
                let is_refused = |page: &Page| guards.refuses_pinned && page.is_pinned || page.is_shared;
                match self.home {
                    None if !guards.passes_over_holes => at(Step::ThirdLook),
                    Some(page) if self.fork.is_none() && !self.is_changed && !is_refused(&page) => {
                        Self { home: None, target: Some(page), ..at(Step::ThirdLook) }
                    }
                    _ => at(Step::Release),
                }
            }
            Step::ThirdLook if self.target.is_none() => {
                return Err("the folding thread waits for itself, at a page of the scratch memory".to_owned());
            }
            Step::ThirdLook if guards.has_third_look && !is_zero(self.target) => at(Step::PutBack),
            Step::ThirdLook => at(Step::Release),
            Step::PutBack => match self.fork {
                // The child is given what it lacks.
                Some(fork) => {
                    let has = if fork.lacks { self.target.map_or(0, |page| page.value) } else { fork.has };
                    Self { fork: None, ..self }.after(Fork { has, ..fork })?
                }
                // Its memory is gone.
                None if self.is_changed => Self { is_changed: false, ..at(Step::Release) },
                None if self.home.is_some() => {
                    return Err("there is a page where another is to be put back".to_owned());
                }
                None => Self { home: self.target, target: None, ..at(Step::Release) },
            },
            Step::Release => {
                Self { is_protected: false, is_watched: false, is_registered: false, ..at(Step::ReadEvents) }
            }
            Step::ReadEvents => match self.fork {
                Some(fork) => Self { fork: None, ..self }.after(fork)?,
                None => Self { is_changed: false, ..at(Step::Discard) },
            },
            Step::Discard => Self { target: None, ..at(Step::Done) },
            Step::Done if self.passes_left > 1 => Self { passes_left: self.passes_left - 1, ..at(Step::Close) },
            Step::Done => return Ok(None),
        }))
    }

    /// The child goes on with what it has.
    fn after(self, fork: Fork) -> Result<Self, String> {
        match fork.has == fork.wanted {
            true => Ok(self),
            false => Err(format!("a child has {}, not {}", fork.has, fork.wanted)),
        }
    }
}

/// Walks through all states that come of these. Returns how many there are, and in how many the page is folded.
fn walk_from(first: &[State], guards: Safeguards) -> Result<(usize, usize), String> {
    let mut seen = HashSet::new();
    let mut left = first.to_vec();
    let mut folded = 0;
    while let Some(state) = left.pop() {
        if !seen.insert(state) {
            continue;
        }
        folded += usize::from(state.step == Step::Done && state.home.is_none());
        let tell = |why: String| format!("{why}: {state:?}");
        left.extend(state.others(guards).map_err(tell)?);
        match state.folded(guards).map_err(tell)? {
            Some(next) => left.push(next),
            // Nothing waits for ever.
            None if state.is_protected || state.is_watched || state.fork.is_some() || state.is_changed => {
                return Err(tell("something waits for ever".to_owned()));
            }
            None => {}
        }
    }
    Ok((seen.len(), folded))
}

/// The same of every beginning.
fn walk(guards: Safeguards) -> Result<(usize, usize), String> {
    walk_from(&[State::first(), State::of_a_thread(), State::of_a_birth()], guards)
}

/// Beginnings where forks are not told: there is a device or a discarding thread, or there are forks.
fn untold() -> [State; 4] {
    let quiet = State { pins_left: 0, discards_left: 0, ..State::first() };
    let without_forks = |state: State| State { forks_left: 0, ..state };
    [quiet, without_forks(State::first()), without_forks(State::of_a_thread()), without_forks(State::of_a_birth())]
}

#[test]
fn no_write_is_lost_in_any_order() {
    let (states, folded) = walk(TOLD).unwrap();
    assert!(states > 10_000 && folded > 100, "{states} states, {folded} of them folded");
    let (states, folded) = walk_from(&untold(), UNTOLD).unwrap();
    assert!(states > 5000 && folded > 100, "{states} states, {folded} of them folded");
}

#[test]
fn each_safeguard_is_needed() {
    for (name, guards) in [
        ("the third look", Safeguards { has_third_look: false, ..TOLD }),
        ("the watch of holes", Safeguards { watches_holes: false, ..TOLD }),
        ("the refusal of what is pinned", Safeguards { refuses_pinned: false, ..TOLD }),
        ("the event of a fork", Safeguards { tells_forks: false, ..TOLD }),
        ("the first look", Safeguards { has_first_look: false, ..TOLD }),
        ("the passing over of holes", Safeguards { passes_over_holes: false, ..TOLD }),
        ("the gate", Safeguards { has_gate: false, ..TOLD }),
        ("the watch before the first look", Safeguards { watches_first: false, ..TOLD }),
    ] {
        assert!(walk(guards).is_err(), "without {name} the walk finds no lost write");
    }
    for (name, guards) in [
        ("the protection", Safeguards { protects: false, ..UNTOLD }),
        ("the second look", Safeguards { has_second_look: false, ..UNTOLD }),
        ("the third look", Safeguards { has_third_look: false, ..UNTOLD }),
        ("the gate", Safeguards { has_gate: false, ..UNTOLD }),
        ("the watch before the first look", Safeguards { watches_first: false, ..UNTOLD }),
    ] {
        assert!(walk_from(&untold(), guards).is_err(), "without {name} the walk finds no lost write");
    }
}

/// With all events told, protecting pages would only save the work of putting back.
#[test]
fn protection_beside_events_of_forks_changes_nothing() {
    walk(Safeguards { protects: true, has_second_look: true, ..TOLD }).unwrap();
}
