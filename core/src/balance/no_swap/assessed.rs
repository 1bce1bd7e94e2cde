//! A guest with the figures that the policy derives from its view.

use super::super::resize_range::ResizeRange;
use super::super::{BalanceAction, BalanceConfig, GuestView, MemoryPressure, PoolView};

/// Below this level of pressure a guest can be asked for others' sake.
const IDLE: f64 = 0.5;

/// One guest, its range and its memory pressure.
pub(super) struct GuestAssessment<'a> {
    pub guest: &'a GuestView,
    pub range: ResizeRange,
    pub pressure: MemoryPressure,
}

impl<'a> GuestAssessment<'a> {
    pub fn new(guest: &'a GuestView, pool: &PoolView, config: &BalanceConfig) -> Self {
        Self {
            guest,
            range: ResizeRange::for_guest(guest, pool, config),
            pressure: MemoryPressure::for_guest(guest, config),
        }
    }

    pub fn weight(&self) -> u32 {
        self.guest.class.weight
    }

    pub fn is_idle(&self) -> bool {
        self.pressure.level < IDLE
    }

    /// Returns the reason why nothing can be taken from it now, in a word or two.
    pub fn why_it_gives_nothing(&self) -> &'static str {
        match self.guest {
            it if it.held => "held",
            it if it.giving_for.is_some() => "still giving",
            it if it.trouble.is_some() => "in trouble",
            it if !it.can_take => "of fixed size",
            it if it.inside.available_bytes.is_none() => "silent",
            _ => "at the floor",
        }
    }

    /// Returns the amount that it has after a take of `bytes` that the pool gains.
    ///
    /// Memory that is given and not resident goes first: taking it costs the guest nothing and brings the pool nothing.
    pub fn after_taking(&self, bytes: u64) -> u64 {
        let unused = self.guest.given_bytes.saturating_sub(self.guest.resident_bytes);
        self.range.after_taking(bytes.saturating_add(unused))
    }

    /// Returns `available / given`: the part of its memory that it could do without.
    pub fn spare_part(&self) -> f64 {
        self.guest.inside.available_bytes.unwrap_or(0) as f64 / self.guest.given_bytes.max(1) as f64
    }

    /// Returns `given / whole`.
    pub fn given_part(&self) -> f64 {
        self.guest.given_bytes as f64 / self.guest.whole_bytes.max(1) as f64
    }

    pub fn resize(&self, to_bytes: u64, reason: impl FnOnce() -> String) -> Option<BalanceAction> {
        BalanceAction::resize(self.guest, to_bytes, reason)
    }
}
