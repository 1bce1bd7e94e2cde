//! Figures of a trust domain.

use super::figure::figures;
use crate::decide::domains::{DomainFigures, DomainSharing};

figures! {
    /// Figures of a trust domain.
    DOMAIN of DomainFigures {
        "domain": String, Label State (2 6), "[domains] in the configuration",
            "Name of the domain; null for guests that belong to none.",
            |domain| domain.domain.clone();
        "guests": u64, Count Gauge (2 6), "the list of guests",
            "Guests of the domain.",
            |domain| domain.guests;
        "mergeable_guests": u64, Count Gauge (2 6), "the guests' mergeable",
            "Guests of the domain that offer memory to KSM, or might.",
            |domain| domain.mergeable_guests;
        "merged_bytes": u64, Bytes Gauge (5 19), "sum of the guests' merged_bytes",
            "Merged memory of the domain, zero pages included.",
            |domain| domain.merged_bytes;
        "saved_bytes": u64, Bytes Gauge (5 19), "sum of the guests' saved_bytes",
            "The domain's part of what the host saves.",
            |domain| domain.saved_bytes;
    }
}

figures! {
    /// Figures of what a domain shares with others, from the frames that guests map.
    DOMAIN_SHARING of DomainSharing {
        "domain": String, Label State (2 6), "[domains] in the configuration",
            "Name of the domain; null for guests that belong to none, each trusting no other.",
            |domain| domain.domain.clone();
        "merged_bytes": u64, Bytes Gauge (2 6), "/proc/PID/pagemap, /proc/kpageflags",
            "Merged memory of the domain, each page counted.",
            |domain| domain.merged_bytes;
        "across_bytes" ["across" 60]: u64, Bytes Gauge (2 6), "/proc/PID/pagemap, /proc/kpageflags",
            "Merged memory of the domain that guests of other domains map too.",
            |domain| domain.across_bytes;
    }
}
