//! Guests and pools for tests.

use super::{BalanceView, GuestClass, GuestView, PoolView, ReportedFigures};

pub const MIB: u64 = 1 << 20;

/// A silver guest that has all its memory; sizes in MiB.
pub fn guest(key: &str, whole: u64, available: u64) -> GuestView {
    GuestView {
        key: key.to_owned(),
        name: key.to_owned(),
        class: GuestClass { name: "silver".to_owned(), weight: 10 },
        given_bytes: whole * MIB,
        whole_bytes: whole * MIB,
        resident_bytes: whole * MIB,
        inside: ReportedFigures { available_bytes: Some(available * MIB), ..ReportedFigures::default() },
        floor_bytes: 0,
        ceiling_bytes: whole * MIB,
        step_bytes: MIB,
        can_take: true,
        can_give: true,
        held: false,
        merged_bytes: 0,
        giving_for: None,
        trouble: None,
    }
}

pub fn of_class(mut it: GuestView, name: &str, weight: u32) -> GuestView {
    it.class = GuestClass { name: name.to_owned(), weight };
    it
}

/// A pool; sizes in MiB.
pub fn pool(size: u64, available: u64) -> PoolView {
    PoolView {
        size_bytes: size * MIB,
        available_bytes: available * MIB,
        headroom_bytes: available * MIB,
        ..PoolView::default()
    }
}

pub fn view(second: u64, pool: PoolView, guests: Vec<GuestView>) -> BalanceView {
    BalanceView { now: std::time::Duration::from_secs(second), pool, guests }
}
