//! `/proc/PID/numa_maps`: the NUMA nodes on which a mapping's memory may lie.

use std::collections::BTreeSet;

/// Parses the nodes that each mapping is bound to, by its first address. Mappings with a policy that only prefers are
/// not bound, nor are those with the process's default. Lines that are not understood count as not bound.
///
/// Source: `show_numa_map` in `fs/proc/task_mmu.c`, `mpol_to_str` in `mm/mempolicy.c`.
pub fn bound_nodes(text: &str) -> impl Iterator<Item = (u64, Option<BTreeSet<u32>>)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let start = u64::from_str_radix(words.next()?, 16).ok()?;
        let policy = words.next()?;
        // `bind:0-1`, `bind=static:0`
        let nodes = policy.strip_prefix("bind").and_then(|rest| nodes(rest.rsplit_once(':')?.1));
        Some((start, nodes))
    })
}

/// Parses a list of nodes such as `0-2,5`. `None` if it is none, or empty.
pub fn nodes(list: &str) -> Option<BTreeSet<u32>> {
    /// More than any kernel has (`CONFIG_NODES_SHIFT` is at most 10).
    const MOST: u32 = 1024;
    let mut nodes = BTreeSet::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        nodes.extend(first..=last);
    }
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_binding_binds() {
        let text = "7f0000000000 bind:0 anon=512 dirty=512 N0=512 kernelpagesize_kB=4\n\
                    7f1000000000 default anon=2 N0=2\n7f2000000000 prefer:1 anon=1\n\
                    7f3000000000 bind=static:0-1 anon=1\nnonsense\n";
        let found: Vec<_> = bound_nodes(text).collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[0], (0x7f00_0000_0000, Some(BTreeSet::from([0]))));
        assert_eq!((&found[1].1, &found[2].1), (&None, &None));
        assert_eq!(found[3].1, Some(BTreeSet::from([0, 1])));
        assert_eq!(nodes("0-2,5\n"), Some(BTreeSet::from([0, 1, 2, 5])));
        for bad in ["", "2-1", "x", "0-99999999"] {
            assert_eq!(nodes(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}|[0-9a-f]{1,17} bind:[0-9,-]{0,9}") {
            let _ = bound_nodes(&text).count();
        }
    }
}
