//! What the balancer knows of one guest.

use std::time::Duration;

use ksmith_core::balance::{GuestView, Inside, Terms};
use ksmith_core::guest::{Guest, Kind};

use super::keeper::Keeper;
use super::newcomer::Newcomer;
use super::{Abilities, Look};

/// A guest that may be balanced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub key: String,
    pub name: String,
    pub kind: Kind,
    pub uuid: Option<String>,
    pub pid: Option<u32>,
    /// What it was started with, as far as its command line tells; it may not answer.
    pub whole_bytes: u64,
    pub resident_bytes: u64,
    pub merged_bytes: u64,
}

impl Candidate {
    pub(super) fn of(guest: &Guest) -> Self {
        Self {
            key: key_of(guest),
            name: guest.name.clone(),
            kind: guest.kind,
            uuid: guest.uuid.clone(),
            pid: Some(guest.id().pid),
            whole_bytes: guest.memory_bytes.unwrap_or(guest.figures.rss_bytes),
            resident_bytes: guest.figures.rss_bytes,
            merged_bytes: guest.figures.merged_bytes,
        }
    }

    pub(super) fn of_cgroup(path: &str) -> Self {
        let path = path.trim_start_matches("/sys/fs/cgroup").trim_matches('/');
        Self {
            key: format!("cgroup:{path}"),
            name: path.rsplit('/').next().unwrap_or(path).to_owned(),
            kind: Kind::Container,
            uuid: None,
            pid: None,
            whole_bytes: 0,
            resident_bytes: 0,
            merged_bytes: 0,
        }
    }

    /// The path, if it is a cgroup that was named.
    pub(super) fn cgroup(&self) -> Option<&str> {
        self.key.strip_prefix("cgroup:")
    }

    /// Whether a person means it by this.
    pub(super) fn is_meant(&self, wanted: &str) -> bool {
        self.key == wanted
            || self.name == wanted
            || self.pid.is_some_and(|pid| wanted.parse() == Ok(pid))
            || self.uuid.as_ref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted))
    }
}

/// By which a guest is known over its life.
pub fn key_of(guest: &Guest) -> String {
    match &guest.uuid {
        Some(uuid) => uuid.clone(),
        None => format!("{}:{}:{}", guest.kind.word(), guest.name, guest.id().pid),
    }
}

/// Whether it has a balloon or the like, and need not be named to be balanced.
pub(super) fn is_machine(kind: Kind) -> bool {
    !matches!(kind, Kind::Service | Kind::Container | Kind::Process)
}

/// What a person wants a guest to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub gives: bool,
    pub wanted_bytes: u64,
}

impl Order {
    /// Whether going from one amount to another is going where it is wanted.
    pub(super) fn moves(self, from: u64, to: u64) -> bool {
        if self.gives { to > from } else { to < from }
    }
}

/// A step that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resizing {
    pub since: Duration,
    /// Whether the guest has less after it.
    pub takes: bool,
}

/// One guest with its thread.
#[derive(Debug)]
pub(super) struct Member {
    pub number: u64,
    pub who: Candidate,
    pub keeper: Option<Keeper>,
    /// As of the last look that told.
    pub known: Option<(Look, Abilities)>,
    /// Why the last look told nothing.
    pub error: Option<String>,
    /// Asked, and no answer yet.
    pub looking: bool,
    /// On its way to another amount.
    pub resizing: Option<Resizing>,
    /// What a person wants it to have.
    pub ordered: Option<Order>,
    /// Until it has told something, or should have.
    pub newcomer: Option<Newcomer>,
}

impl Member {
    pub(super) fn is_busy(&self) -> bool {
        self.looking || self.resizing.is_some()
    }

    /// As a policy is to see it. `distrust` says why it is left alone in any case.
    pub(super) fn view(&self, terms: Terms, is_held: bool, distrust: Option<String>, now: Duration) -> GuestView {
        let who = &self.who;
        let look = self.known.as_ref().map_or_else(
            || Look {
                given_bytes: who.whole_bytes,
                whole_bytes: who.whole_bytes,
                resident_bytes: who.resident_bytes,
                inside: Inside::default(),
            },
            |(look, _)| *look,
        );
        let silent = self.looking.then(|| "it gives no answer".to_owned());
        let abilities = self.known.as_ref().map(|(_, abilities)| abilities);
        let free = !self.is_busy() && self.ordered.is_none() && self.error.is_none();
        GuestView {
            key: who.key.clone(),
            name: who.name.clone(),
            class: terms.class,
            given_bytes: look.given_bytes,
            whole_bytes: look.whole_bytes,
            resident_bytes: look.resident_bytes,
            inside: look.inside,
            floor_bytes: terms.floor_bytes.unwrap_or(0),
            ceiling_bytes: terms.ceiling_bytes.unwrap_or(look.whole_bytes),
            step_bytes: abilities.map_or(1 << 20, |it| it.step_bytes),
            can_take: free && abilities.is_some_and(|it| it.can_take),
            can_give: free && abilities.is_some_and(|it| it.can_give),
            held: is_held || terms.is_held,
            merged_bytes: who.merged_bytes,
            giving_for: self.resizing.filter(|it| it.takes).map(|it| now.saturating_sub(it.since)),
            trouble: silent.or_else(|| self.error.clone()).or(distrust),
        }
    }
}
