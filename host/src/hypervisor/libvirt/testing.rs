//! The other side of libvirt's protocol, for tests.

use std::io::Read;
use std::os::unix::net::UnixStream;

use super::xdr::XdrDecoder;

/// Reads the next call: the six numbers of its header, and its arguments. `None` if the peer has hung up.
pub(super) fn read_call(stream: &mut UnixStream) -> Option<([u32; 6], Vec<u8>)> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut call = vec![0; u32::from_be_bytes(length) as usize - 4];
    stream.read_exact(&mut call).unwrap();
    let mut reader = XdrDecoder(&call);
    let header = std::array::from_fn(|_| reader.number().unwrap());
    Some((header, reader.0.to_vec()))
}
