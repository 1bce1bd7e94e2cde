//! The pages of one content in a guest.

/// Limit of a content's copies in the second look.
const LOOKS: u32 = 8;

/// The pages of a content, and those of them that the second look reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CountedContent {
    copies: u32,
    /// Copies scheduled for the second look, copies that it read, and copies that were unchanged.
    noted: u32,
    looked: u32,
    same: u32,
}

impl CountedContent {
    /// Creates a content with pages of which none is looked at again.
    pub(crate) fn with_copies(copies: u32) -> Self {
        Self { copies, ..Self::default() }
    }

    /// Adds a page. Returns true if the second look should read it.
    pub(crate) fn add(&mut self) -> bool {
        self.copies = self.copies.saturating_add(1);
        let is_noted = self.noted < LOOKS;
        self.noted += u32::from(is_noted);
        is_noted
    }

    /// Returns the number of its pages.
    pub(crate) fn copies(self) -> u32 {
        self.copies
    }

    /// Estimates the steady copies from those that the second look read. Returns 0 if it read none.
    pub(crate) fn steady(self) -> u32 {
        match self.looked {
            0 => 0,
            looked => {
                let share = u64::from(self.copies) * u64::from(self.same);
                u32::try_from((share + u64::from(looked) / 2) / u64::from(looked)).unwrap_or(u32::MAX)
            }
        }
    }

    /// Records that the second look has read a page, and whether it was unchanged.
    pub(crate) fn look_again(&mut self, is_same: bool) {
        self.looked += 1;
        self.same += u32::from(is_same);
    }

    /// Returns the number of its pages that the second look has read.
    pub(crate) fn looked_at(self) -> u32 {
        self.looked
    }
}
