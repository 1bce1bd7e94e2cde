//! Descriptors that peers pass over Unix sockets (`SCM_RIGHTS`), of which ksmith wants none.
//!
//! A passed descriptor lies in the receiver's queue. Closing the receiver's socket, or a read without room for
//! descriptors, closes it in the receiver's thread. A TCP socket with `SO_LINGER` blocks that thread for as long as its
//! sender says.

#![allow(unsafe_code, reason = "rustix does not know the option yet")]

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_PASSRIGHTS` of include/uapi/asm-generic/socket.h (Linux 6.16).
const SO_PASSRIGHTS: libc::c_int =
    if cfg!(any(target_arch = "sparc", target_arch = "sparc64")) { 0x5c } else { 83 };

/// Has the kernel refuse messages with descriptors to this Unix socket: their sender gets `EPERM`. Connections to a
/// listener inherit the refusal if it was set before they were made. Returns false if the kernel can't do that (before
/// Linux 6.16): then descriptors still come.
pub fn refuse_descriptors(socket: impl AsFd) -> bool {
    let off: libc::c_int = 0;
    // SAFETY: the kernel reads `off`, of the given size, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    result == 0
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;

    use rustix::cmsg_space;
    use rustix::io::Errno;
    use rustix::net::{
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg, sendmsg_addr,
    };

    use super::*;

    /// Returns true if sockets can refuse descriptors here.
    pub(crate) fn kernel_refuses() -> bool {
        let refuses = refuse_descriptors(UnixStream::pair().unwrap().0);
        if !refuses {
            eprintln!("this kernel has no SO_PASSRIGHTS");
        }
        refuses
    }

    /// Passes a descriptor over a socket.
    pub(crate) fn pass_descriptor(socket: impl AsFd, to: Option<&SocketAddrUnix>) -> Result<usize, Errno> {
        let file = File::open("/dev/null").unwrap();
        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        assert!(passed.push(SendAncillaryMessage::ScmRights(&files)));
        let text = [IoSlice::new(b"x")];
        match to {
            Some(to) => sendmsg_addr(&socket, to, &text, &mut passed, SendFlags::NOSIGNAL),
            None => sendmsg(&socket, &text, &mut passed, SendFlags::NOSIGNAL),
        }
    }

    #[test]
    fn a_socket_that_refuses_descriptors_gets_none() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(pass_descriptor(&theirs, None), Ok(1));
        if kernel_refuses() {
            assert!(refuse_descriptors(&ours));
            assert_eq!(pass_descriptor(&theirs, None), Err(Errno::PERM));
            assert_eq!(pass_descriptor(&ours, None), Ok(1), "the other end takes them");
        }
    }

    #[test]
    fn only_unix_sockets_refuse_descriptors() {
        assert!(!refuse_descriptors(File::open("/dev/null").unwrap()));
        assert!(!refuse_descriptors(UdpSocket::bind("127.0.0.1:0").unwrap()));
    }
}
