//! The report on sharing across trust domains, counted from frames on the live kernel. Guests have known content, so
//! that the expected result is known.

use crate::support;
use std::path::{Path, PathBuf};

use crate::support::program::{config_file, ksmith};
use crate::support::{KernelLock, number, passes_until};
use ksmith_lab::{GuestContents, MemoryGuest, MemoryPart};
use serde_json::{Value, json};

const PAGE: u64 = 4096;

/// Guests by the name of the program that they run.
const RULES: &str = "[[domains.rule]]\ndomain = \"a\"\nname = \"guest-a\"\n[[domains.rule]]\ndomain = \"b\"\nname = \
                     \"guest-b\"\n[daemon]\ncontrol_socket = \"/nonexistent/ksmith\"\n";

fn program(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    if !path.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ksmith"), &path).unwrap();
    }
    path
}

fn guest(directory: &Path, name: &str, parts: &[MemoryPart]) -> MemoryGuest {
    let mut guest = MemoryGuest::start(&program(directory, name), &GuestContents(parts.to_vec())).unwrap();
    guest.wait_ready().unwrap();
    guest
}

fn run(arguments: &[&str]) -> Value {
    let (code, out, err) = ksmith(arguments);
    assert!(code == 0 || code == 6, "{code}: {err}");
    serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"))
}

#[test]
fn what_domains_share_is_counted_frame_by_frame() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (within, across, lone) = (300_u64, 100, 50);
    let equal = |seed, pages: u64| MemoryPart::Equal { seed, pages: pages as usize };
    let _guests = [
        // 300 pages are a's alone, 100 are b's too, 50 are in all three.
        guest(directory.path(), "guest-a", &[equal(1, within), equal(2, across), equal(3, lone)]),
        guest(directory.path(), "guest-a", &[equal(1, within), equal(2, across)]),
        guest(directory.path(), "guest-b", &[equal(2, across), MemoryPart::Unique { pages: 20 }]),
        guest(directory.path(), "stranger", &[equal(3, lone), MemoryPart::Zero { pages: 64 }]),
    ];
    support::write("use_zero_pages", "1");
    // Each copy: frames alone would be there before the last page has found its frame.
    let sharing = within + 2 * across + lone;
    passes_until("all is merged", || {
        number("pages_shared") == within + across + lone && number("pages_sharing") == sharing
    });

    let (_file, config) = config_file(RULES);
    let report = run(&["--config", &config, "guests", "--by", "domain", "--json", "--pss"]);
    assert_eq!(report["errors"], json!([]));
    let sharing = &report["sharing"];
    assert_eq!(sharing["across_bytes"], (across + lone) * PAGE);
    let of = |name: &str| {
        let groups = report["groups"].as_array().unwrap();
        groups.iter().find(|group| group["name"] == name).unwrap()["across_bytes"].as_u64().unwrap() / PAGE
    };
    assert_eq!((of("a"), of("b"), of("-")), (2 * across + lone, across, lone));
    assert_eq!(
        sharing["pairs"],
        json!([
            { "domains": [null, "a"], "bytes": lone * PAGE },
            { "domains": ["a", "b"], "bytes": across * PAGE },
        ])
    );
    let (_, text, _) = ksmith(&["--config", &config, "guests", "--by", "domain"]);
    assert!(text.contains("a and b share 400 KiB"), "{text}");

    // The doctor says how much is shared with domains that are to be kept apart.
    let codes = |mode: &str| {
        let (_file, config) = config_file(&format!("[domains]\nmode = {mode:?}\n{RULES}"));
        let report = run(&["--config", &config, "doctor", "--json"]);
        let findings = report["findings"].as_array().unwrap().clone();
        findings.iter().map(|it| format!("{}: {}", it["code"], it["what"])).collect::<Vec<_>>().join("\n")
    };
    let shared = format!("{} KiB are shared across", (across + lone) * 4);
    let (reported, enforced) = (codes("report"), codes("one"));
    assert!(reported.contains("side-channel") && reported.contains(&shared), "{reported}");
    assert!(enforced.contains("shared-across-domains") && enforced.contains(&shared), "{enforced}");

    // An estimate by domain finds the same, in memory and not in frames.
    let estimate = run(&["--config", &config, "estimate", "--by", "domain", "--exact", "--matrix", "--json"]);
    let names: Vec<&str> =
        estimate["guests"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "stranger"]);
    let shared = &estimate["matrix"]["shared_bytes"];
    assert_eq!(
        (&shared[0][1], &shared[0][2], &shared[1][2]),
        (&json!(across * PAGE), &json!(lone * PAGE), &json!(0))
    );
}

#[test]
fn an_estimate_by_domain_needs_domains() {
    let (_file, config) = config_file("");
    let (code, _, err) = ksmith(&["--config", &config, "estimate", "--by", "domain"]);
    assert!(code == 2 && err.contains("assigns guests to no domains"), "{code} {err}");
}
