//! Why ksmd is sent out.

/// Why ksmd was sent out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// New memory: two looks, since a page merges only on the second look that finds it unchanged.
    Burst,
    /// Memory came while a burst was under way, too little to begin it anew: two looks at all of it, once it has had time
    /// to come.
    Finish,
    /// Newcomers have met few of the pages that they might have met: one more look, at all of memory.
    Retry,
    /// Witnesses have seen memory change and come to rest: two looks, as for new memory.
    Revisit,
    /// What changed between the looks of the round before may have come to rest: one look.
    Sustain,
    /// Nothing is known to have changed; one look shows whether something did.
    Probe,
    /// Guests have left: KSM counts their merged pages, and keeps its metadata for them, until ksmd comes by.
    Tidy,
}

impl Errand {
    /// Looks at every page that this takes.
    pub fn passes(self) -> u64 {
        match self {
            Self::Burst | Self::Finish | Self::Revisit => 2,
            Self::Retry | Self::Sustain | Self::Probe | Self::Tidy => 1,
        }
    }

    /// The word for it in a [`crate::decide::Reason`].
    pub fn state(self) -> &'static str {
        match self {
            Self::Burst | Self::Finish | Self::Retry => "burst",
            Self::Revisit => "revisit",
            Self::Sustain => "sustain",
            Self::Probe => "probe",
            Self::Tidy => "tidy",
        }
    }
}
