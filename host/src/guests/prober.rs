//! Queries to guests' hypervisors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ksmith_core::guest::GuestId;

use super::requests::GuestRequests;
use crate::fair_pool::PoolLimits;
use crate::hypervisor::{GuestTarget, HypervisorReply};
use crate::root::Root;

/// Limits of running and queued queries. Each takes milliseconds, or half a second if a guest hangs. One that is
/// rejected is retried at the next sample.
pub(super) const LIMITS: PoolLimits =
    PoolLimits { threads: 6, of_users: 4, of_one_user: 2, waiting_of_one_user: 64, waiting_of_host: 4096 };

/// Queries under way.
pub(super) type GuestProber = GuestRequests<(GuestId, HypervisorReply)>;

/// Queries a guest's hypervisor.
pub(super) fn query(root: &Root, target: GuestTarget) -> (GuestId, HypervisorReply) {
    (target.id, take_reply(|| target.query_guest(root)))
}

/// Returns the reply to a query, and an empty one if the query breaks off: its guest would stay under way.
fn take_reply(query: impl FnOnce() -> HypervisorReply) -> HypervisorReply {
    catch_unwind(AssertUnwindSafe(query)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_breaks_off_has_an_empty_reply() {
        let reply = take_reply(|| panic!("a fault of the program"));
        assert!(reply.memory_bytes.is_none() && reply.error.is_none());
    }
}
