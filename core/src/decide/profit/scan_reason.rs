//! Reasons to scan.

/// The reason for starting a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanReason {
    /// There is new memory. Two visits, since an unmerged page merges on the second that finds it unchanged.
    Burst,
    /// The last scan split huge pages. Searches ended at what the splits left in the unstable tree, and equal pages missed
    /// each other. One more pass over all memory merges them.
    Finish,
    /// New guests have merged fewer pages than they might have. One more pass over all memory.
    Retry,
    /// Page samples show memory that changed and is stable again. Two visits, as for new memory.
    Revisit,
    /// Pages that changed between the visits of the last scan may be stable by now. One pass.
    Sustain,
    /// Nothing is known to have changed. One pass shows whether something did.
    Probe,
    /// Guests have ended. KSM counts their merged pages, and keeps metadata for them, until ksmd visits them.
    Tidy,
}

impl ScanReason {
    /// Visits of each page that this takes.
    pub fn passes(self) -> u64 {
        match self {
            Self::Burst | Self::Revisit => 2,
            Self::Finish | Self::Retry | Self::Sustain | Self::Probe | Self::Tidy => 1,
        }
    }

    /// The word for it in a [`crate::decide::DecisionReason`].
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
