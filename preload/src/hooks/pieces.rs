//! Resizes memory that is divided into several mappings, which mremap(2) does not.
//!
//! The parts keep what they are: their advice, their policy, and whether they are merged.

use core::ffi::{c_int, c_void};

use crate::{maps, marks, sys};

/// The arguments of a call of mremap(2) for which the kernel said `EFAULT`. It has seen by then that they are well formed.
#[derive(Debug, Clone, Copy)]
pub struct Resizing {
    /// Where the memory begins.
    pub old: *mut c_void,
    /// Its length in bytes.
    pub old_length: usize,
    /// The length that is wanted.
    pub length: usize,
    /// `MREMAP_MAYMOVE` and others.
    pub flags: c_int,
    /// Where it is to be, with `MREMAP_FIXED`.
    pub address: *mut c_void,
}

/// Parts of one range at most.
const MOST: usize = 64;

/// The mappings of a range: where each ends.
struct Parts {
    start: usize,
    ends: [usize; MOST],
    count: usize,
}

impl Parts {
    /// Those of a range of private anonymous memory without a hole. `None`: there is another kind of memory in it, or too many.
    fn of(start: usize, end: usize) -> Option<Self> {
        let mut parts = Self { start, ends: [0; MOST], count: 0 };
        let mut at = start;
        maps::each(|mapping| {
            if mapping.end <= at {
                return true;
            }
            let Some(place) = parts.ends.get_mut(parts.count) else { return false };
            if mapping.start > at || !mapping.is_data() {
                return false;
            }
            at = mapping.end.min(end);
            *place = at;
            parts.count = parts.count.saturating_add(1);
            at < end
        })
        .ok()?;
        (at == end).then_some(parts)
    }

    /// The part of this number: where it begins and ends.
    fn get(&self, number: usize) -> Option<(usize, usize)> {
        let end = self.ends.get(..self.count)?.get(number)?;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).unwrap_or(&self.start);
        Some((*start, *end))
    }
}

/// Resizes memory part by part. `None`: it is not what folding divides, or there is no memory for it; nothing has changed then.
///
/// # Safety
/// As mremap(2).
pub unsafe fn resize(wanted: Resizing) -> Option<*mut c_void> {
    let may_move = wanted.flags & libc::MREMAP_MAYMOVE != 0;
    let is_fixed = wanted.flags & libc::MREMAP_FIXED != 0;
    if wanted.flags & !(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) != 0 {
        return None;
    }
    let start = wanted.old as usize;
    let (old_length, length) = (marks::ceil(wanted.old_length), marks::ceil(wanted.length));
    let parts = Parts::of(start, start.checked_add(old_length.min(length))?)?;
    let last = parts.get(parts.count.checked_sub(1)?)?;
    let grown = last.1.saturating_sub(last.0).checked_add(length.saturating_sub(old_length))?;
    // In its place, if there is room behind it.
    if !is_fixed && sys::remap(last, grown, None) == Ok(last.0) {
        return Some(wanted.old);
    }
    if !may_move {
        return None;
    }
    let target = sys::reserve(is_fixed.then_some(wanted.address as usize), length).ok()?;
    let place = |part: (usize, usize)| target.saturating_add(part.0.saturating_sub(start));
    // The part that needs memory comes first, while nothing has changed.
    if sys::remap(last, grown, Some(place(last))).is_err() {
        sys::unmap(target, length);
        return None;
    }
    for number in (0..parts.count.saturating_sub(1)).rev() {
        let part = parts.get(number)?;
        if sys::remap(part, part.1.saturating_sub(part.0), Some(place(part))).is_err() {
            give_back(&parts, number, target, grown);
            return None;
        }
    }
    if length < old_length {
        sys::unmap(start.saturating_add(length), old_length.saturating_sub(length));
    }
    Some(core::ptr::with_exposed_provenance_mut(target))
}

/// Moves the parts behind this one back, where nothing has been mapped meanwhile.
fn give_back(parts: &Parts, refused: usize, target: usize, grown: usize) {
    for number in refused.saturating_add(1)..parts.count {
        let Some((start, end)) = parts.get(number) else { return };
        let place = target.saturating_add(start.saturating_sub(parts.start));
        let length = if number.saturating_add(1) == parts.count { grown } else { end.saturating_sub(start) };
        if sys::reserve_unused(start, end.saturating_sub(start)).is_ok() {
            let _ = sys::remap((place, place.saturating_add(length)), end.saturating_sub(start), Some(start));
        }
    }
    let rest = parts.get(refused).map_or(0, |(_, end)| end.saturating_sub(parts.start));
    sys::unmap(target, rest);
}
