//! The format of the kernel's process events on netlink.
//!
//! Source: `include/uapi/linux/{netlink,connector,cn_proc}.h`. A datagram holds netlink messages
//! (`struct nlmsghdr`), each with a connector message (`struct cn_msg`) that holds a `struct proc_event`.

/// An event of a process, or of the event source itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The process with this PID was forked.
    Started(u32),
    /// The process with this PID executes another program.
    Exec(u32),
    /// The process with this PID has exited.
    Exited(u32),
    /// Events were lost, or just began. Only a scan shows which processes run.
    Lost,
    /// No more events will arrive.
    Ended,
}

/// A message from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectorMessage {
    /// The reply to the request with this number: 0 or an error code.
    Answer { number: u32, error: u32 },
    /// An event of a process. Events of threads are left out.
    Process(ProcessEvent),
}

const NETLINK_HEADER: usize = 16;
const NLMSG_DONE: u16 = 3;
const CN_HEADER: usize = 20;
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
/// `what`, `cpu` and `timestamp_ns` precede the data of an event.
const EVENT_HEADER: usize = 16;

const NONE: u32 = 0;
const FORK: u32 = 1;
const EXEC: u32 = 2;
const EXIT: u32 = 0x8000_0000;

const MCAST_LISTEN: u32 = 1;
const MCAST_IGNORE: u32 = 2;

/// A request to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectorRequest {
    /// Subscribes to all events.
    Listen,
    /// Subscribes to the events that ksmith uses. Kernels before 6.6 ignore the request because of its length.
    ListenToOurs,
    /// Unsubscribes.
    Ignore,
}

impl ConnectorRequest {
    /// Returns the request as a datagram. The kernel repeats `number` in its reply, which all listeners receive.
    pub(super) fn bytes(self, number: u32) -> Vec<u8> {
        let words: &[u32] = match self {
            Self::Listen => &[MCAST_LISTEN],
            Self::ListenToOurs => &[MCAST_LISTEN, FORK | EXEC | EXIT],
            Self::Ignore => &[MCAST_IGNORE],
        };
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // At most 44 bytes: neither length can overflow its field.
        let length = (NETLINK_HEADER + CN_HEADER + data.len()) as u32;
        let mut bytes = Vec::with_capacity(length as usize);
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&NLMSG_DONE.to_ne_bytes());
        bytes.extend_from_slice(&0_u16.to_ne_bytes());
        for word in [0, 0, CN_IDX_PROC, CN_VAL_PROC, 0, number] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(&(data.len() as u16).to_ne_bytes());
        bytes.extend_from_slice(&0_u16.to_ne_bytes());
        bytes.extend_from_slice(&data);
        bytes
    }
}

/// Parses the messages of one datagram. Messages that are too short or of another kind are skipped.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = ConnectorMessage> {
    std::iter::from_fn(move || {
        loop {
            let length = usize::try_from(word(datagram, 0)?).ok()?;
            let message = datagram.get(NETLINK_HEADER..length)?;
            // Messages begin at multiples of four.
            datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
            if let Some(message) = connector_message(message) {
                return Some(message);
            }
        }
    })
}

fn connector_message(bytes: &[u8]) -> Option<ConnectorMessage> {
    if (word(bytes, 0)?, word(bytes, 4)?) != (CN_IDX_PROC, CN_VAL_PROC) {
        return None;
    }
    // The answer's `ack` is the request's plus one (`cn_proc_ack`). Its `seq` is of no use: `send_msg` puts a
    // per-CPU counter there.
    let number = word(bytes, 12)?.wrapping_sub(1);
    let event = bytes.get(CN_HEADER..)?;
    let data = event.get(EVENT_HEADER..)?;
    let event = match word(event, 0)? {
        NONE => return Some(ConnectorMessage::Answer { number, error: word(data, 0)? }),
        // parent_pid, parent_tgid, child_pid, child_tgid
        FORK => ProcessEvent::Started(leader(word(data, 8)?, word(data, 12)?)?),
        // A thread that executes a program becomes the leader of its process.
        EXEC => ProcessEvent::Exec(word(data, 4)?),
        EXIT => ProcessEvent::Exited(leader(word(data, 0)?, word(data, 4)?)?),
        _ => return None,
    };
    Some(ConnectorMessage::Process(event))
}

/// Returns the PID, unless this is a thread of another process.
fn leader(pid: u32, process: u32) -> Option<u32> {
    (pid == process).then_some(pid)
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(what: u32, data: &[u32]) -> Vec<u8> {
        let mut bytes = ConnectorRequest::Listen.bytes(8);
        bytes.truncate(NETLINK_HEADER + CN_HEADER);
        for word in [what, 0, 0, 0].iter().chain(data) {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        let length = (bytes.len() as u32).to_ne_bytes();
        bytes[..4].copy_from_slice(&length);
        bytes
    }

    fn all(datagram: &[u8]) -> Vec<ConnectorMessage> {
        messages(datagram).collect()
    }

    #[test]
    fn processes_are_told_and_threads_are_not() {
        assert_eq!(all(&message(FORK, &[1, 1, 50, 50])), [ConnectorMessage::Process(ProcessEvent::Started(50))]);
        assert_eq!(all(&message(FORK, &[1, 1, 51, 50])), []);
        assert_eq!(all(&message(EXIT, &[50, 50, 0, 17])), [ConnectorMessage::Process(ProcessEvent::Exited(50))]);
        assert_eq!(all(&message(EXIT, &[51, 50, 0, 17])), []);
        assert_eq!(all(&message(EXEC, &[51, 50])), [ConnectorMessage::Process(ProcessEvent::Exec(50))]);
        assert_eq!(all(&message(4, &[50, 50, 0, 0])), [], "a change of user");
        assert_eq!(all(&message(NONE, &[1])), [ConnectorMessage::Answer { number: 7, error: 1 }]);
    }

    #[test]
    fn a_datagram_may_hold_several_messages() {
        let mut datagram = message(EXEC, &[5, 5]);
        datagram.extend(message(4, &[5, 5]));
        datagram.extend(message(EXIT, &[5, 5]));
        assert_eq!(
            all(&datagram),
            [ConnectorMessage::Process(ProcessEvent::Exec(5)), ConnectorMessage::Process(ProcessEvent::Exited(5))]
        );
        datagram.truncate(datagram.len() - 1);
        assert_eq!(all(&datagram), [ConnectorMessage::Process(ProcessEvent::Exec(5))]);
    }

    #[test]
    fn requests_are_as_long_as_they_say() {
        for (request, length) in
            [(ConnectorRequest::Listen, 40), (ConnectorRequest::ListenToOurs, 44), (ConnectorRequest::Ignore, 40)]
        {
            let bytes = request.bytes(3);
            assert_eq!(bytes.len(), length);
            assert_eq!(word(&bytes, 0), Some(length as u32));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_loop(datagram: Vec<u8>) {
            prop_assert!(all(&datagram).len() <= datagram.len());
        }

        #[test]
        fn no_damage_to_a_message_panics(
            what in prop::sample::select(vec![NONE, FORK, EXEC, EXIT]),
            data in prop::collection::vec(any::<u32>(), 0..6),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut bytes = message(what, &data);
            for (index, byte) in damage {
                let index = index.index(bytes.len());
                bytes[index] = byte;
            }
            prop_assert!(all(&bytes).len() <= bytes.len() / NETLINK_HEADER);
        }
    }
}
