//! The duration of a turn of a balance policy, with its bounds: at 10, 100 and 1,000 guests.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ksmith_core::balance::{
    self, BalanceConfig, BalanceKind, BalanceView, GuestClass, GuestView, PlanBounds, PoolView, ReportedFigures,
};

const GIB: u64 = 1 << 30;

/// A guest of 1 GiB that has given a part of it, under no pressure.
fn guest(number: usize) -> GuestView {
    let given_bytes = GIB / 4 * 3 - ((number as u64 % 7) << 20);
    let class = GuestClass { name: "silver".to_owned(), weight: 10 };
    GuestView {
        name: format!("guest-{number}"),
        given_bytes,
        resident_bytes: given_bytes,
        inside: ReportedFigures {
            available_bytes: Some(given_bytes / 2),
            psi_some_percent: Some(if number % 50 == 7 { 2.0 } else { 0.0 }),
            ..ReportedFigures::default()
        },
        merged_bytes: GIB / 8,
        ..GuestView::whole(&format!("{}:1234567", 1000 + number), class, GIB)
    }
}

fn view(guests: usize, available_percent: u64) -> BalanceView {
    let size_bytes = guests as u64 * GIB;
    let available_bytes = size_bytes / 100 * available_percent;
    let pool = PoolView { size_bytes, available_bytes, headroom_bytes: available_bytes, ..PoolView::default() };
    let mut guests: Vec<_> = (0..guests).map(guest).collect();
    guests.sort_by(|a, b| a.key.cmp(&b.key));
    BalanceView { now: Duration::ZERO, pool, guests }
}

fn turns(c: &mut Criterion) {
    let states = [("short", 7), ("watching", 15), ("plenty", 40)];
    for (kind, name) in [(BalanceKind::NoSwap, "no-swap"), (BalanceKind::Squeeze, "squeeze")] {
        let mut group = c.benchmark_group(format!("balance turn/{name}"));
        for (state, percent) in states {
            for guests in [10, 100, 1000] {
                let config = BalanceConfig { policy: kind, ..BalanceConfig::default() };
                let (mut policy, mut bounds) = (balance::policy(&config), PlanBounds::default());
                let mut view = view(guests, percent);
                group.bench_function(BenchmarkId::new(state, guests), |b| {
                    b.iter(|| {
                        // Long enough that all guests may be resized again.
                        view.now += Duration::from_secs(120);
                        black_box(bounds.bound_plan(policy.decide(&view), &view, &config))
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, turns);
criterion_main!(benches);
