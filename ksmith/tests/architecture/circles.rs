//! Circles of files that name each other. A module and its own descendants may: they are one room.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{Module, SourceTree};

/// Groups of two or more modules that reach each other.
pub fn circles(tree: &SourceTree) -> Vec<Vec<Module>> {
    let is_family = |a: &Module, b: &Module| a.starts_with(b) || b.starts_with(a);
    let arrows: BTreeMap<&Module, BTreeSet<Module>> = tree
        .files
        .keys()
        .map(|module| {
            (module, tree.named_by(module).into_iter().filter(|other| !is_family(module, other)).collect())
        })
        .collect();
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = arrows
        .keys()
        .map(|module| {
            let mut reached = BTreeSet::new();
            let mut open: Vec<&Module> = arrows[*module].iter().collect();
            while let Some(next) = open.pop() {
                if reached.insert(next) {
                    open.extend(arrows.get(next).into_iter().flatten());
                }
            }
            (*module, reached)
        })
        .collect();
    let mut found: BTreeSet<Vec<Module>> = BTreeSet::new();
    for (module, reached) in &reach {
        if reached.contains(module) {
            let members = reached.iter().filter(|other| reach[**other].contains(module));
            found.insert(members.map(|other| (*other).clone()).collect());
        }
    }
    found.into_iter().collect()
}
