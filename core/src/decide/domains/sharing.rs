//! Sharing across domains, counted from the frames that guests map.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Pages of one guest that lie in one merged frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameMapping {
    /// The frame's number.
    pub frame: u64,
    /// The guest, by its place in the list of guests.
    pub guest: u32,
    /// Its pages in that frame.
    pub pages: u32,
}

/// The memory shared across domains at one moment. The kernel's zero page does not count: all processes map it, merging
/// or not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrossDomainSharing {
    /// Memory that more than one domain maps, each frame counted once.
    pub across_bytes: u64,
    /// Each domain with merged memory, and the part that others map too.
    pub domains: Vec<DomainSharing>,
    /// Each pair of domains that share memory.
    pub pairs: Vec<PairSharing>,
}

/// One domain's part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainSharing {
    /// Its name; `None` for guests of no domain, none of which may share with another.
    pub domain: Option<String>,
    /// Its merged memory, each page counted.
    pub merged_bytes: u64,
    /// The part of it that guests of other domains map too.
    pub across_bytes: u64,
}

/// The memory that two domains share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairSharing {
    /// The names of the two domains. Twice `None`: guests that belong to no domain, among themselves.
    pub domains: [Option<String>; 2],
    /// Memory that both map, each frame counted once.
    pub bytes: u64,
}

impl CrossDomainSharing {
    /// Counts the shared memory. `domains` has each guest's domain.
    pub fn from_mappings(domains: &[Option<&str>], mut held: Vec<FrameMapping>, page_size: u64) -> Self {
        let domain_of = |held: &FrameMapping| domains.get(held.guest as usize).copied().flatten();
        held.sort_unstable();
        let mut across = 0;
        let mut sums: BTreeMap<Option<&str>, [u64; 2]> = BTreeMap::new();
        let mut pairs: BTreeMap<[Option<&str>; 2], u64> = BTreeMap::new();
        for frame in held.chunk_by(|a, b| a.frame == b.frame) {
            // A guest of no domain is a party of its own.
            let mut parties: Vec<(Option<&str>, Option<u32>)> = frame
                .iter()
                .map(|held| (domain_of(held), domain_of(held).is_none().then_some(held.guest)))
                .collect();
            parties.sort_unstable();
            parties.dedup();
            let is_across = parties.len() > 1;
            across += u64::from(is_across);
            for held in frame {
                let [merged, shared] = sums.entry(domain_of(held)).or_default();
                *merged += u64::from(held.pages);
                *shared += if is_across { u64::from(held.pages) } else { 0 };
            }
            let mut names: Vec<Option<&str>> = parties.iter().map(|(domain, _)| *domain).collect();
            let lone = names.iter().filter(|name| name.is_none()).count();
            names.dedup();
            // `None` comes first: its own pair is with itself.
            if lone > 1 {
                *pairs.entry([None, None]).or_default() += 1;
            }
            for (at, one) in names.iter().enumerate() {
                for other in names.iter().skip(at + 1) {
                    *pairs.entry([*one, *other]).or_default() += 1;
                }
            }
        }
        let owned = |name: Option<&str>| name.map(str::to_owned);
        Self {
            across_bytes: across * page_size,
            domains: sums
                .into_iter()
                .map(|(domain, [merged, shared])| DomainSharing {
                    domain: owned(domain),
                    merged_bytes: merged * page_size,
                    across_bytes: shared * page_size,
                })
                .collect(),
            pairs: pairs
                .into_iter()
                .map(|(names, frames)| PairSharing { domains: names.map(owned), bytes: frames * page_size })
                .collect(),
        }
    }

    /// Returns the bytes that a domain maps together with others.
    pub fn across(&self, domain: Option<&str>) -> u64 {
        self.domains.iter().find(|it| it.domain.as_deref() == domain).map_or(0, |it| it.across_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(frame: u64, guest: u32, pages: u32) -> FrameMapping {
        FrameMapping { frame, guest, pages }
    }

    #[test]
    fn only_frames_of_several_domains_count_as_shared_across() {
        let domains = [Some("a"), Some("a"), Some("b"), None, None];
        let sharing = CrossDomainSharing::from_mappings(
            &domains,
            vec![
                // Within a.
                held(1, 0, 1),
                held(1, 1, 4),
                // a with b.
                held(2, 1, 2),
                held(2, 2, 1),
                // Two guests of no domain.
                held(3, 3, 1),
                held(3, 4, 1),
                // One of them by itself.
                held(4, 3, 9),
            ],
            4096,
        );
        assert_eq!(sharing.across_bytes, 2 * 4096);
        assert_eq!(sharing.across(Some("a")), 2 * 4096);
        assert_eq!(sharing.across(Some("b")), 4096);
        assert_eq!(sharing.across(None), 2 * 4096);
        assert_eq!(sharing.across(Some("c")), 0);
        let merged: Vec<u64> = sharing.domains.iter().map(|it| it.merged_bytes / 4096).collect();
        assert_eq!(merged, [11, 7, 1]);
        let pair = |one: Option<&str>, other: Option<&str>| PairSharing {
            domains: [one, other].map(|name| name.map(str::to_owned)),
            bytes: 4096,
        };
        assert_eq!(sharing.pairs, [pair(None, None), pair(Some("a"), Some("b"))]);
    }

    proptest! {
        /// By definition, frame by frame.
        #[test]
        fn it_agrees_with_a_plain_count(
            pages in prop::collection::vec((0..12_u64, 0..6_u32, 1..4_u32), 0..60),
            assigned in prop::collection::vec(prop::option::of(0..3_usize), 6),
        ) {
            let names = ["a", "b", "c"];
            let domains: Vec<Option<&str>> = assigned.iter().map(|at| at.map(|at| names[at])).collect();
            let party = |guest: u32| match domains[guest as usize] {
                Some(domain) => domain.to_owned(),
                None => guest.to_string(),
            };
            let expected = (0..12).filter(|frame| {
                let parties: std::collections::BTreeSet<String> =
                    pages.iter().filter(|page| page.0 == *frame).map(|page| party(page.1)).collect();
                parties.len() > 1
            });
            let all = pages.iter().map(|&(frame, guest, pages)| held(frame, guest, pages)).collect();
            let sharing = CrossDomainSharing::from_mappings(&domains, all, 1);
            prop_assert_eq!(sharing.across_bytes, expected.count() as u64);
            let merged: u64 = sharing.domains.iter().map(|it| it.merged_bytes).sum();
            prop_assert_eq!(merged, pages.iter().map(|page| u64::from(page.2)).sum::<u64>());
            prop_assert_eq!(sharing.across_bytes > 0, !sharing.pairs.is_empty());
            prop_assert!(sharing.pairs.iter().all(|pair| pair.bytes <= sharing.across_bytes));
            prop_assert!(sharing.domains.iter().all(|it| it.across_bytes <= it.merged_bytes));
        }
    }
}
