//! Orders of the operator: hold a guest, give it memory or take it.

use ksmith_core::balance::ResizeRange;

use super::super::member::{Candidate, Order};
use super::super::worker::Worker;
use super::Balancer;

/// The reason of a step that no policy decided.
const ORDERED: &str = "ordered";

/// An order that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// The key of the guest.
    pub key: String,
    /// The name of the guest.
    pub name: String,
    /// The amount that it has.
    pub from_bytes: u64,
    /// The amount that it is to have.
    pub wanted_bytes: u64,
}

impl Balancer {
    /// Finds the key and the name of the one guest that the operator means.
    ///
    /// # Errors
    /// A sentence: there is none, or there are several.
    pub fn find(&self, wanted: &str) -> Result<(String, String), String> {
        let meant: Vec<&Candidate> =
            self.members.values().map(|member| &member.candidate).filter(|it| it.is_meant(wanted)).collect();
        // One that only claims the name or the UUID never stands in the way of the verified guest.
        let verified: Vec<&Candidate> = meant.iter().copied().filter(|it| it.is_verified).collect();
        let meant = if verified.is_empty() { meant } else { verified };
        // A UUID or key goes before a name, as in `ksmith guests`.
        let exact: Vec<&&Candidate> = meant.iter().filter(|it| it.name != wanted).collect();
        match (&exact[..], &meant[..]) {
            ([it], _) => Ok((it.key.clone(), it.name.clone())),
            (_, [it]) => Ok((it.key.clone(), it.name.clone())),
            (_, []) => Err(format!("there is no guest {wanted:?} to balance: `ksmith balance` lists them")),
            _ => {
                let keys: Vec<&str> = meant.iter().map(|it| it.key.as_str()).collect();
                Err(format!("{} guests are called {wanted:?}; say which: {}", keys.len(), keys.join(", ")))
            }
        }
    }

    /// Holds a guest, or ends that.
    ///
    /// # Errors
    /// A sentence.
    pub fn hold(&mut self, wanted: &str, is_held: bool) -> Result<String, String> {
        let (key, name) = self.find(wanted)?;
        let names: Vec<String> =
            self.members.get(&key).map(|member| member.candidate.names_in_holds().collect()).unwrap_or_default();
        let is_new = self.holds.set(&names, is_held).map_err(|error| error.to_string())?;
        Ok(match (is_held, is_new) {
            (true, true) => format!("{name} is left alone from now on; `ksmith hold --release` ends that"),
            (true, false) => format!("{name} is left alone already"),
            (false, true) => format!("{name} is balanced again"),
            (false, false) => format!("{name} was not held"),
        })
    }

    /// Gives or takes memory in steps because the operator wants it: down to the guest's floor, or up to its whole.
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
        if !member.is_busy() {
            member.looking = member.worker.as_ref().is_some_and(Worker::look);
        }
        self.bounds.note(&key, now);
        Ok(ordered)
    }

    /// The amount that a guest has after its order. `None`: the order is under way.
    pub fn ordered(&self, key: &str) -> Option<Result<u64, String>> {
        let Some(member) = self.members.get(key) else { return Some(Err("it has ended".to_owned())) };
        if member.ordered.is_some() {
            return None;
        }
        if let Some(error) = &member.error {
            return Some(Err(error.clone()));
        }
        let last = self.done.iter().rev().find(|(_, done)| done.key == key);
        let given = || member.known.as_ref().map_or(0, |(look, _)| look.given_bytes);
        Some(last.and_then(|(_, done)| done.error.clone()).map_or_else(|| Ok(given()), Err))
    }

    /// Takes the next step of an order on a fresh look, or ends the order where it has come as far as it may.
    pub(super) fn go_on(&mut self, key: &str) {
        let Some(order) = self.members.get(key).and_then(|member| member.ordered) else { return };
        match self.next_step(key, order) {
            Some((from, to)) => self.resize(key, from, to, ORDERED.to_owned()),
            None => self.end_order(key),
        }
    }

    pub(super) fn end_order(&mut self, key: &str) {
        if let Some(member) = self.members.get_mut(key) {
            member.ordered = None;
        }
    }

    fn next_step(&mut self, key: &str, order: Order) -> Option<(u64, u64)> {
        let now = self.now();
        self.bounds.note(key, now);
        let pool = self.pool.read(now).unwrap_or_default();
        let member = self.members.get(key)?;
        let terms = member.candidate.terms(&self.config);
        let mut view = member.view(terms, false, None, now);
        // The operator may do what a policy may not. Whether the guest can was checked before.
        (view.can_take, view.can_give, view.held, view.trouble) = (true, true, false, None);
        view.ceiling_bytes = view.whole_bytes;
        let to = ResizeRange::of(&view, &pool, &self.config).bound(order.wanted_bytes);
        // A granule beyond the wanted amount is not reversed.
        order.moves(view.given_bytes, to).then_some((view.given_bytes, to))
    }
}
