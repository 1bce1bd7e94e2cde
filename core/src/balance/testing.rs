//! Guests and pools for tests.

use super::{BalanceView, GuestClass, GuestView, PoolView, ReportedFigures};

pub const MIB: u64 = 1 << 20;

/// A silver guest that has all its memory; sizes in MiB.
pub fn guest(key: &str, whole: u64, available: u64) -> GuestView {
    let inside = ReportedFigures { available_bytes: Some(available * MIB), ..ReportedFigures::default() };
    let class = GuestClass { name: "silver".to_owned(), weight: 10 };
    GuestView { inside, ..GuestView::whole(key, class, whole * MIB) }
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
