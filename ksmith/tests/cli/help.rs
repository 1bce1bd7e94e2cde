//! Help, and the commands that have a schema.

use std::path::Path;

use super::{code, commands, err, ksmith, out};

#[test]
fn help_and_misuse_are_as_written_down() {
    trycmd::TestCases::new().env("COLUMNS", "100").case("tests/cmd/*.trycmd").run();
}

#[test]
fn every_command_has_its_help_written_down() {
    let names = commands();
    assert!(names.len() >= 12, "{names:?}");
    for name in names {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cmd/help-{name}.trycmd"));
        assert!(file.exists(), "no {}", file.display());
    }
}

#[test]
fn no_help_names_a_page_of_the_source_tree() {
    let names = commands();
    let mut pages: Vec<String> = names.iter().map(|name| out(&ksmith(&[name, "--help"]))).collect();
    pages.push(out(&ksmith(&["--help"])));
    for page in pages {
        for (at, _) in page.match_indices("docs/") {
            assert!(page[..at].ends_with("/usr/share/doc/ksmith/"), "{page}");
        }
    }
}

#[test]
fn a_command_without_a_schema_is_refused_and_the_others_are_listed() {
    let output = ksmith(&["schema", "completions"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("completions has no schema"), "{}", err(&output));
    let listed = out(&ksmith(&["schema"]));
    for command in ["status", "guests", "balance", "lab run"] {
        assert!(listed.lines().any(|line| line == command), "{command} is not in\n{listed}");
    }
}
