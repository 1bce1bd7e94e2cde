//! Entries of the journal with fields of their own (systemd's native protocol, systemd.journal-fields(7)).

use std::io;
use std::os::unix::net::UnixDatagram;

use ksmith_core::alarm::AlarmTransition;
use ksmith_core::printable::OneLine;

/// The socket at which journald takes entries.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Sends a notice. Each field is one line: the text has no line break.
///
/// # Errors
/// There is no journald, or it does not take the entry at once.
pub(super) fn send(socket: &str, notice: &AlarmTransition) -> io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    datagram.set_nonblocking(true)?;
    datagram.send_to(entry(notice).as_bytes(), socket)?;
    Ok(())
}

pub(super) fn entry(notice: &AlarmTransition) -> String {
    // warning, and notice.
    let priority = if notice.begins { 4 } else { 5 };
    format!(
        "MESSAGE={}\nMESSAGE_ID={}\nPRIORITY={priority}\nSYSLOG_IDENTIFIER=ksmith\nKSMITH_ALARM={}\nKSMITH_STATE={}\n",
        OneLine(&notice.text),
        notice.alarm.message_id(),
        notice.alarm.word(),
        notice.state()
    )
}
