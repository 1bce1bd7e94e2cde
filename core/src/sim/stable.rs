//! The stable tree: frames that merged pages map, and chains of frames with the same content.
//!
//! A node is full at `max_page_sharing` mappings. A further page waits in the unstable tree for a second one, and the
//! two make another node, a *dup*, of the same content. Source: `stable_tree_search`, `stable_node_dup`.

use rustc_hash::FxHashMap;

use super::content::{ContentTable, NONE, ZERO_SLOT};

/// One frame of the stable tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct StableNode {
    /// The slot of its content. [`NONE`]: no page maps the frame, and only `rmap_item`s of diverged pages remain.
    pub slot: u32,
    /// The number of `rmap_item`s, those of diverged pages included.
    pub items: u32,
    /// The number of page table entries that map the frame.
    pub mapped: u32,
    next: u32,
    prev: u32,
    /// True if it is in a chain.
    pub dup: bool,
    /// True if it was the last one of its chain.
    ends_chain: bool,
}

/// All nodes, and the counters that depend on them alone.
#[derive(Debug, Clone, Default)]
pub(super) struct StableTree {
    nodes: Vec<StableNode>,
    free: Vec<u32>,
    /// The contents with a chain, and when it was last pruned, in ns.
    chains: FxHashMap<u32, u64>,
    /// The number of chains without a frame that ksmd has not visited since.
    empty_chains: u64,
    /// The number of nodes in chains, with those without a frame until ksmd's next visit.
    pub dups: u64,
    /// The number of mapped frames.
    pub frames: u64,
    /// `pages_shared`: nodes with an `rmap_item`.
    pub shared: u64,
    /// `pages_sharing`: further `rmap_item`s.
    pub sharing: u64,
    /// Full frames that a search passes in the chain of the empty page. `None`: not known since the chain has changed.
    empty_passed: Option<u64>,
}

impl StableTree {
    pub fn chains(&self) -> u64 {
        self.chains.len() as u64 + self.empty_chains
    }

    /// The number of different contents.
    pub fn contents(&self) -> u64 {
        (self.frames + self.chains()).saturating_sub(self.dups)
    }

    /// Full frames of empty pages that a search passes until it comes to one with room: all of them if there is none.
    pub fn full_empty(&mut self, contents: &ContentTable, max: u32) -> u64 {
        if let Some(passed) = self.empty_passed {
            return passed;
        }
        let passed = match contents.get(ZERO_SLOT).stable {
            NONE => 0,
            head => self.chain(head).take_while(|&node| self.nodes[node as usize].items >= max).count() as u64,
        };
        *self.empty_passed.insert(passed)
    }

    /// Forgets what is known of the chain of empty pages, if a node of them changes.
    fn touch(&mut self, slot: u32) {
        if slot == ZERO_SLOT {
            self.empty_passed = None;
        }
    }

    /// Finds the node that a page with the content of `slot` may join.
    pub fn search(
        &mut self,
        contents: &ContentTable,
        slot: u32,
        max: u32,
        now_ns: u64,
        prune_ns: u64,
    ) -> Option<u32> {
        let head = contents.get(slot).stable;
        if head == NONE {
            return None;
        }
        if !self.nodes[head as usize].dup {
            return (self.nodes[head as usize].items < max).then_some(head);
        }
        let pruned = self.chains.get_mut(&slot)?;
        if now_ns < pruned.saturating_add(prune_ns) {
            return self.chain(head).find(|&node| self.nodes[node as usize].items < max);
        }
        *pruned = now_ns;
        let fullest = self
            .chain(head)
            .filter(|&node| self.nodes[node as usize].items < max)
            .max_by_key(|&node| self.nodes[node as usize].items)?;
        if self.nodes[head as usize].next == NONE {
            self.chains.remove(&slot);
            self.nodes[head as usize].dup = false;
            self.dups -= 1;
        }
        Some(fullest)
    }

    fn chain(&self, head: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(head), |&node| Some(self.nodes[node as usize].next).filter(|&next| next != NONE))
    }

    /// Adds a node with the content of `slot`, which no page maps yet.
    pub fn insert(&mut self, contents: &mut ContentTable, slot: u32, now_ns: u64) -> u32 {
        let head = contents.get(slot).stable;
        let node =
            StableNode { slot, items: 0, mapped: 0, next: head, prev: NONE, dup: head != NONE, ends_chain: false };
        let index = if let Some(index) = self.free.pop() {
            self.nodes[index as usize] = node;
            index
        } else {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        };
        if head != NONE {
            let first = &mut self.nodes[head as usize];
            first.prev = index;
            self.dups += 1;
            if !first.dup {
                first.dup = true;
                self.dups += 1;
                self.chains.insert(slot, now_ns);
            }
        }
        contents.get_mut(slot).stable = index;
        self.frames += 1;
        self.touch(slot);
        index
    }

    /// Maps another page to `node`.
    pub fn append(&mut self, node: u32) {
        let node = &mut self.nodes[node as usize];
        node.mapped += 1;
        node.items += 1;
        let slot = node.slot;
        match node.items {
            1 => self.shared += 1,
            _ => self.sharing += 1,
        }
        self.touch(slot);
    }

    /// Removes a page table entry of `node`. The last one frees the frame.
    pub fn unmap(&mut self, contents: &mut ContentTable, node: u32) {
        let entry = &mut self.nodes[node as usize];
        entry.mapped -= 1;
        if entry.mapped > 0 {
            return;
        }
        let StableNode { slot, next, prev, dup, .. } = *entry;
        entry.slot = NONE;
        self.frames -= 1;
        self.touch(slot);
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        match prev {
            NONE => contents.get_mut(slot).stable = next,
            _ => self.nodes[prev as usize].next = next,
        }
        if dup && next == NONE && prev == NONE {
            self.chains.remove(&slot);
            self.empty_chains += 1;
            self.nodes[node as usize].ends_chain = true;
        }
    }

    /// Removes an `rmap_item` of a page that does not map `node` any more.
    pub fn remove_item(&mut self, node: u32) {
        let entry = &mut self.nodes[node as usize];
        entry.items -= 1;
        let slot = entry.slot;
        if slot == NONE {
            self.dups -= u64::from(std::mem::take(&mut entry.dup));
            self.empty_chains -= u64::from(std::mem::take(&mut entry.ends_chain));
        }
        if entry.items > 0 {
            self.sharing -= 1;
        } else {
            self.shared -= 1;
            self.free.push(node);
        }
        self.touch(slot);
    }

    /// The number of pages that map a node's frame.
    pub fn mappings(&self, node: u32) -> u32 {
        self.nodes[node as usize].mapped
    }

    #[cfg(test)]
    pub fn node(&self, node: u32) -> StableNode {
        self.nodes[node as usize]
    }

    #[cfg(test)]
    pub fn nodes_of(&self, contents: &ContentTable, slot: u32) -> Vec<u32> {
        match contents.get(slot).stable {
            NONE => Vec::new(),
            head => self.chain(head).collect(),
        }
    }
}
