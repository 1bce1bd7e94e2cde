//! Checks of a configuration against this host: the cgroups, groups, NUMA nodes and CPUs that it names must exist.

use std::collections::BTreeSet;
use std::path::Path;

use ksmith_core::balance::PoolScope;
use ksmith_core::contradiction::Contradiction;
use ksmith_core::kernel::{nodes, number_list};
use ksmith_host::root::Root;
use ksmith_host::users::group_id;

use super::{Config, KsmdCpus};
use crate::user_socket::OptinConfig;
use crate::view_socket::ViewConfig;

const CGROUPS: &str = "sys/fs/cgroup";

/// Finds names in the configuration that this host does not have. Files that a captured tree lacks are not judged.
pub(super) fn misfits(config: &Config, root: &Root) -> Vec<Contradiction> {
    let mut found = cgroups(config, root);
    found.extend(groups(config, root));
    found.extend(numa_nodes(config, root));
    found.extend(cpus(config, root));
    found
}

fn cgroups(config: &Config, root: &Root) -> Vec<Contradiction> {
    if !root.path(CGROUPS).is_dir() {
        return Vec::new();
    }
    let place = |path: &str| Path::new(CGROUPS).join(path.trim_start_matches("/sys/fs/cgroup").trim_matches('/'));
    let is_missing = |path: &str| !root.path(place(path)).is_dir();
    let mut found = Vec::new();
    if let PoolScope::Cgroup(path) = &config.balance.pool {
        let limit = root.text(place(path).join("memory.max"));
        let message = match limit.value() {
            _ if is_missing(path) => Some(format!(
                "there is no cgroup {path:?} below /sys/fs/cgroup: name one that is there, or \"host\""
            )),
            Some(limit) if limit.trim() == "max" => {
                Some(format!("the cgroup {path:?} has no limit: set its memory.max, or use pool = \"host\""))
            }
            _ => None,
        };
        found.extend(message.map(|message| Contradiction::new(&[&["balance", "pool"]], message)));
    }
    for (index, path) in config.balance.cgroups.iter().enumerate().filter(|(_, path)| is_missing(path)) {
        let message =
            format!("there is no cgroup {path:?} below /sys/fs/cgroup: start its service, or leave it out");
        found.push(Contradiction::new(&[&["balance", "cgroups", &index.to_string()]], message));
    }
    found
}

/// Checks the groups other than the default ones. Without a default one only root may ask, which is documented.
fn groups(config: &Config, root: &Root) -> Vec<Contradiction> {
    let list = (!root.is_host()).then(|| root.text("etc/group"));
    let is_missing = |name: &str| match &list {
        None => group_id(name).is_none(),
        Some(list) => list.value().is_some_and(|text| {
            !text.lines().any(|line| line.split_once(':').is_some_and(|(group, _)| group == name))
        }),
    };
    let groups = [
        ("optin", &config.optin.group, OptinConfig::default().group),
        ("view", &config.view.group, ViewConfig::default().group),
    ];
    let missing = groups.into_iter().filter(|(_, name, usual)| *name != usual && is_missing(name));
    missing
        .map(|(table, name, _)| {
            let message = format!(
                "there is no group {name:?}, so that only root may ask: `groupadd --system {name}`, or name another"
            );
            Contradiction::new(&[&[table, "group"]], message)
        })
        .collect()
}

fn numa_nodes(config: &Config, root: &Root) -> Vec<Contradiction> {
    let Some(online) = online(root, "sys/devices/system/node/online") else { return Vec::new() };
    let missing = config.domains.nodes.iter().filter(|(_, node)| !online.contains(node));
    missing
        .map(|(domain, node)| {
            let message = format!("there is no NUMA node {node} here: nodes are {}", number_list(&online));
            Contradiction::new(&[&["domains", "nodes", domain]], message)
        })
        .collect()
}

fn cpus(config: &Config, root: &Root) -> Option<Contradiction> {
    let wanted = config.daemon.ksmd_cpus.as_ref().and_then(KsmdCpus::listed).and_then(nodes)?;
    let online = online(root, "sys/devices/system/cpu/online")?;
    let missing: BTreeSet<_> = wanted.difference(&online).copied().collect();
    let message = format!("there is no CPU {} here: CPUs are {}", number_list(&missing), number_list(&online));
    (!missing.is_empty()).then(|| Contradiction::new(&[&["daemon", "ksmd_cpus"]], message))
}

/// Reads a list of numbers from a kernel file; `None` if there is none.
fn online(root: &Root, file: &str) -> Option<BTreeSet<u32>> {
    root.text(file).value().and_then(|text| nodes(text))
}
