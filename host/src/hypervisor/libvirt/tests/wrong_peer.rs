//! A libvirt that answers wrongly at any step.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};

use proptest::prelude::*;
use serde_json::json;

use super::testing::read_call;
use super::xdr::{XdrDecoder, XdrEncoder};
use super::{LibvirtError, LibvirtUri, PassThrough, define};
use crate::hypervisor::{MonitorError, QmpMonitor};
use crate::root::Root;

const UUID: &str = "00000000-1111-2222-3333-444444444444";
const UUID_BYTES: [u8; 16] = [0, 0, 0, 0, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44];
const XML: &str = "<domain><uuid>00000000-1111-2222-3333-444444444444</uuid></domain>";

const DEFINE: u32 = 11;
const LOOK_UP: u32 = 24;

/// The peer's act at one call.
#[derive(Debug, Clone)]
enum PeerStep {
    /// As libvirt does.
    Right,
    /// A right header, and these bytes behind it.
    Body(Vec<u8>),
    /// A string in place of the reply: of QEMU, or a definition.
    Text(String),
    /// An error with this sentence.
    Fails(String),
    /// A string that is longer than the message.
    Overlong(u32),
    /// The domain with another UUID.
    OtherDomain,
    /// One number of the header replaced, and then the connection ends.
    Header(usize, u32),
    /// Other messages before the right one.
    Others(usize),
    /// Part of the right reply, and then the connection ends.
    Part(usize),
    /// Bytes without a message, and then the connection ends.
    Bytes(Vec<u8>),
}

fn any_text() -> impl Strategy<Value = String> {
    let deep = "<a>".repeat(3000);
    let other = XML.replace("4444", "5555");
    prop_oneof![
        Just(String::new()),
        ".{0,30}",
        Just("\u{1b}[2J\u{e9}".repeat(100_000)),
        Just("[".repeat(100_000)),
        Just(deep),
        Just(other),
        Just(XML.replace("<uuid>", "<memoryBacking><nosharepages/></memoryBacking><uuid>")),
        Just("<!DOCTYPE d [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]><domain>&b;</domain>".to_owned()),
        Just(json!({ "return": [{ "thread-id": u64::MAX }] }).to_string()),
        Just(json!({ "return": [{ "thread-id": -1 }], "error": 7 }).to_string()),
        Just(json!({ "error": { "desc": "x".repeat(100_000) } }).to_string()),
    ]
}

fn any_step() -> impl Strategy<Value = PeerStep> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        8 => Just(PeerStep::Right),
        1 => bytes().prop_map(PeerStep::Body),
        3 => any_text().prop_map(PeerStep::Text),
        1 => any_text().prop_map(PeerStep::Fails),
        1 => prop_oneof![any::<u32>(), Just(u32::MAX), Just(u32::MAX - 2)].prop_map(PeerStep::Overlong),
        1 => Just(PeerStep::OtherDomain),
        1 => (0_usize..7, any::<u32>()).prop_map(|(place, number)| PeerStep::Header(place, number)),
        1 => (0_usize..1100).prop_map(PeerStep::Others),
        1 => (0_usize..60).prop_map(PeerStep::Part),
        1 => bytes().prop_map(PeerStep::Bytes),
    ]
}

fn domain(uuid: &[u8; 16]) -> XdrEncoder {
    XdrEncoder::default().string("web").fixed(uuid).number(3)
}

/// The right reply to a call of a program's procedure.
fn right_body(program: u32, procedure: u32) -> XdrEncoder {
    let empty = XdrEncoder::default();
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    match (program, procedure) {
        (0x2000_8087, _) => empty.string(&json!({ "return": [{ "thread-id": thread }] }).to_string()),
        (_, 66) => empty.number(1).number(0),
        (_, LOOK_UP) => domain(&UUID_BYTES),
        (_, 151) => empty.number(1),
        (_, 14) => empty.string(XML),
        _ => empty,
    }
}

/// Answers one call, of which these are the header's numbers. Returns true if the connection goes on.
fn take_step(out: &mut UnixStream, step: &PeerStep, call: &[u32]) -> bool {
    let empty = XdrEncoder::default;
    let (status, body) = match step {
        PeerStep::Body(bytes) => (0, XdrEncoder(bytes.clone())),
        PeerStep::Text(text) => (0, empty().string(text)),
        PeerStep::Fails(why) => (1, empty().number(42).number(10).some_string(why)),
        PeerStep::Overlong(length) => (0, empty().number(*length).fixed(b"text")),
        PeerStep::OtherDomain => (0, domain(&[7; 16])),
        _ => (0, right_body(call[0], call[2])),
    };
    let mut numbers = [28 + body.0.len() as u32, call[0], 1, call[2], 1, call[4], status];
    if let PeerStep::Header(place, number) = step {
        numbers[*place] = *number;
    }
    let message = numbers.into_iter().fold(empty(), XdrEncoder::number).0;
    let message = [message, body.0].concat();
    let (bytes, goes_on) = match step {
        PeerStep::Header(..) => (message, false),
        PeerStep::Others(count) => {
            let other = [28, 0x2000_8086, 1, 107, 2, 0, 0].into_iter().fold(empty(), XdrEncoder::number).0;
            ([other.repeat(*count), message].concat(), true)
        }
        PeerStep::Part(length) => (message[..message.len().min(*length)].to_vec(), false),
        PeerStep::Bytes(bytes) => (bytes.clone(), false),
        _ => (message, true),
    };
    out.write_all(&bytes).is_ok() && goes_on
}

/// Serves one peer by these steps, and rightly after the last one. Returns the definition that it is given.
fn serve(mut stream: UnixStream, steps: &[PeerStep]) -> Option<String> {
    let mut defined = None;
    let mut steps = steps.iter().chain(std::iter::repeat(&PeerStep::Right));
    while let Some((header, arguments)) = read_call(&mut stream) {
        if header[2] == DEFINE {
            defined = Some(XdrDecoder(&arguments).string().unwrap());
        }
        if !take_step(&mut stream, steps.next().unwrap(), &header) {
            break;
        }
    }
    defined
}

/// Runs `ask` beside a libvirt of these steps. Returns its result, and the definition that libvirt was given.
fn beside<T>(steps: &[PeerStep], ask: impl FnOnce(&LibvirtUri) -> T) -> (T, Option<String>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let uri = LibvirtUri::try_from(format!("qemu:///system?socket={}", path.display())).unwrap();
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| serve(listener.accept().unwrap().0, steps));
        let result = ask(&uri);
        (result, peer.join().unwrap())
    })
}

/// Asks the domain's monitor, as a switch of this process's guest does.
fn ask_monitor(uri: &LibvirtUri) -> Result<serde_json::Value, MonitorError> {
    let mut passed = PassThrough::connect(&Root::host(), uri, UUID, std::process::id())?;
    passed.execute("query-memdev", json!({}), std::time::Duration::from_secs(10))
}

/// The longest sentence of an error: what libvirt says, with ksmith's words.
const LONGEST: usize = 1200;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_libvirt_says_only_the_domain_that_was_meant_is_defined_and_errors_are_short(
        steps in prop::collection::vec(any_step(), 0..6),
    ) {
        let is_honest = steps.iter().all(|step| matches!(step, PeerStep::Right));
        let (result, defined) = beside(&steps, |uri| define(uri, UUID, false, false));
        if let Some(xml) = &defined {
            prop_assert_eq!(xml.matches("<nosharepages/>").count(), 1);
            prop_assert!(xml.contains(&format!("<uuid>{UUID}</uuid>")), "{}", xml);
        }
        match result {
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.chars().count() <= LONGEST, "{} characters", text.chars().count());
                prop_assert!(!is_honest, "{}", text);
            }
            Ok(changed) => prop_assert_eq!(changed, defined.is_some()),
        }
        prop_assert!(!is_honest || defined.is_some());
    }

    #[test]
    fn whatever_libvirt_says_for_a_monitor_there_is_a_short_error_or_a_value(
        steps in prop::collection::vec(any_step(), 0..6),
    ) {
        let is_honest = steps.iter().all(|step| matches!(step, PeerStep::Right));
        let (result, defined) = beside(&steps, ask_monitor);
        prop_assert_eq!(defined, None);
        let error = result.err().map(|error| error.to_string());
        prop_assert!(error.as_ref().is_none_or(|text| text.chars().count() <= LONGEST), "{:?}", error);
        prop_assert!(error.is_none() || !is_honest, "{:?}", error);
    }
}

#[test]
fn a_libvirt_that_names_another_domain_is_told_nothing_more() {
    let steps = [PeerStep::Right, PeerStep::Right, PeerStep::OtherDomain];
    let (result, defined) = beside(&steps, |uri| define(uri, UUID, false, false));
    assert!(matches!(result, Err(LibvirtError::Garbage(_))) && defined.is_none(), "{result:?}");
    let other = XML.replace("4444", "5555");
    let steps = [PeerStep::Right, PeerStep::Right, PeerStep::Right, PeerStep::Right, PeerStep::Text(other)];
    let (result, defined) = beside(&steps, |uri| define(uri, UUID, false, false));
    assert!(matches!(result, Err(LibvirtError::Garbage(_))) && defined.is_none(), "{result:?}");
}

#[test]
fn an_answer_of_libvirt_that_ends_at_any_byte_is_an_error() {
    const CALLS: usize = 6;
    let (result, defined) = beside(&[], |uri| define(uri, UUID, false, false));
    assert!(result.unwrap() && defined.is_some());
    for call in 0..CALLS {
        // A header is longer.
        for part in 0..28 {
            let mut steps = vec![PeerStep::Right; call];
            steps.push(PeerStep::Part(part));
            let (result, defined) = beside(&steps, |uri| define(uri, UUID, false, false));
            assert!(result.is_err(), "{part} bytes of answer {call}");
            assert_eq!(defined.is_some(), call + 1 == CALLS, "the definition is the last call");
        }
    }
}
