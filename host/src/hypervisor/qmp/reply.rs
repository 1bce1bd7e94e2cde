//! The reply of a guest's hypervisor, no longer than a guest's may be: any user's program may pose as one.

use super::MonitorReply;

/// The longest text of a reply that is kept, in characters.
const LONGEST_TEXT: usize = 1024;

/// The most memory backends. QEMU has 512 slots for memory at most.
const MOST_BACKENDS: usize = 1024;

/// The longest id of a memory backend, in bytes.
const LONGEST_ID: usize = 256;

/// The reply of a guest's hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HypervisorReply {
    /// Reply of a QMP monitor.
    pub told: Option<MonitorReply>,
    /// Memory size as the guest sees it.
    pub memory_bytes: Option<u64>,
    /// The guest's name, if only its hypervisor knows it.
    pub name: Option<String>,
    /// Error, if there is no reply.
    pub error: Option<String>,
}

impl HypervisorReply {
    /// Returns the reply with long texts cut. Of a monitor with more backends than QEMU has, or longer ids, only the
    /// error is left.
    #[must_use]
    pub fn within_bounds(mut self) -> Self {
        let is_too_much = |told: &MonitorReply| {
            told.backends.len() > MOST_BACKENDS
                || told.backends.iter().filter_map(|backend| backend.id.as_ref()).any(|id| id.len() > LONGEST_ID)
        };
        if self.told.as_ref().is_some_and(is_too_much) {
            self.told = None;
            self.error = Some("its monitor names more memory backends than a guest has".to_owned());
        }
        let told = self.told.iter_mut().flat_map(|told| [&mut told.name, &mut told.uuid, &mut told.status]);
        told.chain([&mut self.name, &mut self.error]).flatten().for_each(cut_text);
        self
    }
}

/// Cuts a text of a monitor or a manager to the length that is kept.
pub(in crate::hypervisor) fn cut_text(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
        text.truncate(end);
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::qmp::MemoryBackend;

    fn backend(id: &str) -> MemoryBackend {
        MemoryBackend { id: Some(id.to_owned()), size: 1, merge: true, share: false }
    }

    fn reply(text: &str, backends: Vec<MemoryBackend>) -> HypervisorReply {
        let some = || Some(text.to_owned());
        let told = MonitorReply { name: some(), uuid: some(), status: some(), backends };
        HypervisorReply { told: Some(told), memory_bytes: Some(1), name: some(), error: some() }
    }

    #[test]
    fn of_a_reply_of_a_mebibyte_a_kibibyte_is_kept() {
        let usual = reply("web", vec![backend("pc.ram"); 512]);
        assert_eq!(usual.clone().within_bounds(), usual);
        let long = reply(&"\u{e9}".repeat(1 << 20), vec![]).within_bounds();
        assert_eq!(long, reply(&"\u{e9}".repeat(1024), vec![]));
        assert!(long.error.unwrap().capacity() < 8192);
    }

    #[test]
    fn a_monitor_with_more_backends_than_a_guest_has_counts_as_none() {
        for backends in [vec![backend("x"); 1025], vec![backend(&"x".repeat(257))]] {
            let kept = reply("web", backends).within_bounds();
            assert_eq!((kept.told, kept.memory_bytes), (None, Some(1)));
            assert!(kept.error.unwrap().contains("more memory backends"));
        }
    }
}
