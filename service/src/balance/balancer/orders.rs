//! Orders of the operator: hold a guest, give it memory or take it.

use ksmith_core::balance::ResizeRange;
use ksmith_core::guest::{FindGuestError, find};
use ksmith_core::model::ResizeRecord;

use super::super::member::ResizeOrder;
use super::Balancer;

/// The reason of a step that no policy decided.
const ORDERED: &str = "ordered";

/// An order that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedOrder {
    /// The key of the guest.
    pub key: String,
    /// The name of the guest.
    pub name: String,
    /// The amount that it has.
    pub from_bytes: u64,
    /// The amount that it is to have.
    pub wanted_bytes: u64,
}

/// A refusal of an order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The name means no guest, or several.
    #[error(transparent)]
    NotOne(#[from] FindGuestError),
    /// The guest can't do it.
    #[error("{0}")]
    Refused(String),
}

impl Balancer {
    /// Finds the key and the name of the one guest that the operator means.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn find(&self, wanted: &str) -> Result<(String, String), FindGuestError> {
        let candidates = self.members.values().map(|member| &member.candidate);
        find(candidates, wanted).map(|found| (found.key.clone(), found.name.clone()))
    }

    /// Holds a guest, or releases it. Returns a sentence for the operator.
    ///
    /// # Errors
    /// There is no such guest, or the list of held guests can't be written.
    pub fn hold(&mut self, wanted: &str, is_held: bool) -> Result<String, OrderError> {
        let (key, name) = self.find(wanted)?;
        let names: Vec<String> =
            self.members.get(&key).map(|member| member.candidate.names_in_holds().collect()).unwrap_or_default();
        let is_new = self.holds.set(&names, is_held).map_err(|error| OrderError::Refused(error.to_string()))?;
        Ok(match (is_held, is_new) {
            (true, true) => format!("{name} is left alone from now on; `ksmith hold --release` ends that"),
            (true, false) => format!("{name} is left alone already"),
            (false, true) => format!("{name} is balanced again"),
            (false, false) => format!("{name} was not held"),
        })
    }

    /// Describes the effect of [`hold`](Self::bound_plan) without applying it.
    ///
    /// # Errors
    /// There is no such guest.
    pub fn plan_hold(&self, wanted: &str, is_held: bool) -> Result<String, OrderError> {
        let (_, name) = self.find(wanted)?;
        Ok(if is_held { format!("{name} would be left alone") } else { format!("{name} would be balanced again") })
    }

    /// Starts an operator's resize, in steps: down to the guest's floor, or up to its whole. [`ordered`](Self::order_outcome)
    /// reports its end.
    ///
    /// # Errors
    /// There is no such guest, or it can't be resized.
    pub fn order(&mut self, wanted: &str, gives: bool, bytes: u64) -> Result<AcceptedOrder, OrderError> {
        let ordered = self.plan_order(wanted, gives, bytes)?;
        let now = self.now();
        let AcceptedOrder { key, wanted_bytes, .. } = &ordered;
        if let Some(member) = self.members.get_mut(key) {
            member.ordered = Some(ResizeOrder { gives, wanted_bytes: *wanted_bytes });
            if !member.is_busy() {
                member.looking = member.worker.as_ref().is_some_and(|worker| worker.request_figures(true));
            }
        }
        self.bounds.record_resize(key, now);
        Ok(ordered)
    }

    /// Returns the order that [`order`](Self::order) would accept, without starting it.
    ///
    /// # Errors
    /// As [`order`](Self::order).
    pub fn plan_order(&self, wanted: &str, gives: bool, bytes: u64) -> Result<AcceptedOrder, OrderError> {
        let (key, name) = self.find(wanted)?;
        let refuse = |why: String| Err(OrderError::Refused(why));
        let Some(member) = self.members.get(&key) else { return refuse(format!("{name} has ended")) };
        if let Some(error) = &member.error {
            return refuse(format!("{name}: {error}"));
        }
        if member.ordered.is_some() {
            return refuse(format!("memory of {name} is already being given or taken"));
        }
        let Some((look, abilities)) = &member.known else { return refuse(format!("{name} does not answer")) };
        if !(if gives { abilities.can_give } else { abilities.can_take }) {
            let why = abilities.why_not.clone().unwrap_or_else(|| "nothing can move its memory".to_owned());
            return refuse(format!("{name}: {why}"));
        }
        let to =
            if gives { look.given_bytes.saturating_add(bytes) } else { look.given_bytes.saturating_sub(bytes) };
        let wanted_bytes = to.min(look.whole_bytes);
        Ok(AcceptedOrder { key, name, from_bytes: look.given_bytes, wanted_bytes })
    }

    /// Returns the amount that a guest has after its order; `None` while the order is under way. Before the order it
    /// had `from_bytes`.
    pub fn order_outcome(&self, key: &str, from_bytes: u64) -> Option<Result<u64, OrderError>> {
        let refuse = |why: &str| Some(Err(OrderError::Refused(why.to_owned())));
        let Some(member) = self.members.get(key) else { return refuse("it has ended") };
        if member.ordered.is_some() {
            return None;
        }
        if let Some(error) = &member.error {
            return refuse(error);
        }
        let last = self.done.iter().rev().find(|(_, done)| done.key == key);
        // A balloon whose driver is silent, or a guest that refuses, stays where it was. A last step without effect after
        // others that had one is the end of an order.
        let has_stayed = |done: &ResizeRecord| {
            done.reason == ORDERED && done.from_bytes == from_bytes && done.got_bytes == Some(from_bytes)
        };
        if last.is_some_and(|(_, done)| has_stayed(done)) {
            return refuse("it does not move its memory: its balloon driver does not answer, or has nothing free");
        }
        match last.and_then(|(_, done)| done.error.as_ref()) {
            Some(error) => refuse(error),
            None => Some(Ok(member.known.as_ref().map_or(0, |(look, _)| look.given_bytes))),
        }
    }

    /// Takes the next step of an order on a fresh look, or ends the order when no step is possible.
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

    fn next_step(&mut self, key: &str, order: ResizeOrder) -> Option<(u64, u64)> {
        let now = self.now();
        self.bounds.record_resize(key, now);
        let pool = self.pool.read(now).unwrap_or_default();
        let member = self.members.get(key)?;
        let terms = member.candidate.terms(&self.config);
        let mut view = member.view(terms, false, None, now);
        // The operator may do what a policy may not. Whether the guest can was checked before.
        (view.can_take, view.can_give, view.held, view.trouble) = (true, true, false, None);
        view.ceiling_bytes = view.whole_bytes;
        let to = ResizeRange::for_guest(&view, &pool, &self.config).bound(order.wanted_bytes);
        // A granule beyond the wanted amount is not reversed.
        order.moves(view.given_bytes, to).then_some((view.given_bytes, to))
    }
}
