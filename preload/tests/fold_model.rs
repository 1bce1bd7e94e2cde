//! The states of one page while it is folded, walked through completely: a folding thread, a program that writes and reads, a device
//! that has the page pinned, and forks take their steps in every order. No write is lost, neither in the program nor in a child.
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
}

const ALL: Safeguards = Safeguards {
    protects: true,
    has_second_look: true,
    watches_holes: true,
    refuses_pinned: true,
    has_third_look: true,
    tells_forks: true,
    has_first_look: true,
    passes_over_holes: true,
};

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
}

impl State {
    fn first() -> Self {
        Self {
            home: Some(NEW),
            target: None,
            is_protected: false,
            is_watched: false,
            is_registered: false,
            step: Step::FirstLook,
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
        }
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
        // Discarding waits where a range is watched, but for one that was asked for before.
        if self.discards_left > 0 && !self.has_thread && self.home.is_some_and(|page| !page.is_pinned) {
            next.push(Self { home: None, truth: 0, discards_left: 0, ..self });
        }
        if let Some(page) = self.writable() {
            if self.writes_left > 0 {
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
                let fork = Fork { has, wanted: self.truth, lacks: self.home.is_none() };
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
            Step::FirstLook if is_zero(self.home) => at(Step::Protect),
            // Pages between two runs of zero pages are in the range too.
            Step::FirstLook if self.home.is_some() && !guards.has_first_look => at(Step::Protect),
            Step::FirstLook => at(Step::Done),
            Step::Protect => Self { is_protected: guards.protects, is_registered: true, ..at(Step::SecondLook) },
            Step::SecondLook if guards.has_second_look && !is_zero(self.home) => at(Step::Release),
            Step::SecondLook => at(Step::WatchHoles),
            Step::WatchHoles => Self { is_watched: guards.watches_holes, ..at(Step::TakeOut) },
            Step::TakeOut => {
                // What another page table has is never taken out.
                let is_refused = |page: &Page| guards.refuses_pinned && page.is_pinned || page.is_shared;
                match self.home {
                    None if !guards.passes_over_holes => at(Step::ThirdLook),
                    Some(page) if self.fork.is_none() && !is_refused(&page) => {
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
                None => at(Step::Discard),
            },
            Step::Discard => Self { target: None, ..at(Step::Done) },
            Step::Done if self.passes_left > 1 => Self { passes_left: self.passes_left - 1, ..at(Step::FirstLook) },
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

/// Walks through all states. Returns how many there are, and in how many the page is folded.
fn walk(guards: Safeguards) -> Result<(usize, usize), String> {
    let mut seen = HashSet::new();
    let mut left = vec![State::first(), State::of_a_thread()];
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
            None if state.is_protected || state.is_watched || state.fork.is_some() => {
                return Err(tell("something waits for ever".to_owned()));
            }
            None => {}
        }
    }
    Ok((seen.len(), folded))
}

#[test]
fn no_write_is_lost_in_any_order() {
    let (states, folded) = walk(ALL).unwrap();
    assert!(states > 10_000 && folded > 100, "{states} states, {folded} of them folded");
}

#[test]
fn each_safeguard_is_needed() {
    for (name, guards) in [
        ("the second look", Safeguards { has_second_look: false, has_third_look: false, ..ALL }),
        ("the third look", Safeguards { has_third_look: false, ..ALL }),
        ("the protection", Safeguards { protects: false, has_third_look: false, ..ALL }),
        ("the watch of holes", Safeguards { watches_holes: false, ..ALL }),
        ("the refusal of what is pinned", Safeguards { refuses_pinned: false, ..ALL }),
        ("the event of a fork", Safeguards { tells_forks: false, ..ALL }),
        ("the first look", Safeguards { has_first_look: false, ..ALL }),
        ("the passing over of holes", Safeguards { passes_over_holes: false, ..ALL }),
    ] {
        assert!(walk(guards).is_err(), "without {name} the walk finds no lost write");
    }
}

/// With all events told, the second look only saves the work of putting back. Without, it is what keeps a child right, as long as
/// no device writes and no thread discards the page at that moment.
#[test]
fn without_events_of_forks_the_second_look_keeps_children_right() {
    let quiet = Safeguards { tells_forks: false, ..ALL };
    let without_device = |guards| {
        let mut seen = HashSet::new();
        let mut left = vec![State { pins_left: 0, discards_left: 0, ..State::first() }];
        while let Some(state) = left.pop() {
            if seen.insert(state) {
                left.extend(state.others(guards)?);
                left.extend(state.folded(guards)?);
            }
        }
        Ok::<_, String>(seen.len())
    };
    assert!(without_device(quiet).is_ok());
    assert!(without_device(Safeguards { has_second_look: false, ..quiet }).is_err());
    assert!(without_device(Safeguards { protects: false, ..quiet }).is_err());
}
