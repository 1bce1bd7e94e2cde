//! A monitor that answers wrongly at any step.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::hypervisor::qmp::socket::QmpConnection;
use crate::hypervisor::qmp::{HypervisorReply, MonitorError, QmpMonitor, answer, set_merge};

/// The peer's act at one step: for its banner, and for each command.
#[derive(Debug, Clone)]
enum PeerStep {
    /// As QEMU does.
    Right,
    /// Another value in the place of the result, under the right id.
    Returns(Value),
    /// An error, with this description.
    Fails(Value),
    /// The right result under another id, or none, and then the connection ends.
    OtherId(Option<i64>),
    /// Bytes that may be no JSON, and then a line's end.
    Bytes(Vec<u8>),
    /// Half of the right answer, and then the connection ends.
    Half,
    /// Arrays within arrays.
    Deep(usize),
    Closes,
}

fn any_value() -> impl Strategy<Value = Value> {
    let backend = prop_oneof![
        Just(json!([{ "id": "pc.ram", "size": u64::MAX, "merge": true }])),
        Just(json!([{ "id": "pc.ram", "size": -1, "merge": true }])),
        Just(json!([{ "id": 7, "size": 1, "merge": "yes" }])),
        Just(json!(vec![json!({ "id": "x", "size": 1, "merge": true }); 2000])),
    ];
    let text = prop_oneof![".{0,20}", Just("x".repeat(100_000)), Just("\u{1b}[2J\n".to_owned())];
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|it| json!(it)),
        any::<f64>().prop_map(|it| json!(it)),
        text.prop_map(|it| json!({ "name": it, "UUID": it, "status": it, "base-memory": it, "desc": it })),
        any::<u64>().prop_map(|it| json!({ "name": it, "base-memory": it, "plugged-memory": u64::MAX })),
        backend,
    ]
}

fn any_step() -> impl Strategy<Value = PeerStep> {
    prop_oneof![
        6 => Just(PeerStep::Right),
        2 => any_value().prop_map(PeerStep::Returns),
        1 => any_value().prop_map(PeerStep::Fails),
        1 => any::<Option<i64>>().prop_map(PeerStep::OtherId),
        1 => prop::collection::vec(any::<u8>().prop_filter("a line", |byte| *byte != b'\n'), 0..200)
            .prop_map(PeerStep::Bytes),
        1 => Just(PeerStep::Half),
        1 => (1_usize..20_000).prop_map(PeerStep::Deep),
        1 => Just(PeerStep::Closes),
    ]
}

/// The right answer to a command, and to none the banner.
fn right_answer(asked: Option<&Value>) -> Value {
    let Some(asked) = asked else { return json!({ "QMP": {} }) };
    let result = match asked["execute"].as_str().unwrap() {
        "query-name" => json!({ "name": "web" }),
        "query-status" => json!({ "status": "running" }),
        "query-memdev" => json!([{ "id": "pc.ram", "size": 5, "merge": true }]),
        "query-memory-size-summary" => json!({ "base-memory": 5 }),
        _ => json!({}),
    };
    json!({ "return": result, "id": asked["id"] })
}

/// Answers one step. Returns true if the connection goes on.
fn take_step(out: &mut UnixStream, step: &PeerStep, asked: Option<&Value>) -> bool {
    let mut right = right_answer(asked);
    let id = right["id"].clone();
    let (bytes, goes_on) = match step {
        PeerStep::Right => (format!("{right}\n").into_bytes(), true),
        PeerStep::Returns(value) => (format!("{}\n", json!({ "return": value, "id": id })).into_bytes(), true),
        PeerStep::Fails(why) => (format!("{}\n", json!({ "error": why, "id": id })).into_bytes(), true),
        PeerStep::OtherId(other) => {
            right["id"] = json!(other);
            (format!("{right}\n").into_bytes(), false)
        }
        PeerStep::Bytes(bytes) => ([bytes.as_slice(), b"\n"].concat(), false),
        PeerStep::Half => (right.to_string().into_bytes()[..5].to_vec(), false),
        PeerStep::Deep(depth) => (format!("{}\n", "[".repeat(*depth)).into_bytes(), false),
        PeerStep::Closes => (Vec::new(), false),
    };
    out.write_all(&bytes).is_ok() && goes_on
}

/// Serves one peer by these steps, and rightly after the last one.
fn serve(stream: UnixStream, steps: &[PeerStep]) {
    let mut out = stream.try_clone().unwrap();
    let mut steps = steps.iter().chain(std::iter::repeat(&PeerStep::Right));
    if !take_step(&mut out, steps.next().unwrap(), None) {
        return;
    }
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let asked: Value = serde_json::from_str(&line).unwrap();
        if !take_step(&mut out, steps.next().unwrap(), Some(&asked)) {
            return;
        }
    }
}

/// Serves one peer rightly, with an event and an answer to another peer before each answer, until so many bytes are sent.
/// Returns the number of bytes up to the end of each answer.
fn serve_bytes(stream: UnixStream, most: usize) -> Vec<usize> {
    let mut out = stream.try_clone().unwrap();
    let (mut sent, mut ends) = (0, Vec::new());
    let mut say = |asked: Option<&Value>| {
        let others = json!({ "return": { "name": "not yours" }, "id": 999 });
        let before = asked.map(|_| format!("{}\n{others}\n", json!({ "event": "STOP", "data": {} })));
        let text = format!("{}{}\n", before.unwrap_or_default(), right_answer(asked));
        let count = text.len().min(most - sent);
        let is_sent = out.write_all(&text.as_bytes()[..count]).is_ok();
        sent += count;
        ends.push(sent);
        is_sent && count == text.len()
    };
    if say(None) {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            if !say(Some(&serde_json::from_str(&line).unwrap())) {
                break;
            }
        }
    }
    ends
}

/// Asks a monitor that ends the connection after so many bytes. Returns the reply, and what `serve_bytes` returns.
fn ask_cut(most: usize) -> (HypervisorReply, Vec<usize>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    let peer = std::thread::spawn(move || serve_bytes(listener.accept().unwrap().0, most));
    let qmp = QmpConnection::connect(&path, std::process::id(), rustix::process::geteuid().as_raw());
    let reply = answer(qmp.map(|qmp| Box::new(qmp) as Box<dyn QmpMonitor>), None);
    (reply, peer.join().unwrap())
}

#[test]
fn a_connection_that_ends_at_any_byte_gives_no_more_than_whole_answers() {
    let (whole, ends) = ask_cut(usize::MAX);
    let told = whole.told.clone().unwrap();
    assert_eq!((told.name.as_deref(), whole.memory_bytes), (Some("web"), Some(5)));
    // The banner, the capabilities, four questions, and the one for the memory.
    let [.., backends, memory] = ends[..] else { panic!("{ends:?}") };
    assert_eq!(ends.len(), 7);
    for most in 0..=memory {
        let (reply, _) = ask_cut(most);
        let expected = if most < backends { None } else { Some(&told) };
        assert_eq!((reply.told.as_ref(), reply.error.is_some()), (expected, most < backends), "{most} bytes");
        assert_eq!(reply.memory_bytes, Some(5).filter(|_| most == memory), "{most} bytes");
    }
}

/// Asks a monitor at this socket as ksmith does, and then switches its memory.
fn ask(path: &Path) -> (HypervisorReply, Result<(), MonitorError>) {
    let connect = || QmpConnection::connect(path, std::process::id(), rustix::process::geteuid().as_raw());
    let reply = answer(connect().map(|qmp| Box::new(qmp) as Box<dyn QmpMonitor>), None);
    (reply.within_bounds(), connect().and_then(|mut qmp| set_merge(&mut qmp, "pc.ram", false)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_monitor_says_there_is_a_reply_or_an_error_within_bounds(
        first in prop::collection::vec(any_step(), 0..8),
        second in prop::collection::vec(any_step(), 0..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let is_honest = |steps: &[PeerStep]| steps.iter().all(|step| matches!(step, PeerStep::Right));
        let honest = (is_honest(&first), is_honest(&second));
        let peer = std::thread::spawn(move || {
            for steps in [first, second] {
                serve(listener.accept().unwrap().0, &steps);
            }
        });
        let (reply, switched) = ask(&path);
        // The connections are closed: the peer ends.
        peer.join().unwrap();
        prop_assert!(reply.told.is_some() != reply.error.is_some(), "{:?}", reply);
        let of_monitor = reply.told.iter().flat_map(|told| [&told.name, &told.uuid, &told.status]);
        for text in of_monitor.chain([&reply.name, &reply.error]).flatten() {
            prop_assert!(text.chars().count() <= 1024);
        }
        prop_assert!(reply.told.as_ref().is_none_or(|told| told.backends.len() <= 1024));
        // A host may be too slow for an honest monitor's answer.
        let is_late = |why: &str| why.contains("does not answer in time");
        if honest.0 && !reply.error.as_deref().is_some_and(is_late) {
            let told = reply.told.as_ref().unwrap();
            prop_assert_eq!((told.name.as_deref(), told.backends.len()), (Some("web"), 1));
            // The last question may be answered too late.
            prop_assert!(reply.memory_bytes.is_none_or(|bytes| bytes == 5), "{:?}", reply);
        }
        prop_assert!(!honest.1 || switched.is_ok() || is_late(&switched.unwrap_err().to_string()));
    }
}
