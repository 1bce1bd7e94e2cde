//! The remote protocol of libvirt: seven calls of it, over a local socket.
//!
//! A message is its length and six numbers (program, version, procedure, type, serial, status), then arguments in XDR.
//! libvirt guarantees the numbers for good (`src/remote/remote_protocol.x`, `qemu_protocol.x`,
//! `docs/kbase/internals/rpc.rst`).

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use super::xdr::{ShortMessage, XdrDecoder, XdrEncoder};
use super::{LibvirtError, LibvirtUri};
use crate::hypervisor::qmp::cut_text;
use crate::hypervisor::stream::TimedStream;

const REMOTE: u32 = 0x2000_8086;
const QEMU: u32 = 0x2000_8087;
const VERSION: u32 = 1;

const CONNECT_OPEN: u32 = 1;
const DOMAIN_DEFINE_XML: u32 = 11;
const DOMAIN_GET_XML_DESC: u32 = 14;
const DOMAIN_LOOKUP_BY_UUID: u32 = 24;
const DOMAIN_IS_PERSISTENT: u32 = 151;
const AUTH_LIST: u32 = 66;
const QEMU_MONITOR_COMMAND: u32 = 1;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const OK: u32 = 0;

/// `REMOTE_AUTH_NONE`
const AUTH_NONE: u32 = 0;
/// `VIR_DOMAIN_XML_SECURE | VIR_DOMAIN_XML_INACTIVE`: the flags for a complete definition.
const WHOLE_DEFINITION: u32 = 1 | 2;

/// Deadline of a call. libvirt is called only when a guest is to be switched, and may be busy with its domains.
const PATIENCE: Duration = Duration::from_secs(10);

/// Deadline of a new definition: libvirt may first start every installed QEMU to probe its capabilities.
const PATIENCE_TO_DEFINE: Duration = Duration::from_secs(180);

/// Bytes of length and header.
const HEADER: usize = 28;

/// Maximum unrelated messages before a reply.
const MOST_OTHERS: usize = 1000;

/// A connection to a libvirt daemon.
#[derive(Debug)]
pub(in crate::hypervisor) struct LibvirtConnection {
    path: PathBuf,
    stream: TimedStream,
    serial: u32,
}

/// A domain as it is identified in calls (`remote_nonnull_domain`).
#[derive(Debug, Clone)]
pub(in crate::hypervisor) struct RemoteDomain {
    name: String,
    uuid: Vec<u8>,
    id: u32,
}

impl From<ShortMessage> for LibvirtError {
    fn from(short: ShortMessage) -> Self {
        Self::Garbage(short.to_string())
    }
}

impl LibvirtConnection {
    /// Connects to the first daemon of the URI that is reachable.
    pub(in crate::hypervisor) fn connect(uri: &LibvirtUri) -> Result<Self, LibvirtError> {
        Self::connect_within(uri, PATIENCE)
    }

    fn connect_within(uri: &LibvirtUri, patience: Duration) -> Result<Self, LibvirtError> {
        let mut last = None;
        for path in uri.sockets() {
            match TimedStream::connect(&path, patience) {
                Ok(stream) => {
                    let mut libvirt = Self { path, stream, serial: 0 };
                    libvirt.open(uri, patience)?;
                    return Ok(libvirt);
                }
                // A socket that stayed behind says less than the one that is meant.
                Err(source) if source.kind() == ErrorKind::NotFound && last.is_some() => {}
                Err(source) => last = Some(LibvirtError::Socket { path, source }),
            }
        }
        Err(last.unwrap_or_else(|| LibvirtError::Refused(format!("{uri} has no socket"))))
    }

    fn open(&mut self, uri: &LibvirtUri, patience: Duration) -> Result<(), LibvirtError> {
        let answer = self.call(REMOTE, AUTH_LIST, XdrEncoder::default(), patience)?;
        let mut ways = XdrDecoder(&answer);
        let count = ways.number()?;
        let is_open = count == 0 || (0..count.min(16)).any(|_| ways.number() == Ok(AUTH_NONE));
        if !is_open {
            return Err(LibvirtError::Authentication);
        }
        let arguments = XdrEncoder::default().some_string(&uri.to_string()).number(0);
        self.call(REMOTE, CONNECT_OPEN, arguments, patience)?;
        Ok(())
    }

    /// Looks up the domain with this UUID.
    pub(in crate::hypervisor) fn domain(&mut self, uuid: &str) -> Result<RemoteDomain, LibvirtError> {
        let bytes = uuid_bytes(uuid).ok_or_else(|| LibvirtError::Garbage(format!("{uuid:?} is not a UUID")))?;
        let answer = self.call(REMOTE, DOMAIN_LOOKUP_BY_UUID, XdrEncoder::default().fixed(&bytes), PATIENCE)?;
        let mut answer = XdrDecoder(&answer);
        let found = RemoteDomain { name: answer.string()?, uuid: answer.fixed(16)?.to_vec(), id: answer.number()? };
        match found.uuid == bytes {
            true => Ok(found),
            false => Err(LibvirtError::Garbage("it names another domain than was asked for".to_owned())),
        }
    }

    /// Sends a line to QEMU's monitor and returns QEMU's reply.
    pub(in crate::hypervisor) fn monitor_command(
        &mut self,
        domain: &RemoteDomain,
        line: &str,
        patience: Duration,
    ) -> Result<String, LibvirtError> {
        let arguments = domain.write().string(line).number(0);
        let answer = self.call(QEMU, QEMU_MONITOR_COMMAND, arguments, patience)?;
        Ok(XdrDecoder(&answer).string()?)
    }

    /// Returns true if libvirt keeps a definition of the domain when it ends.
    pub(in crate::hypervisor) fn is_persistent(&mut self, domain: &RemoteDomain) -> Result<bool, LibvirtError> {
        let answer = self.call(REMOTE, DOMAIN_IS_PERSISTENT, domain.write(), PATIENCE)?;
        Ok(XdrDecoder(&answer).number()? != 0)
    }

    /// Returns the persistent definition.
    pub(in crate::hypervisor) fn definition(&mut self, domain: &RemoteDomain) -> Result<String, LibvirtError> {
        let arguments = domain.write().number(WHOLE_DEFINITION);
        let answer = self.call(REMOTE, DOMAIN_GET_XML_DESC, arguments, PATIENCE)?;
        Ok(XdrDecoder(&answer).string()?)
    }

    /// Replaces the persistent definition of the domain that it names.
    pub(in crate::hypervisor) fn define(&mut self, xml: &str) -> Result<(), LibvirtError> {
        self.call(REMOTE, DOMAIN_DEFINE_XML, XdrEncoder::default().string(xml), PATIENCE_TO_DEFINE).map(|_| ())
    }

    fn call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: XdrEncoder,
        patience: Duration,
    ) -> Result<Vec<u8>, LibvirtError> {
        self.serial += 1;
        let length = u32::try_from(HEADER + arguments.0.len()).map_err(|_| ShortMessage)?;
        let header = [length, program, VERSION, procedure, CALL, self.serial, OK];
        let mut message = header.into_iter().fold(XdrEncoder::default(), XdrEncoder::number).0;
        message.extend_from_slice(&arguments.0);
        let broken = |path: &PathBuf, source| LibvirtError::Socket { path: path.clone(), source };
        self.stream.allow(patience);
        self.stream.send(&message).map_err(|source| broken(&self.path, source))?;
        for _ in 0..MOST_OTHERS {
            let length = self.stream.exactly(4).map_err(|source| broken(&self.path, source))?;
            let length = XdrDecoder(&length).number()? as usize;
            let rest = length.checked_sub(4).filter(|rest| *rest >= HEADER - 4);
            let rest = rest.ok_or_else(|| LibvirtError::Garbage(format!("a message of {length} bytes")))?;
            let rest = self.stream.exactly(rest).map_err(|source| broken(&self.path, source))?;
            let mut reader = XdrDecoder(&rest);
            let mut header = [0; 6];
            for number in &mut header {
                *number = reader.number()?;
            }
            // Events and keep-alives are for others.
            let [its_program, _, its_procedure, kind, serial, status] = header;
            if (its_program, its_procedure, kind, serial) != (program, procedure, REPLY, self.serial) {
                continue;
            }
            return if status == OK { Ok(reader.0.to_vec()) } else { Err(refusal(reader)) };
        }
        Err(LibvirtError::Garbage("other messages without end".to_owned()))
    }
}

impl RemoteDomain {
    fn write(&self) -> XdrEncoder {
        XdrEncoder::default().string(&self.name).fixed(&self.uuid).number(self.id)
    }
}

/// Parses `struct remote_error`: a code, a domain, then its message.
fn refusal(mut reader: XdrDecoder<'_>) -> LibvirtError {
    let mut sentence = || {
        reader.number().ok()?;
        reader.number().ok()?;
        reader.optional_string().ok()?
    };
    let mut why = sentence().unwrap_or_else(|| "without a reason".to_owned());
    cut_text(&mut why);
    LibvirtError::Refused(why)
}

fn uuid_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>().filter(|bytes| bytes.len() == 16)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::super::testing::read_call;
    use super::*;

    const UUID: &str = "00000000-1111-2222-3333-444444444444";

    /// Listens on a socket for one peer, which `act` serves.
    fn daemon(act: impl FnOnce(UnixStream) + Send + 'static) -> (tempfile::TempDir, LibvirtUri) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || act(listener.accept().unwrap().0));
        let uri = LibvirtUri::try_from(format!("qemu:///system?socket={}", path.display())).unwrap();
        (directory, uri)
    }

    /// Answers each call with the reply that `answer` gives for its procedure.
    fn serve(mut stream: UnixStream, answer: impl Fn(u32) -> (u32, XdrEncoder)) {
        while let Some((header, _)) = read_call(&mut stream) {
            let (status, body) = answer(header[2]);
            let numbers = [28 + body.0.len() as u32, header[0], 1, header[2], 1, header[4], status];
            let mut message = numbers.into_iter().fold(XdrEncoder::default(), XdrEncoder::number).0;
            message.extend_from_slice(&body.0);
            // First an event that was not asked for.
            let event =
                [28, 0x2000_8086, 1, 107, 2, 0, 0].into_iter().fold(XdrEncoder::default(), XdrEncoder::number);
            stream.write_all(&event.0).unwrap();
            stream.write_all(&message).unwrap();
        }
    }

    #[test]
    fn a_refusal_comes_in_libvirts_own_words() {
        let (_directory, uri) = daemon(|stream| {
            serve(stream, |procedure| match procedure {
                66 => (0, XdrEncoder::default().number(1).number(0)),
                1 => (0, XdrEncoder::default()),
                _ => (1, XdrEncoder::default().number(42).number(10).some_string("Domain not found")),
            });
        });
        let mut libvirt = LibvirtConnection::connect(&uri).unwrap();
        let error = libvirt.domain(UUID).unwrap_err();
        assert_eq!(error.to_string(), "libvirt refuses: Domain not found");
        assert!(libvirt.domain("nonsense").is_err());
    }

    #[test]
    fn a_transient_domain_is_not_defined() {
        let (_directory, uri) = daemon(|stream| {
            serve(stream, |procedure| match procedure {
                66 => (0, XdrEncoder::default().number(1).number(0)),
                1 => (0, XdrEncoder::default()),
                24 => (0, XdrEncoder::default().string("web").fixed(&uuid_bytes(UUID).unwrap()).number(3)),
                151 => (0, XdrEncoder::default().number(0)),
                other => panic!("procedure {other} is called"),
            });
        });
        let defined = super::super::define(&uri, UUID, false, false);
        assert!(matches!(defined, Err(LibvirtError::Transient)), "{defined:?}");
    }

    #[test]
    fn a_daemon_that_wants_a_password_hangs_or_talks_nonsense_is_an_error() {
        let (_directory, uri) = daemon(|stream| serve(stream, |_| (0, XdrEncoder::default().number(1).number(2))));
        assert!(matches!(LibvirtConnection::connect(&uri), Err(LibvirtError::Authentication)));
        let (_directory, uri) = daemon(|_stream| std::thread::sleep(Duration::from_secs(60)));
        let error = LibvirtConnection::connect_within(&uri, Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("does not answer in time"), "{error}");
        let (_directory, uri) = daemon(|mut stream| stream.write_all(b"HTTP/1.1 400 no\r\n").unwrap());
        assert!(LibvirtConnection::connect(&uri).is_err());
        let (_directory, uri) = daemon(drop);
        assert!(LibvirtConnection::connect(&uri).is_err());
    }

    #[test]
    fn uuids_are_sixteen_bytes() {
        let bytes = uuid_bytes("00010203-0405-0607-0809-0a0b0c0d0e0f").unwrap();
        assert_eq!(bytes, (0..16).collect::<Vec<u8>>());
        assert!(uuid_bytes("0").is_none() && uuid_bytes("é0").is_none() && uuid_bytes("").is_none());
    }
}
