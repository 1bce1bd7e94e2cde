//! Sampled contents of a guest, and a compact encoding of them.

/// A sampled content of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRow {
    /// The fingerprint of the content.
    pub fingerprint: u64,
    /// Number of pages with this content.
    pub copies: u32,
    /// Number of them that had it at both looks.
    pub steady: u32,
}

/// The rows of a guest, in the order of the file: 9 bytes for a content with one page, and 17 for any other.
///
/// So n sampled pages take at most 9 n bytes, since any other content has at least two pages.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PackedRows {
    fingerprints: Box<[u64]>,
    forms: Box<[u8]>,
    /// Copies and steady copies of each content with form [`OTHER`], in the order of the contents.
    others: Box<[[u32; 2]]>,
}

/// Form of a content with one page, which changed.
const CHANGED: u8 = 0;

/// Form of a content with one page, which was steady.
const STAYED: u8 = 1;

/// Form of a content with its copies in `others`.
const OTHER: u8 = 2;

impl PackedRows {
    /// Packs rows in their order.
    pub(crate) fn from_rows(rows: &[ContentRow]) -> Self {
        let form = |row: &ContentRow| match (row.copies, row.steady) {
            (1, 0) => CHANGED,
            (1, 1) => STAYED,
            _ => OTHER,
        };
        let other = |row: &ContentRow| (form(row) == OTHER).then_some([row.copies, row.steady]);
        Self {
            fingerprints: rows.iter().map(|row| row.fingerprint).collect(),
            forms: rows.iter().map(form).collect(),
            others: rows.iter().filter_map(other).collect(),
        }
    }

    /// Returns all rows in their order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = ContentRow> {
        let mut others = self.others.iter();
        self.fingerprints.iter().zip(&self.forms).map(move |(&fingerprint, &form)| match form {
            CHANGED => ContentRow { fingerprint, copies: 1, steady: 0 },
            STAYED => ContentRow { fingerprint, copies: 1, steady: 1 },
            _ => {
                let [copies, steady] = others.next().copied().unwrap_or_default();
                ContentRow { fingerprint, copies, steady }
            }
        })
    }

    /// Returns the heap memory in use, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.fingerprints) + size_of_val(&*self.forms) + size_of_val(&*self.others)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_back(list in prop::collection::vec((any::<u64>(), 1_u32..4, 0_u32..4), 0..300)) {
            let row = |&(fingerprint, copies, steady): &(u64, u32, u32)| ContentRow { fingerprint, copies, steady: steady.min(copies) };
            let rows: Vec<ContentRow> = list.iter().map(row).collect();
            let packed = PackedRows::from_rows(&rows);
            prop_assert_eq!(packed.rows().collect::<Vec<_>>(), &rows[..]);
            let pages: usize = rows.iter().map(|row| row.copies as usize).sum();
            prop_assert!(packed.bytes() <= 9 * pages);
        }
    }
}
