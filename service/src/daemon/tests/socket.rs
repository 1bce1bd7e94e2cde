use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use crossbeam_channel::bounded;
use ksmith_core::knobs::Knob;
use ksmith_host::signals::Signal;

use super::HELD;
use crate::control::ControlClient;
use crate::daemon::{Daemon, DaemonMessage, LiveEnvironment};
use crate::testing::DaemonScene;

#[test]
fn the_control_socket_survives_garbage_and_answers_root() {
    let scene = DaemonScene::new(HELD);
    // What a killed daemon leaves: a file without a listener.
    drop(UnixListener::bind(scene.control_socket()).unwrap());
    let (host, source, config) = (scene.host(), scene.source.clone(), scene.source.load().unwrap());
    let (tell, told) = bounded(1);
    let daemon = std::thread::spawn(move || {
        let daemon = Daemon::new(host, LiveEnvironment, config, source).unwrap();
        let run = daemon.run(|inbox| {
            tell.send(inbox).unwrap();
            Ok(())
        });
        run.unwrap().restore().unwrap()
    });
    let inbox = told.recv().unwrap();
    let connect = || {
        while UnixStream::connect(scene.control_socket()).is_err() {
            std::thread::yield_now();
        }
        UnixStream::connect(scene.control_socket()).unwrap()
    };
    for garbage in [&b"\n"[..], b"{}\n", b"\x00\xff\xfe\n", b"{\"request\":\"scan\",\"passes\":-1}\n", b"[[[[[[\n"]
    {
        let mut stream = connect();
        stream.write_all(garbage).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("\"answer\":\"error\""), "{garbage:?} gave {answer}");
    }
    drop(connect());
    let _ = connect().write_all(&[b'x'; 1 << 20]);
    assert_eq!(fs::metadata(scene.control_socket()).unwrap().permissions().mode() & 0o777, 0o600);
    if rustix::process::geteuid().is_root() {
        ControlClient::connect(&scene.control_socket()).unwrap().status().unwrap();
    }
    inbox.send(DaemonMessage::Signal(Signal::End)).unwrap();
    assert_eq!(daemon.join().unwrap(), ["restored pages_to_scan 321 -> 100"]);
    assert!(!scene.control_socket().exists(), "the socket goes with the daemon");
    assert_eq!(scene.world().knob(Knob::PagesToScan), 100);
}

#[test]
fn a_daemon_without_its_socket_changes_nothing() {
    let mut scene = DaemonScene::new(HELD);
    fs::write(scene.control_socket(), "dear").unwrap();
    let error = scene.run().unwrap_err().to_string();
    assert!(error.contains("names something that is no socket; it is left alone"), "{error}");
    assert_eq!(fs::read_to_string(scene.control_socket()).unwrap(), "dear");
    let text = scene.complete(HELD).replace("/control\"", "/none/control\"");
    fs::write(scene.config_file(), text).unwrap();
    let error = scene.run().unwrap_err().to_string();
    assert!(error.contains("can't listen on the control socket") && error.contains("/none/control"), "{error}");
    assert!(scene.world().turns.is_empty());
    assert_eq!(scene.world().knob(Knob::PagesToScan), 100);
}
