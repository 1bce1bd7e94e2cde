//! Interfaces that stay within a major version: every name of theirs is in a file below `ksmith/tests/stable/`.
//!
//! `KSMITH_WRITE=1 cargo test -p ksmith --test docs stable` adds names to the files, and takes none away. A name that
//! is gone fails the test until someone deletes its line by hand, once its time as deprecated is over.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroU64;

use clap::{Command, CommandFactory};
use ksmith::cli::Cli;
use ksmith::exit::{CHECK, CODES, RUN};
use ksmith::manual::settings::PackagedSettings;
use ksmith::show::schemas;
use ksmith_service::user_socket::protocol::{
    AdvisedRange, MOST_PASSES, MergedMemory, PeerSavings, RefusalKind, ScanResult, UserAnswer, UserRequest, VERSION,
};
use serde_json::{Value, json};

use crate::page;

const DIRECTORY: &str = "ksmith/tests/stable";

/// The page that promises these interfaces.
const PAGE: &str = "docs/reference/stability.md";

/// The only files whose comparison is elsewhere: in `serve/src/metrics/tests.rs`.
const HELD_ELSEWHERE: [&str; 1] = ["metrics.txt"];

/// Commands that experiment: neither their options nor their JSON are promised.
const EXPERIMENTS: [&str; 3] = ["demo", "lab", "sim"];

/// Returns promised names that are gone, and names that are not promised yet.
fn compare(promised: &str, names: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    let promised: BTreeSet<String> = promised.lines().map(str::to_owned).collect();
    (promised.difference(names).cloned().collect(), names.difference(&promised).cloned().collect())
}

/// Holds the names to the file of promised ones.
fn hold(file: &str, names: BTreeSet<String>) {
    let path = page::workspace().join(DIRECTORY).join(file);
    let (gone, new) = compare(&fs::read_to_string(&path).unwrap_or_default(), &names);
    assert!(gone.is_empty(), "{DIRECTORY}/{file} promises what is gone ({PAGE}): {gone:#?}");
    if std::env::var_os("KSMITH_WRITE").is_some() {
        let lines: Vec<String> = names.into_iter().map(|name| name + "\n").collect();
        fs::write(path, lines.concat()).unwrap();
        return;
    }
    assert!(
        new.is_empty(),
        "{DIRECTORY}/{file} lacks these: KSMITH_WRITE=1 cargo test -p ksmith --test docs stable: {new:#?}"
    );
}

fn is_experiment(command: &str) -> bool {
    EXPERIMENTS.contains(&command.split(' ').next().unwrap_or_default())
}

/// Adds each command below this one with its options.
fn add_commands(command: &Command, words: &str, names: &mut BTreeSet<String>) {
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        names.extend(argument.get_long().map(|long| format!("{words} --{long}")));
        names.extend(argument.get_short().map(|short| format!("{words} -{short}")));
    }
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && !is_experiment(inner.get_name()))
    {
        let words = format!("{words} {}", inner.get_name());
        names.insert(words.clone());
        add_commands(inner, &words, names);
    }
}

#[test]
fn stable_commands_and_options_are_there() {
    let mut names = BTreeSet::new();
    add_commands(&Cli::command(), "ksmith", &mut names);
    assert!(names.contains("ksmith guests --sort") && names.contains("ksmith -v"), "{names:?}");
    hold("commands.txt", names);
}

#[test]
fn stable_exit_codes_are_there() {
    let mut names = BTreeSet::new();
    for (command, codes) in [("ksmith", &CODES[..]), ("ksmith run", &RUN), ("ksmith doctor --check", &CHECK)] {
        names.extend(codes.iter().map(|code| format!("{command} {} {}", code.number, code.name)));
    }
    hold("exit-codes.txt", names);
}

#[test]
fn stable_settings_are_there() {
    let settings = PackagedSettings::packaged().unwrap();
    let keys = settings
        .tables
        .iter()
        .flat_map(|table| table.keys.iter().map(move |key| format!("{} {}", table.header, key.name)));
    hold("settings.txt", keys.collect());
}

/// The types of a schema, in their order: `integer|null`.
fn type_of(schema: &Value) -> String {
    match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        _ => "any".to_owned(),
    }
}

/// Adds each key of a schema with its types.
fn add_keys(schema: &Value, path: &str, names: &mut BTreeSet<String>) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        names.insert(format!("{path}: {}", type_of(inner)));
        add_keys(inner, &path, names);
    }
    for word in ["anyOf", "oneOf", "allOf"] {
        for inner in schema[word].as_array().into_iter().flatten() {
            add_keys(inner, path, names);
        }
    }
    for (word, step) in [("items", "[]"), ("additionalProperties", ".*")] {
        if schema[word].is_object() {
            add_keys(&schema[word], &format!("{path}{step}"), names);
        }
    }
}

#[test]
fn stable_keys_of_json_are_there() {
    let mut names = BTreeSet::new();
    for (command, _) in schemas::SCHEMAS.iter().filter(|(command, _)| !is_experiment(command)) {
        add_keys(&schemas::command_schema(command).unwrap(), &format!("{command} "), &mut names);
    }
    assert!(names.contains("guests .guests[].saved_bytes: integer|null"), "{names:#?}");
    hold("json.txt", names);
}

#[test]
fn stable_requests_and_answers_of_the_user_socket_are_there() {
    let merged = Some(MergedMemory::default());
    let passes = NonZeroU64::new(MOST_PASSES).unwrap();
    let requests =
        [UserRequest::Hello(VERSION), UserRequest::Scan(passes), UserRequest::Saves, UserRequest::Ranges];
    let refusals =
        [RefusalKind::Budget, RefusalKind::Busy, RefusalKind::Denied, RefusalKind::Refused, RefusalKind::Usage];
    let answers = [
        UserAnswer::Hello,
        UserAnswer::Scanned(ScanResult { merged, ..ScanResult::default() }),
        UserAnswer::Saves(PeerSavings::default()),
        UserAnswer::Ranges(vec![AdvisedRange { start: 0x1000, end: 0x2000, share_permille: 900 }]),
    ];
    let refusals = refusals.map(|refusal| UserAnswer::Error(refusal, "sentence".to_owned()));
    let asked = requests.iter().map(|request| format!("request {request}"));
    let answered = answers.iter().chain(&refusals).map(|answer| format!("answer {answer}"));
    let lines = asked.chain(answered).map(|line| line.trim_end().replace('\n', " "));
    hold("user-socket.txt", lines.collect());
}

#[test]
fn stable_paths_of_the_web_server_are_there() {
    let source = fs::read_to_string(page::workspace().join("serve/src/api.rs")).unwrap();
    let routes = source.split('"').filter(|text| text.starts_with("/api/") || *text == "/metrics");
    let routes: BTreeSet<String> = routes.map(str::to_owned).collect();
    assert!(routes.contains("/metrics") && routes.contains("/api/v1/status"), "{routes:?}");
    hold("web-paths.txt", routes);
}

/// The declarations of a header: functions, fields of structures with their places, and values.
fn declarations(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
    }
    code.push_str(rest);
    let mut structure: Option<(&str, usize)> = None;
    let mut found = BTreeSet::new();
    for line in code.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("struct ").and_then(|line| line.strip_suffix(" {")) {
            structure = Some((name, 0));
        } else if line == "};" {
            structure = None;
        } else if let (Some((name, place)), true) = (&mut structure, line.ends_with(';')) {
            found.insert(format!("struct {name} {place} {line}"));
            *place += 1;
        } else if line.ends_with(';') || (line.starts_with("#define KSMITH_") && line.split(' ').count() > 2) {
            found.insert(line.to_owned());
        }
    }
    // It grows when something is added.
    found.retain(|line| !line.starts_with("#define KSMITH_VERSION "));
    found
}

#[test]
fn stable_functions_of_libksmith_are_there() {
    let header = fs::read_to_string(page::workspace().join("preload/include/ksmith.h")).unwrap();
    let found = declarations(&header);
    assert!(found.contains("int ksmith_scan(unsigned passes, int milliseconds);"), "{found:#?}");
    assert!(found.contains("struct ksmith_guided 1 uint64_t bytes;"), "{found:#?}");
    hold("libksmith.txt", found);
}

/// A promise that no file holds is none, and a file without a promise is of no use.
#[test]
fn every_stable_interface_on_the_page_has_a_file_that_is_compared() {
    let page = page::all().into_iter().find(|page| page.path == PAGE).unwrap();
    let prefix = format!("../../{DIRECTORY}/");
    let promised: BTreeSet<String> =
        page.links().iter().filter_map(|(link, _)| Some(link.strip_prefix(&prefix)?.to_owned())).collect();
    let entries = fs::read_dir(page::workspace().join(DIRECTORY)).unwrap();
    let files: BTreeSet<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(promised, files, "{PAGE} links to each file of {DIRECTORY}");
    for file in &files {
        let is_held = include_str!("stable.rs").contains(&format!("hold(\"{file}\""));
        assert!(is_held || HELD_ELSEWHERE.contains(&file.as_str()), "no test compares {file}");
    }
}

#[test]
fn a_name_that_is_gone_is_told_from_a_new_one() {
    let names = BTreeSet::from(["a".to_owned(), "c".to_owned()]);
    assert_eq!(compare("a\nb\n", &names), (vec!["b".to_owned()], vec!["c".to_owned()]));
    let mut keys = BTreeSet::new();
    let inner = json!({ "properties": { "b": { "type": ["integer", "null"] } } });
    let list = json!({ "type": "array", "items": inner });
    add_keys(&json!({ "anyOf": [{ "properties": { "a": list } }] }), "x ", &mut keys);
    assert_eq!(keys, BTreeSet::from(["x .a: array".to_owned(), "x .a[].b: integer|null".to_owned()]));
}
