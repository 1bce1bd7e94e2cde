//! A part of the sampled pages, read alone while little changes.

/// The number of parts that the pages are divided into.
const PARTS: usize = 8;

/// The most pages in a row that are of the same part.
const LONGEST_ROW: usize = 8;

/// One of the parts: rows of pages, spread evenly over all sampled pages.
///
/// Pages in a row are mostly of one process, and the files of a process are opened once for all of its pages. Rows are
/// dealt out like a hand of cards, beginning with another part each time: guests that all change in the same place show
/// that in most parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplePart {
    number: usize,
    row: usize,
}

impl SamplePart {
    /// Returns the part of this number, modulo [`PARTS`], of so many pages.
    pub(super) fn nth(number: usize, pages: usize) -> Self {
        Self { number: number % PARTS, row: (pages / PARTS / PARTS).clamp(1, LONGEST_ROW) }
    }

    /// Selects the sampled pages that are of this part, in their order.
    pub fn select<T>(self, pages: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        let has = move |at: usize| {
            let row = at / self.row;
            (row + row / PARTS) % PARTS == self.number
        };
        pages.into_iter().enumerate().filter(move |(at, _)| has(*at)).map(|(_, page)| page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_alike_and_have_each_page_once() {
        for pages in [1, 7, 64, 100, 512, 1500] {
            let parts: Vec<Vec<usize>> =
                (0..PARTS).map(|number| SamplePart::nth(number, pages).select(0..pages).collect()).collect();
            let mut all = parts.concat();
            all.sort_unstable();
            assert_eq!(all, (0..pages).collect::<Vec<_>>());
            let lengths = || parts.iter().map(Vec::len);
            assert!(lengths().max().unwrap() - lengths().min().unwrap() <= LONGEST_ROW, "{pages}");
            assert_eq!(SamplePart::nth(PARTS + 1, pages), SamplePart::nth(1, pages));
        }
    }

    #[test]
    fn a_part_has_few_processes_of_many_and_all_of_a_few() {
        let processes = |count: usize| {
            let mut of_part: Vec<usize> =
                SamplePart::nth(3, 512).select((0..512).map(|page| page * count / 512)).collect();
            of_part.dedup();
            of_part.len()
        };
        assert_eq!(processes(4), 4);
        assert!(processes(100) <= 24, "{}", processes(100));
    }
}
