//! Guests, their threads, the pool and a policy: one turn looks at all, decides within the bounds, and acts.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use ksmith_core::balance::{self, Action, BalanceConfig, BalancePolicy, Bounds, Pool, PoolView, Room, Trust, View};
use ksmith_core::guest::{Guest, Kind};
use tracing::{debug, info, warn};

use super::keeper::{Keeper, Make, Told, What};
use super::member::{Candidate, Member, Order, Resizing, is_machine};
use super::newcomer::Newcomer;
use super::pool::{PoolError, PoolReader};
use super::{ActuatorError, Holds, Ledger, actuator, cgroup_actuator};
use crate::guests::Target;
use crate::root::Root;
use crate::show::Done;

mod report;

/// Actions that are remembered, to be shown.
const REMEMBERED: usize = 32;

/// Why a step was taken that no policy decided.
const ORDERED: &str = "ordered";

/// Balances the guests of one pool.
pub struct Balancer {
    root: Root,
    config: BalanceConfig,
    ledger: Ledger,
    holds: Holds,
    pool: PoolReader,
    policy: Box<dyn BalancePolicy>,
    bounds: Bounds,
    trust: Trust,
    members: BTreeMap<String, Member>,
    numbers: u64,
    sender: Sender<Told>,
    told: Receiver<Told>,
    started: Instant,
    turn: Option<Turn>,
    done: VecDeque<(Duration, Done)>,
    has_news: bool,
    greets: bool,
}

impl fmt::Debug for Balancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer").field("members", &self.members.keys()).finish_non_exhaustive()
    }
}

/// What one turn saw and decided.
#[derive(Debug, Clone)]
pub struct Turn {
    /// What was seen.
    pub view: View,
    /// What was decided, within the bounds.
    pub plan: balance::Plan,
}

/// What a person has ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// Of whom.
    pub key: String,
    /// Its name.
    pub name: String,
    /// What it has.
    pub from_bytes: u64,
    /// What it is to have.
    pub wanted_bytes: u64,
}

impl Balancer {
    /// Knows no guest yet.
    pub fn new(root: Root, config: BalanceConfig, ledger: Ledger, holds: Holds) -> Self {
        let (sender, told) = unbounded();
        Self {
            pool: PoolReader::new(root.clone(), config.pool.clone()),
            policy: balance::policy(&config),
            root,
            config,
            ledger,
            holds,
            bounds: Bounds::default(),
            trust: Trust::default(),
            members: BTreeMap::new(),
            numbers: 0,
            sender,
            told,
            started: Instant::now(),
            turn: None,
            done: VecDeque::new(),
            has_news: false,
            greets: false,
        }
    }

    /// Goes by another configuration from now on.
    pub fn configure(&mut self, config: BalanceConfig) {
        if config == self.config {
            return;
        }
        self.pool = PoolReader::new(self.root.clone(), config.pool.clone());
        self.policy = balance::policy(&config);
        self.config = config;
        // Who balances greets; who does not looks at newcomers like at everybody else.
        self.greets = false;
    }

    /// Answers of guests that may be waited for: hand them to [`absorb`](Self::absorb).
    pub fn answers(&self) -> Receiver<Told> {
        self.told.clone()
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Meets these guests, with what is needed to reach them; those that it knew and are not among them are gone.
    /// Virtual machines and user-mode Linux of the pool count, and the cgroups that the configuration names.
    pub fn meet<'a>(&mut self, guests: impl IntoIterator<Item = (&'a Guest, Option<Target>)>) {
        let mut found: Vec<(Candidate, Option<Make>)> = Vec::new();
        for (guest, target) in guests {
            if !is_machine(guest.kind) || !super::pool::is_inside(&self.root, &self.config.pool, guest.id().pid) {
                continue;
            }
            let mut who = Candidate::of(guest);
            if found.iter().any(|(it, _)| it.key == who.key) {
                // Two of one UUID: each has a line of its own in the ledger.
                who.key = format!("{}:{}", who.key, guest.id().pid);
            }
            // A console may be there later than its guest.
            let is_known = |member: &Member| member.keeper.is_some() || guest.kind != Kind::Uml;
            let is_known = self.members.get(&who.key).is_some_and(is_known);
            let make = target.filter(|_| !is_known).map(|target| {
                let (root, key, ledger) = (self.root.clone(), who.key.clone(), self.ledger.clone());
                Box::new(move || actuator(&root, &target, &key, &ledger)) as Make
            });
            found.push((who, make));
        }
        for path in &self.config.cgroups {
            let who = Candidate::of_cgroup(path);
            if found.iter().any(|(it, _)| it.key == who.key) {
                continue;
            }
            let (root, key, ledger) = (self.root.clone(), who.key.clone(), self.ledger.clone());
            let path = who.cgroup().unwrap_or_default().to_owned();
            let make = Box::new(move || cgroup_actuator(&root, &path, &key, &ledger)) as Make;
            found.push((who, Some(make)));
        }
        self.know(found);
    }

    /// The same with actuators of the caller's.
    #[cfg(test)]
    pub(super) fn meet_with(&mut self, guests: Vec<(Candidate, Make)>) {
        self.know(guests.into_iter().map(|(who, make)| (who, Some(make))).collect());
    }

    fn know(&mut self, found: Vec<(Candidate, Option<Make>)>) {
        let now = self.now();
        let mut known = std::mem::take(&mut self.members);
        for (who, make) in found {
            let member = match known.remove(&who.key) {
                Some(member) if member.keeper.is_some() || make.is_none() => Member { who, ..member },
                // New, or it had no means of being resized, which it may have now.
                old => {
                    self.numbers += 1;
                    let keeper = make.and_then(|make| {
                        let started = Keeper::start(self.numbers, make, self.sender.clone());
                        started.inspect_err(|why| warn!("{} can't be watched: {why}", who.name)).ok()
                    });
                    Member {
                        number: self.numbers,
                        who,
                        keeper,
                        known: None,
                        error: old.and_then(|old| old.error),
                        looking: false,
                        resizing: None,
                        ordered: None,
                        newcomer: Some(Newcomer::met(now)),
                    }
                }
            };
            self.members.insert(member.who.key.clone(), member);
        }
        for gone in known.into_values() {
            debug!("{} is not balanced any more", gone.who.name);
        }
        self.forget_the_dead();
        let members = &self.members;
        self.trust.keep(|key| members.contains_key(key));
    }

    /// Strikes out who has ended. One that is only out of sight (of another pool now, or missed in a sample) still has to
    /// get its memory back.
    fn forget_the_dead(&self) {
        // A thread that was at work on a guest as it ended may have noted a last step since, so all are looked at.
        if let Err(error) = self.ledger.strike_ended(&self.root) {
            warn!("{error}");
        }
    }

    fn strike(&self, key: &str) {
        if let Err(error) = self.ledger.strike(key) {
            warn!("{error}");
        }
    }

    /// Has those newcomers asked who are due, without waiting for them: from now on no look waits for one. Returns how
    /// soon the next one is.
    pub fn greet(&mut self) -> Option<Duration> {
        let now = self.now();
        self.greets = true;
        let mut next: Option<Duration> = None;
        for member in self.members.values_mut() {
            let Some(newcomer) = member.newcomer.filter(|_| !member.is_busy()) else { continue };
            if newcomer.due <= now {
                member.looking = member.keeper.as_ref().is_some_and(Keeper::look);
            } else {
                next = Some(next.map_or(newcomer.due, |next| next.min(newcomer.due)));
            }
        }
        next.map(|due| due - now)
    }

    /// Whether a newcomer has told for the first time since this was asked last.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Has every guest looked at that is not busy, and waits until all have answered, or for `patience`. Who has not
    /// answered by then is in trouble until it does.
    pub fn look(&mut self, patience: Duration) {
        let now = self.now();
        let greets = self.greets;
        let is_greeted = |member: &Member| greets && member.newcomer.is_some();
        for member in self.members.values_mut().filter(|member| !is_greeted(member)) {
            // Who answers and does not follow is still listened to: it may squeal.
            let is_trusted = member.error.is_none() || self.trust.trouble(&member.who.key, now).is_none();
            if is_trusted && !member.is_busy() && member.keeper.as_ref().is_some_and(Keeper::look) {
                member.looking = true;
            }
        }
        let deadline = Instant::now() + patience;
        while self.members.values().any(|member| member.looking && !is_greeted(member))
            && let Ok(told) = self.told.recv_deadline(deadline)
        {
            self.absorb(told);
        }
    }

    /// Takes in what a guest's thread told.
    pub fn absorb(&mut self, told: Told) {
        let now = self.now();
        let Some(member) = self.members.values_mut().find(|member| member.number == told.number) else { return };
        let key = member.who.key.clone();
        match told.what {
            What::Looked(outcome) => {
                member.looking = false;
                match outcome {
                    Ok(known) => {
                        (member.known, member.error) = (Some(known), None);
                        self.has_news |= member.newcomer.take().is_some();
                        self.go_on(&key);
                    }
                    Err(ActuatorError::Gone) => {
                        self.members.remove(&key);
                        self.strike(&key);
                    }
                    Err(error) if member.newcomer.as_mut().is_some_and(|it| it.forgive(now)) => {
                        (member.error, member.ordered) = (Some(error.to_string()), None);
                    }
                    // It will be no other next time.
                    Err(error @ ActuatorError::Unable(_)) => {
                        member.newcomer = None;
                        (member.error, member.ordered) = (Some(error.to_string()), None);
                        member.keeper = None;
                    }
                    Err(error) => {
                        (member.error, member.ordered, member.newcomer) = (Some(error.to_string()), None, None);
                        self.trust.failed(&key, error.to_string(), now);
                    }
                }
            }
            What::Resized { from, to, outcome } => {
                member.resizing = None;
                let name = member.who.name.clone();
                let got = match &outcome {
                    Ok(got) => {
                        if let Some((look, _)) = &mut member.known {
                            look.given_bytes = *got;
                        }
                        self.trust.resized(&key, [from, to, *got], now);
                        Some(*got)
                    }
                    Err(ActuatorError::Gone) => {
                        self.members.remove(&key);
                        self.strike(&key);
                        None
                    }
                    Err(error) => {
                        warn!("{name}: {error}");
                        self.trust.failed(&key, error.to_string(), now);
                        None
                    }
                };
                let error = outcome.err().map(|error| error.to_string());
                if let Some((_, done)) =
                    self.done.iter_mut().rev().find(|(_, done)| done.key == key && !done.is_over())
                {
                    (done.got_bytes, done.error) = (got, error);
                }
                match self.members.get_mut(&key) {
                    // The next step is taken on a fresh look; so is the first, after a step of the policy's.
                    Some(member)
                        if got.is_some_and(|got| {
                            member.ordered.is_some_and(|it| !it.moves(from, to) || it.moves(from, got))
                        }) =>
                    {
                        member.looking = member.keeper.as_ref().is_some_and(Keeper::look);
                    }
                    _ => self.end_order(&key),
                }
            }
        }
    }

    /// What a policy sees now.
    ///
    /// # Errors
    /// The pool can't be looked at.
    pub fn view(&mut self) -> Result<View, PoolError> {
        let now = self.now();
        let mut pool = self.pool.read(now)?;
        let guests: Vec<_> = self
            .members
            .values()
            .map(|member| {
                let who = &member.who;
                let terms = self.config.terms(&who.name, who.uuid.as_deref());
                member.view(terms, self.holds.has(&who.key), self.trust.trouble(&who.key, now), now)
            })
            .collect();
        if self.config.pool != Pool::Host {
            // KSM's own figures are the host's: no more of that is this pool's than its guests have merged.
            let merged = guests.iter().fold(0_u64, |sum, guest| sum.saturating_add(guest.merged_bytes));
            pool.exposure_bytes = pool.exposure_bytes.min(merged);
        }
        Ok(View { now, pool, guests })
    }

    /// Looks at the pool alone: cheap.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn pool(&mut self) -> Result<PoolView, PoolError> {
        let now = self.now();
        self.pool.read(now)
    }

    /// Looks at everything and decides. Nothing is done yet.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn decide(&mut self, patience: Duration) -> Result<&Turn, PoolError> {
        self.look(patience);
        // What was seen before is not shown as what is.
        self.turn = None;
        let view = self.view()?;
        let plan = self.bounds.hold(self.policy.decide(&view), &view, &self.config);
        Ok(self.turn.insert(Turn { view, plan }))
    }

    /// Does what the last turn decided about guests; each in its own thread.
    pub fn carry_out(&mut self) {
        let Some(turn) = &self.turn else { return };
        let actions = turn.plan.actions.clone();
        for action in actions {
            let Action::Resize { key, from_bytes, to_bytes, reason } = action else { continue };
            self.resize(&key, from_bytes, to_bytes, reason);
        }
    }

    fn resize(&mut self, key: &str, from_bytes: u64, to_bytes: u64, reason: String) {
        let now = self.now();
        let Some(member) = self.members.get_mut(key) else { return };
        if member.is_busy() || !member.keeper.as_ref().is_some_and(|keeper| keeper.resize(from_bytes, to_bytes)) {
            return;
        }
        member.resizing = Some(Resizing { since: now, takes: to_bytes < from_bytes });
        let name = member.who.name.clone();
        let mib = |bytes: u64| bytes >> 20;
        info!("{name}: memory {} -> {} MiB ({reason})", mib(from_bytes), mib(to_bytes));
        let done = Done {
            key: key.to_owned(),
            name,
            seconds_ago: 0.0,
            from_bytes,
            to_bytes,
            got_bytes: None,
            error: None,
            reason,
        };
        self.done.push_back((now, done));
        if self.done.len() > REMEMBERED {
            self.done.pop_front();
        }
    }

    /// The one guest that a person means.
    ///
    /// # Errors
    /// A sentence: there is none, or there are several.
    pub fn find(&self, wanted: &str) -> Result<(String, String), String> {
        let meant: Vec<&Candidate> =
            self.members.values().map(|member| &member.who).filter(|who| who.is_meant(wanted)).collect();
        // A UUID or key goes before a name, as in `ksmith guests`.
        let exact: Vec<&&Candidate> = meant.iter().filter(|who| who.name != wanted).collect();
        match (&exact[..], &meant[..]) {
            ([who], _) => Ok((who.key.clone(), who.name.clone())),
            (_, [who]) => Ok((who.key.clone(), who.name.clone())),
            (_, []) => Err(format!("there is no guest {wanted:?} to balance: `ksmith balance` lists them")),
            _ => {
                let keys: Vec<&str> = meant.iter().map(|who| who.key.as_str()).collect();
                Err(format!("{} guests are called {wanted:?}; say which: {}", keys.len(), keys.join(", ")))
            }
        }
    }

    /// Holds a guest, or lets it go.
    ///
    /// # Errors
    /// A sentence.
    pub fn hold(&mut self, wanted: &str, is_held: bool) -> Result<String, String> {
        let (key, name) = self.find(wanted)?;
        let is_new = self.holds.set(&key, is_held).map_err(|error| error.to_string())?;
        Ok(match (is_held, is_new) {
            (true, true) => format!("{name} is left alone from now on; `ksmith hold --release` ends that"),
            (true, false) => format!("{name} is left alone already"),
            (false, true) => format!("{name} is balanced again"),
            (false, false) => format!("{name} was not held"),
        })
    }

    /// Has a guest given or taken memory because a person wants it: in steps, down to its floor or up to its whole.
    /// [`ordered`](Self::ordered) tells when it is done.
    ///
    /// # Errors
    /// A sentence.
    pub fn order(&mut self, wanted: &str, gives: bool, bytes: u64) -> Result<Ordered, String> {
        let (key, name) = self.find(wanted)?;
        let now = self.now();
        let member = self.members.get_mut(&key).ok_or_else(|| format!("{name} has ended"))?;
        if let Some(error) = &member.error {
            return Err(format!("{name}: {error}"));
        }
        if member.ordered.is_some() {
            return Err(format!("{name} is being given or taken memory already"));
        }
        let Some((look, abilities)) = &member.known else { return Err(format!("{name} gives no answer")) };
        if !(if gives { abilities.can_give } else { abilities.can_take }) {
            let why = abilities.why_not.clone().unwrap_or_else(|| "it has no means for it".to_owned());
            return Err(format!("{name}: {why}"));
        }
        let to =
            if gives { look.given_bytes.saturating_add(bytes) } else { look.given_bytes.saturating_sub(bytes) };
        let wanted_bytes = to.min(look.whole_bytes);
        let ordered = Ordered { key: key.clone(), name, from_bytes: look.given_bytes, wanted_bytes };
        member.ordered = Some(Order { gives, wanted_bytes });
        self.bounds.note(&key, now);
        if let Some(member) = self.members.get_mut(&key).filter(|member| !member.is_busy()) {
            member.looking = member.keeper.as_ref().is_some_and(Keeper::look);
        }
        Ok(ordered)
    }

    /// Whether an order is done: what the guest has then. `None`: it is under way.
    pub fn ordered(&self, key: &str) -> Option<Result<u64, String>> {
        let Some(member) = self.members.get(key) else { return Some(Err("it has ended".to_owned())) };
        if member.ordered.is_some() {
            return None;
        }
        if let Some(error) = &member.error {
            return Some(Err(error.clone()));
        }
        let failed =
            self.done.iter().rev().find(|(_, done)| done.key == key).and_then(|(_, done)| done.error.clone());
        Some(failed.map_or_else(|| Ok(member.known.as_ref().map_or(0, |(look, _)| look.given_bytes)), Err))
    }

    /// Takes the next step of an order on what was just seen, or ends it: it has come as far as it may.
    fn go_on(&mut self, key: &str) {
        let Some(order) = self.members.get(key).and_then(|member| member.ordered) else { return };
        match self.next_step(key, order) {
            Some((from, to)) => self.resize(key, from, to, ORDERED.to_owned()),
            None => self.end_order(key),
        }
    }

    fn end_order(&mut self, key: &str) {
        if let Some(member) = self.members.get_mut(key) {
            member.ordered = None;
        }
    }

    fn next_step(&mut self, key: &str, order: Order) -> Option<(u64, u64)> {
        let now = self.now();
        self.bounds.note(key, now);
        let pool = self.pool.read(now).unwrap_or_default();
        let member = self.members.get(key)?;
        let terms = self.config.terms(&member.who.name, member.who.uuid.as_deref());
        let mut view = member.view(terms, false, None, self.now());
        // A person may what a policy may not; whether the guest can was checked before.
        (view.can_take, view.can_give, view.held, view.trouble) = (true, true, false, None);
        view.ceiling_bytes = view.whole_bytes;
        let to = Room::of(&view, &pool, &self.config).bound(order.wanted_bytes);
        // A granule too far is far enough: it is not gone back.
        order.moves(view.given_bytes, to).then_some((view.given_bytes, to))
    }

    /// Whether a resize is under way.
    pub fn is_acting(&self) -> bool {
        self.members.values().any(|member| member.resizing.is_some())
    }

    /// Gives everybody back what was taken, as far as the pool has it above half its low mark, the dearest first, and
    /// waits for that at most so long. Returns a sentence for each guest that did not get all.
    pub fn give_back(&mut self, patience: Duration) -> Vec<String> {
        let deadline = Instant::now() + patience;
        self.look(Duration::from_secs(2).min(patience));
        while self.is_acting()
            && let Ok(told) = self.told.recv_deadline(deadline)
        {
            self.absorb(told);
        }
        let view = self.view().or_else(|_| {
            // A pool that has lost its limit, or is gone: what there is then is the host's.
            self.pool = PoolReader::new(self.root.clone(), Pool::Host);
            self.view()
        });
        let Ok(view) = view else {
            return vec!["the pool can't be looked at: nothing is given back".to_owned()];
        };
        let mut spare = view.pool.available_bytes.saturating_sub(self.config.marks(&view.pool).min);
        let mut guests: Vec<_> = view.guests.iter().filter(|guest| guest.taken_bytes() > 0).collect();
        guests.sort_by_key(|guest| std::cmp::Reverse(guest.class.weight));
        let (mut notes, mut named) = (Vec::new(), Vec::new());
        for guest in guests {
            let part = guest.taken_bytes().min(spare);
            spare -= part;
            if part < guest.taken_bytes() {
                named.push(guest.key.clone());
                notes.push(format!(
                    "{} gets back {} of {} MiB: the pool has no more; later: ksmith restore",
                    guest.name,
                    part >> 20,
                    guest.taken_bytes() >> 20,
                ));
            }
            if part > 0 {
                let to = guest.given_bytes + part;
                self.resize(&guest.key, guest.given_bytes, to, "the daemon ends".to_owned());
            }
        }
        while self.is_acting() {
            match self.told.recv_deadline(deadline) {
                Ok(told) => self.absorb(told),
                Err(_) => {
                    notes.push("some guests do not follow in time; later: ksmith restore".to_owned());
                    break;
                }
            }
        }
        // Also who could not be asked, or is of another pool by now.
        self.forget_the_dead();
        notes.extend(self.ledger.entries().iter().filter(|it| !named.contains(&it.key)).map(|it| it.left()));
        notes
    }
}

#[cfg(test)]
mod tests;
