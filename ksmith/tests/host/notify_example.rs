//! The example that tells of alarms by mail or to an Alertmanager, from the journal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use crate::support::vm::has;
use ksmith_core::alarm::AlarmKind;
use serde_json::{Value, json};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/notify").join(name)
}

/// An entry as `journalctl --output=json` prints it.
fn entry(state: &str, text: &Value) -> String {
    let entry = json!({
        "__REALTIME_TIMESTAMP": "1700000000000000", "_HOSTNAME": "host1", "KSMITH_ALARM": "exposure",
        "KSMITH_STATE": state, "MESSAGE": text,
    });
    format!("{entry}\n")
}

/// Runs the example on this input to its end. Returns its words.
fn tell(target: &str, environment: &[(&str, &str)], input: &str) -> String {
    let mut command = Command::new("python3");
    command.arg("-B").arg(example("tell-of-alarms")).arg(target).envs(environment.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A server that gives each of `count` connections to `serve`.
fn server<T: Send + 'static>(
    count: usize,
    serve: impl Fn(TcpStream) -> T + Send + 'static,
) -> (String, JoinHandle<Vec<T>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (address, std::thread::spawn(move || (0..count).map(|_| serve(listener.accept().unwrap().0)).collect()))
}

/// Answers a request of HTTP. Returns its path and its body.
fn serve_http(stream: TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        lines.push(line);
    }
    let length =
        lines.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    let path = lines[0].split(' ').nth(1).unwrap().to_owned();
    (path, serde_json::from_slice(&body).unwrap())
}

/// Takes one mail. Returns all that the client said.
fn serve_mail(stream: TcpStream) -> String {
    let mut writer = stream.try_clone().unwrap();
    let mut said = String::new();
    let mut is_data = false;
    writer.write_all(b"220 here\r\n").unwrap();
    for line in BufReader::new(stream).lines().map(Result::unwrap) {
        said += &line;
        said.push('\n');
        let answer: &[u8] = match line.as_str() {
            "." => b"250 taken\r\n",
            _ if is_data => continue,
            "data" | "DATA" => b"354 go on\r\n",
            "quit" | "QUIT" => b"221 bye\r\n",
            _ => b"250 good\r\n",
        };
        is_data = answer.starts_with(b"354");
        writer.write_all(answer).unwrap();
    }
    said
}

#[test]
fn alarms_from_the_journal_reach_an_alertmanager_and_an_entry_that_makes_no_sense_stops_nothing() {
    if !has("python3") {
        return;
    }
    let (address, told) = server(2, serve_http);
    let input = [
        entry("begins", &json!("too much")),
        "no entry\n".to_owned(),
        "[]\n".to_owned(),
        entry("ends", &json!([119, 101, 255])),
    ]
    .concat();
    let words = tell(&format!("http://{address}"), &[("no_proxy", "*")], &input);
    assert_eq!(words.lines().count(), 2, "{words}");
    let told = told.join().unwrap();
    assert!(told.iter().all(|(path, _)| path == "/api/v2/alerts"), "{told:?}");
    let labels = json!({ "alertname": "ksmith-exposure", "severity": "warning", "instance": "host1" });
    let (time, later) = ("2023-11-14T22:13:20+00:00", "2023-11-21T22:13:20+00:00");
    let summary = |text: &str| json!({ "summary": text });
    let begins =
        json!([{ "labels": labels, "annotations": summary("too much"), "startsAt": time, "endsAt": later }]);
    assert_eq!(told[0].1, begins);
    assert_eq!(told[1].1, json!([{ "labels": labels, "annotations": summary("we\u{fffd}"), "endsAt": time }]));
}

#[test]
fn an_alarm_is_mailed_and_a_server_that_is_not_there_is_named() {
    if !has("python3") {
        return;
    }
    let (address, told) = server(1, serve_mail);
    let input = entry("begins", &json!("too much"));
    let words = tell("mail:operator@example.org", &[("SMTP_SERVER", &address)], &input);
    assert_eq!(words, "");
    let mail = told.join().unwrap().remove(0);
    assert!(mail.contains("Subject: ksmith on host1: exposure begins\n"), "{mail}");
    assert!(mail.contains("To: operator@example.org\n") && mail.contains("\ntoo much\n"), "{mail}");
    let words = tell("mail:operator@example.org", &[("SMTP_SERVER", &address)], &input);
    assert!(words.contains("mail:operator@example.org was not told"), "{words}");
}

#[test]
fn the_unit_of_the_example_matches_each_alarm_and_the_units_own_entries_only() {
    let unit = std::fs::read_to_string(example("ksmith-notify.service")).unwrap();
    let asked: Vec<&str> = unit.split_whitespace().filter_map(|word| word.strip_prefix("MESSAGE_ID=")).collect();
    let mut known: Vec<&str> = AlarmKind::all().map(|kind| kind.message_id()).collect();
    known.sort_unstable();
    assert_eq!(asked, known);
    assert!(unit.contains("_SYSTEMD_UNIT=ksmith.service"), "any user writes the other fields");
}
