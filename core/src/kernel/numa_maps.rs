//! `/proc/PID/numa_maps`: the NUMA nodes on which a mapping's memory may lie.

use std::collections::BTreeSet;

/// The NUMA nodes of one mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingNodes {
    /// Its first address.
    pub start: u64,
    /// The nodes that it is bound to. `None`: its policy only prefers, or is the process's default.
    pub bound: Option<BTreeSet<u32>>,
    /// The nodes on which it has pages now. A page that was there before the binding may lie on any.
    pub present: BTreeSet<u32>,
}

/// Parses the nodes of each mapping. Lines that are not understood count as not bound.
///
/// Source: `show_numa_map` in `fs/proc/task_mmu.c`, `mpol_to_str` in `mm/mempolicy.c`.
pub fn parse_numa_maps(text: &str) -> impl Iterator<Item = MappingNodes> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let start = u64::from_str_radix(words.next()?, 16).ok()?;
        let policy = words.next()?;
        // `bind:0-1`, `bind=static:0`
        let bound = policy.strip_prefix("bind").and_then(|rest| nodes(rest.rsplit_once(':')?.1));
        // `N0=512`; a file's path has no such word, since the kernel escapes its blanks and equals signs.
        let present = words.filter_map(|word| word.strip_prefix('N')?.split_once('=')?.0.parse().ok()).collect();
        Some(MappingNodes { start, bound, present })
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

/// Formats numbers as the kernel lists them: `0-3,6`.
pub fn number_list(set: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in set {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
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
        let found: Vec<_> = parse_numa_maps(text).collect();
        assert_eq!(found.len(), 4);
        let of_node = |node| BTreeSet::from([node]);
        let first = MappingNodes { start: 0x7f00_0000_0000, bound: Some(of_node(0)), present: of_node(0) };
        assert_eq!(found[0], first);
        assert_eq!((&found[1].bound, &found[2].bound), (&None, &None));
        assert_eq!((&found[1].present, &found[2].present), (&of_node(0), &BTreeSet::new()));
        assert_eq!(found[3].bound, Some(BTreeSet::from([0, 1])));
        let file = "7f00 default file=/N7\\0751 anon=2 N1=1 N12=1 Nx=1 kernelpagesize_kB=4\n";
        assert_eq!(parse_numa_maps(file).next().unwrap().present, BTreeSet::from([1, 12]));
        assert_eq!(nodes("0-2,5\n"), Some(BTreeSet::from([0, 1, 2, 5])));
        for bad in ["", "2-1", "x", "0-99999999"] {
            assert_eq!(nodes(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}|[0-9a-f]{1,17} bind:[0-9,-]{0,9}") {
            let _ = parse_numa_maps(&text).count();
        }
    }
}
