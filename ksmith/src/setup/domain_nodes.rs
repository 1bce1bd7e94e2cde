//! The plan for several trust domains at once: a NUMA node for each. The kernel keeps a tree of merged pages for each
//! node (`merge_across_nodes=0`), and makes nodes of a host that has one (`numa=fake=`).

use std::path::PathBuf;

use ksmith_core::decide::domains::{DomainMode, DomainsConfig};
use ksmith_core::field::KernelVersion;
use ksmith_core::kernel::Meminfo;
use ksmith_core::units::Bytes;
use ksmith_host::doctor::memory_nodes;
use ksmith_host::root::Root;

use super::step::SetupStep;

/// Files that GRUB's configuration reads on Debian and Ubuntu.
const GRUB_DIRECTORY: &str = "/etc/default/grub.d";

/// The facts of a host on which the plan for the domains depends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFacts {
    /// Nodes with memory. 0 where the kernel has no support for NUMA.
    pub nodes: usize,
    /// The host's memory, in bytes; `None` where /proc/meminfo does not tell.
    pub memory_bytes: Option<u64>,
    /// True if the kernel can make several nodes of one (`CONFIG_NUMA_EMU`).
    pub can_split: bool,
    /// True if GRUB reads a directory of files.
    pub has_grub_directory: bool,
    /// The reason why this kernel can't keep domains apart, if so.
    pub refused: Option<String>,
    /// Files of an earlier plan, with their contents.
    pub files: Vec<(PathBuf, String)>,
}

impl NodeFacts {
    /// Reads what a plan for so many domains depends on.
    pub fn read_host(root: &Root, domains: u32) -> Self {
        let text = |path: &str| root.text(path).value().cloned();
        let release = text("proc/sys/kernel/osrelease").unwrap_or_default();
        let config = text(&format!("boot/config-{}", release.trim())).unwrap_or_default();
        let node = DomainsConfig { mode: DomainMode::Node, ..DomainsConfig::default() };
        let is_there =
            |path: &PathBuf| root.path(path.strip_prefix("/").unwrap_or(path)).symlink_metadata().is_ok();
        let files = (0..domains).map(slice_path).chain([grub_path()]);
        Self {
            nodes: memory_nodes(root),
            memory_bytes: root
                .text("proc/meminfo")
                .and_then(|text| Meminfo::parse(&text))
                .get()
                .and_then(|it| it.total),
            can_split: config.lines().any(|line| line == "CONFIG_NUMA_EMU=y"),
            has_grub_directory: is_there(&GRUB_DIRECTORY.into()),
            refused: node.refused_on(KernelVersion::parse(&release)),
            files: files
                .filter(is_there)
                .map(|path| {
                    let written = text(&path.strip_prefix("/").unwrap_or(&path).to_string_lossy());
                    (path, written.unwrap_or_default())
                })
                .collect(),
        }
    }
}

/// The part of a setup's plan that concerns the domains.
#[derive(Debug, Default)]
pub(super) struct DomainNodesPlan {
    pub(super) steps: Vec<SetupStep>,
    pub(super) obstacles: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl DomainNodesPlan {
    /// Plans so many domains on a host.
    pub(super) fn new(facts: &NodeFacts, domains: u32) -> Self {
        let mut plan = Self::default();
        plan.obstacles.extend(facts.refused.clone());
        let needs_split = facts.nodes < domains as usize;
        if facts.nodes == 0 || needs_split && !facts.can_split {
            plan.obstacles.push(format!(
                "this kernel can't make {domains} nodes of the host's memory (CONFIG_NUMA_EMU; Debian's cloud kernels \
                 lack it): boot one that can"
            ));
        } else if needs_split && facts.nodes > 1 {
            plan.obstacles.push(format!(
                "the host has {} nodes of its own: plan as many domains at most, or boot with numa=fake={domains} by hand",
                facts.nodes
            ));
        }
        if !plan.obstacles.is_empty() {
            return plan;
        }
        if needs_split {
            plan.split_memory(facts, domains);
        }
        for domain in 0..domains {
            let text = format!(
                "# Written by ksmith setup --domains\n[Unit]\nDescription=Trust domain {domain}: memory of NUMA node {domain} only\n\n\
                 [Slice]\nAllowedMemoryNodes={domain}\n"
            );
            plan.write(facts, slice_path(domain), text, "what runs in this slice gets memory of one node only");
        }
        plan.say_costs_and_placement(facts, domains);
        plan
    }

    fn split_memory(&mut self, facts: &NodeFacts, domains: u32) {
        if facts.has_grub_directory {
            let text = format!(
                "# Written by ksmith setup --domains\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX numa=fake={domains}\"\n"
            );
            self.write(facts, grub_path(), text, "the kernel makes as many nodes of the host's memory");
            self.notes.push("run `update-grub` and reboot".to_owned());
        } else {
            self.notes.push(format!(
                "add numa=fake={domains} to the kernel's command line and reboot: `grubby --update-kernel=ALL \
                 --args=numa=fake={domains}`, or /etc/kernel/cmdline and `proxmox-boot-tool refresh`"
            ));
        }
    }

    fn write(&mut self, facts: &NodeFacts, path: PathBuf, text: String, why: &str) {
        match facts.files.iter().find(|(written, _)| *written == path) {
            Some((_, there)) if *there == text => {}
            Some(_) => self.obstacles.push(format!(
                "{} belongs to another plan: undo that first, with `ksmith setup --undo` or by hand",
                path.display()
            )),
            None => self.steps.push(SetupStep::File { path, text, why: why.to_owned() }),
        }
    }

    fn say_costs_and_placement(&mut self, facts: &NodeFacts, domains: u32) {
        let nodes: Vec<String> = (0..domains).map(|domain| format!("domain{domain} = {domain}")).collect();
        self.notes.extend([
            format!(
                "in /etc/ksmith.toml: [daemon] merge_across_nodes = false; [domains] mode = \"node\", nodes = {{ {} }}, and \
                 a rule for each domain",
                nodes.join(", ")
            ),
            "services: Slice=ksmith-domain0.slice; libvirt: <numatune><memory mode='strict' nodeset='0'/></numatune>; \
             Proxmox: qm set VMID --numa 1 --numa0 cpus=0-3,hostnodes=0,memory=MIB,policy=bind"
                .to_owned(),
        ]);
        let each = facts.memory_bytes.map_or_else(
            || format!("an {domains}th of the memory"),
            |bytes| Bytes::from(bytes / u64::from(domains)).to_string(),
        );
        self.notes.push(format!(
            "what it costs: each domain has {each} and can't use another's free memory; equal pages of two domains are kept twice"
        ));
    }
}

fn grub_path() -> PathBuf {
    PathBuf::from(GRUB_DIRECTORY).join("ksmith-domains.cfg")
}

fn slice_path(domain: u32) -> PathBuf {
    PathBuf::from(format!("/etc/systemd/system/ksmith-domain{domain}.slice"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn facts() -> NodeFacts {
        NodeFacts {
            nodes: 1,
            memory_bytes: Some(64 << 30),
            can_split: true,
            has_grub_directory: true,
            ..NodeFacts::default()
        }
    }

    fn written(plan: &DomainNodesPlan) -> Vec<(String, String)> {
        let file = |step: &SetupStep| match step {
            SetupStep::File { path, text, .. } => (path.display().to_string(), text.clone()),
            other => panic!("{other:?}"),
        };
        plan.steps.iter().map(file).collect()
    }

    #[test]
    fn a_host_with_one_node_gets_nodes_and_a_slice_for_each() {
        let plan = DomainNodesPlan::new(&facts(), 2);
        assert_eq!(plan.obstacles, Vec::<String>::new());
        let files = written(&plan);
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/etc/default/grub.d/ksmith-domains.cfg",
                "/etc/systemd/system/ksmith-domain0.slice",
                "/etc/systemd/system/ksmith-domain1.slice",
            ]
        );
        assert!(files[0].1.ends_with("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX numa=fake=2\"\n"), "{}", files[0].1);
        assert!(files[2].1.ends_with("[Slice]\nAllowedMemoryNodes=1\n"), "{}", files[2].1);
        let notes = plan.notes.join("\n");
        for part in [
            "update-grub",
            "merge_across_nodes = false",
            "nodes = { domain0 = 0, domain1 = 1 }",
            "nodeset='0'",
            "hostnodes=0",
            "32.0 GiB",
        ] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
        let of_first = files.iter().map(|(path, text)| (PathBuf::from(path), text.clone())).collect();
        let again = NodeFacts { files: of_first, ..facts() };
        assert!(DomainNodesPlan::new(&again, 2).steps.is_empty(), "a second run does what is missing");
        let other = DomainNodesPlan::new(&again, 4).obstacles;
        assert!(other.len() == 1 && other[0].contains("ksmith-domains.cfg belongs to another plan"), "{other:?}");
    }

    #[test]
    fn hosts_with_nodes_of_their_own_and_other_boot_loaders_change_no_command_line() {
        let own = DomainNodesPlan::new(&NodeFacts { nodes: 4, can_split: false, ..facts() }, 4);
        assert!(own.obstacles.is_empty() && !written(&own).iter().any(|(path, _)| path.contains("grub")));
        let other = DomainNodesPlan::new(&NodeFacts { has_grub_directory: false, ..facts() }, 4);
        assert!(!written(&other).iter().any(|(path, _)| path.contains("grub")));
        assert!(other.notes[0].contains("numa=fake=4"), "{:?}", other.notes);
    }

    #[test]
    fn a_kernel_that_can_not_keep_domains_apart_is_an_obstacle_and_nothing_is_planned() {
        let cases = [
            NodeFacts { can_split: false, ..facts() },
            NodeFacts { nodes: 0, ..facts() },
            NodeFacts { nodes: 2, ..facts() },
            NodeFacts { refused: Some("an old kernel".to_owned()), ..facts() },
        ];
        for case in cases {
            let plan = DomainNodesPlan::new(&case, 4);
            assert_eq!((plan.obstacles.len(), plan.steps.len()), (1, 0), "{case:?}");
        }
    }

    #[test]
    fn the_facts_are_read_from_the_hosts_files() {
        let tree = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/sys/kernel/osrelease", "6.12.1-amd64\n");
        put("proc/meminfo", "MemTotal: 1024 kB\n");
        put("sys/devices/system/node/has_memory", "0\n");
        put("boot/config-6.12.1-amd64", "CONFIG_NUMA=y\nCONFIG_NUMA_EMU=y\n");
        put("etc/default/grub.d/other.cfg", "");
        put("etc/systemd/system/ksmith-domain1.slice", "");
        let found = NodeFacts::read_host(&Root::at(tree.path()), 2);
        let expected =
            NodeFacts { memory_bytes: Some(1 << 20), files: vec![(slice_path(1), String::new())], ..facts() };
        assert_eq!(found, expected);
        put("proc/sys/kernel/osrelease", "6.1.0-amd64\n");
        let old = NodeFacts::read_host(&Root::at(tree.path()), 2);
        assert!(!old.can_split && old.refused.is_some(), "{old:?}");
    }
}
