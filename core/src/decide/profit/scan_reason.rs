//! Reasons to scan.

/// The reason for starting a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanReason {
    /// There is new memory. Two visits, since an unmerged page merges on the second that finds it unchanged.
    Burst,
    /// Memory grew during a burst, too little to begin it anew. Two visits of all of it, once it had time to grow.
    Finish,
    /// New guests have merged fewer pages than they might have. One more pass over all memory.
    Retry,
    /// New guests have merged a smaller part of their memory than others have, and old memory was skipped for them. One
    /// pass over all memory.
    Meet,
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
            Self::Burst | Self::Finish | Self::Revisit => 2,
            Self::Retry | Self::Meet | Self::Sustain | Self::Probe | Self::Tidy => 1,
        }
    }

    /// The word for it in a [`crate::decide::DecisionReason`].
    pub fn state(self) -> &'static str {
        match self {
            Self::Burst | Self::Finish | Self::Retry | Self::Meet => "burst",
            Self::Revisit => "revisit",
            Self::Sustain => "sustain",
            Self::Probe => "probe",
            Self::Tidy => "tidy",
        }
    }
}
