//! The costs of splitting huge pages and putting them together, and of using the small pages that are left.

use ksmith_core::huge_worth::WORKING_SETS;
use ksmith_core::kernel::SmapsRollup;

use super::CalibrateError;
use super::summary::{Calibration, WorkKind};
use crate::region::{HUGE_PAGE_BYTES, Region, RegionKind};

/// Huge pages of the region that is split and put together.
const HUGE_PAGES: usize = 32;

/// Splitting huge pages of the measuring process itself and putting them together, by the calls that do the same work as ksmd and
/// khugepaged. Without huge pages here there is nothing to measure.
pub(super) fn measure_splits(to: &mut Calibration) -> Result<(), CalibrateError> {
    let mut region =
        Region::of_kind(RegionKind::HugeUnmarked, HUGE_PAGES * HUGE_PAGE_BYTES).map_err(CalibrateError::System)?;
    let (huge_pages, page_size) = (HUGE_PAGES as u64, rustix::param::page_size());
    let half = HUGE_PAGE_BYTES / page_size / 2;
    let split = |region: &mut Region, is_empty: bool| {
        // Half of each huge page is empty, or nothing of it.
        for (number, page) in region.bytes_mut().chunks_exact_mut(page_size).enumerate() {
            page.fill(if is_empty && (number / half).is_multiple_of(2) { 0 } else { 1 + (number % 255) as u8 });
        }
        let (began, before) = (thread_cpu_ns(), own_huge_bytes());
        region.split_huge_pages();
        let spent_ns = thread_cpu_ns().saturating_sub(began);
        let split = before.saturating_sub(own_huge_bytes()) / HUGE_PAGE_BYTES as u64;
        (split >= huge_pages).then_some(spent_ns / huge_pages)
    };
    let Some(full_ns) = split(&mut region, false) else { return Ok(()) };
    to.add(WorkKind::Split, full_ns);
    let began = thread_cpu_ns();
    if !region.collapse_huge_pages() {
        return Ok(());
    }
    to.add(WorkKind::Collapse, thread_cpu_ns().saturating_sub(began) / huge_pages);
    if let Some(half_ns) = split(&mut region, true) {
        to.add(WorkKind::Freed, half_ns.saturating_sub(full_ns) / half as u64);
    }
    Ok(())
}

/// Accesses of a measurement: each takes up to a tenth of a microsecond.
const ACCESSES: u32 = 1 << 20;

/// Accesses at random to memory in huge pages, and to the same memory after these were split: each address depends on what the
/// one before gave. Without huge pages here there is nothing to measure.
pub(super) fn measure_accesses(to: &mut Calibration) -> Result<(), CalibrateError> {
    let most = WORKING_SETS.into_iter().max().unwrap_or(0);
    let mut region = Region::of_kind(RegionKind::HugeUnmarked, most as usize).map_err(CalibrateError::System)?;
    region.bytes_mut().chunks_exact_mut(4096).for_each(|page| page[0] = 1);
    let whole = own_huge_bytes();
    let in_huge = WORKING_SETS.map(|bytes| access_ns(&region.bytes()[..bytes as usize]));
    region.split_huge_pages();
    if whole.saturating_sub(own_huge_bytes()) < most {
        return Ok(());
    }
    for (place, (bytes, huge_ns)) in WORKING_SETS.into_iter().zip(in_huge).enumerate() {
        to.add_access(place, [huge_ns, access_ns(&region.bytes()[..bytes as usize])]);
    }
    Ok(())
}

/// Returns the CPU time of an access, in nanoseconds.
fn access_ns(memory: &[u8]) -> f64 {
    let mut state = 1_u64;
    let mut chase = |accesses: u32| {
        let began = thread_cpu_ns();
        for _ in 0..accesses {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // The first byte of a page is 1, all others are 0: the next address waits for this one.
            state = state.wrapping_add(u64::from(memory[(state % memory.len() as u64) as usize]));
        }
        thread_cpu_ns().saturating_sub(began)
    };
    chase(ACCESSES / 8);
    let spent_ns = chase(ACCESSES);
    std::hint::black_box(state);
    spent_ns as f64 / f64::from(ACCESSES)
}

/// CPU time of this thread, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (now.tv_sec.cast_unsigned()).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.cast_unsigned())
}

/// Memory of this process in huge pages, in bytes; 0 where the kernel does not say.
fn own_huge_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    SmapsRollup::parse(&text).ok().and_then(|sums| sums.anon_huge).unwrap_or(0)
}
