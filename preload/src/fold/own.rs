//! Memory that no folding thread protects, because one of them may write there while another folds.
//!
//! A folding thread writes to its stack and to its thread data (`errno`, and the kernel's note of its CPU, rseq(2)). If it protected
//! them it would wait for itself; two that protected each other's would wait for each other.

use crate::{maps, marks, sys};

/// Bytes of the stack that the calling thread may use below and above the frame that asks.
const BELOW: usize = 256 << 10;
const ABOVE: usize = 64 << 10;

/// Bytes around `errno` in which the rest of the thread's data lies, the kernel's note of its CPU included.
const THREAD_DATA: usize = 64 << 10;

/// Spans: stack and data of the caller, the list, and the stacks and scratch memory of the folding threads.
const SPANS: usize = 5;

/// What all folding threads leave alone.
#[derive(Debug, Clone, Copy)]
pub struct Own {
    spans: [(usize, usize); SPANS],
}

impl Own {
    /// What the calling thread writes to, from this frame on, and the library's own memory of this call.
    #[inline(never)]
    pub fn of_this_thread(blocks: [(usize, usize); SPANS - 2]) -> Self {
        let here = 0_u8;
        let frame = (&raw const here).expose_provenance();
        let data = sys::errno_place();
        let mut spans = [(frame, BELOW, ABOVE), (data, THREAD_DATA, THREAD_DATA)].map(|(address, below, above)| {
            (marks::floor(address.saturating_sub(below)), marks::ceil(address.saturating_add(above)))
        });
        // What is in other mappings is none of it. Without the map the spans are only larger.
        let _ = maps::each(|mapping| {
            for ((first, last), address) in spans.iter_mut().zip([frame, data]) {
                if (mapping.start..mapping.end).contains(&address) {
                    *first = mapping.start.max(*first);
                    *last = mapping.end.min(*last);
                }
            }
            true
        });
        let ([stack, data], [list, stacks, scratch]) = (spans, blocks);
        Self { spans: [stack, data, list, stacks, scratch] }
    }

    /// The first part of a range that may be protected. `None`: there is none.
    pub fn part_of(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let mut start = start;
        // Each span may move the start once, and so uncover another.
        for _ in 0..=self.spans.len() {
            let holder = self.spans.iter().find(|(first, last)| (*first..*last).contains(&start));
            match holder {
                Some((_, last)) => start = *last,
                None => break,
            }
        }
        let next = self.spans.iter().map(|(first, _)| *first).filter(|first| *first > start).min();
        let end = next.map_or(end, |next| next.min(end));
        (start < end).then_some((start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_stack_and_errno_of_this_thread_and_the_blocks_are_left_alone() {
        let own = Own::of_this_thread([(0x10000, 0x20000), (0x30000, 0x40000), (0x50000, 0x60000)]);
        let local = 0_u8;
        let local = (&raw const local).expose_provenance();
        for address in [local, local - 200_000, sys::errno_place(), 0x10000, 0x3f000, 0x55000] {
            let (first, end) = (address & !4095, (address & !4095) + 4096);
            assert_eq!(own.part_of(first, end), None);
        }
        assert_eq!(own.part_of(0x8000, 0x70000), Some((0x8000, 0x10000)));
    }

    proptest! {
        #[test]
        fn parts_cover_all_but_what_is_left_alone(
            spans in [(0_usize..100, 0_usize..40), (0_usize..100, 0_usize..40), (0_usize..100, 0_usize..10), (0_usize..100, 0_usize..10), (0_usize..100, 0_usize..10)],
            start in 0_usize..120,
            length in 0_usize..60,
        ) {
            let own = Own { spans: spans.map(|(first, length)| (first, first + length)) };
            let is_own = |at: usize| own.spans.iter().any(|(first, last)| (*first..*last).contains(&at));
            let mut covered = [false; 200];
            let (mut at, end) = (start, start + length);
            while let Some((first, last)) = own.part_of(at, end) {
                (first..last).for_each(|at| covered[at] = true);
                at = last;
            }
            for (at, is_covered) in covered.into_iter().enumerate() {
                prop_assert_eq!(is_covered, (start..end).contains(&at) && !is_own(at), "{}", at);
            }
        }
    }
}
