//! Answers of a daemon as files, for tests in other languages that stand in for one.

use std::fs;
use std::path::Path;

use ksmith_core::huge_worth::{SplitLosses, SplitMemory};
use ksmith_service::control::ControlReply;
use serde_json::{Value, json};

use super::models;

/// The answers of the stand-in at `packaging/tests/daemon.mjs`, which fills in figures of its own.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/tests/answers.json");

#[test]
fn the_kept_answers_are_those_of_a_daemon() {
    let (mut status, mut guests) = (models::status(), models::guests());
    // Page tables were read: a dashboard shows these figures too.
    let split = Some(SplitMemory::new(2 * models::MIB, 6 * models::MIB, 1.0, &SplitLosses::default()));
    status.sample.processes.iter_mut().for_each(|process| process.split = split);
    for guest in &mut guests.guests {
        (guest.huge_bytes, guest.split) = (Some(6 * models::MIB), split);
    }
    let answers = [
        ("status", ControlReply::Status(Box::new(status))),
        ("guests", ControlReply::Guests(Box::new(guests))),
        ("balance", ControlReply::Balance(Box::new(models::balance()))),
    ];
    let now: Value = answers.iter().map(|(name, answer)| ((*name).to_owned(), json!(answer))).collect();
    if std::env::var_os("KSMITH_WRITE").is_some() {
        fs::write(Path::new(FILE), format!("{now:#}\n")).unwrap();
    }
    let kept: Value = serde_json::from_str(&fs::read_to_string(FILE).unwrap()).unwrap();
    assert_eq!(kept, now, "{FILE} is old: run this test with KSMITH_WRITE=1");
    for (name, answer) in answers {
        let read: ControlReply = serde_json::from_value(kept[name].clone()).unwrap();
        assert_eq!(read, answer);
    }
}
