//! The manual that the program writes: the committed reference is the same, and man pages and completions are such as their readers
//! take.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::program::PROGRAM;
use crate::support::skipped;

/// Returns the directory of pages that `ksmith manual` writes.
fn written() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let output =
        Command::new(PROGRAM).args(["manual", "--date", "2026-11-24", "--dir"]).arg(directory.path()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    directory
}

fn pages(manual: &Path, section: &str) -> Vec<PathBuf> {
    let mut pages: Vec<_> =
        fs::read_dir(manual.join(section)).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    pages
}

#[test]
fn the_committed_reference_is_what_the_program_writes() {
    let manual = written();
    for name in ["commands.md", "configuration.md"] {
        let made = fs::read_to_string(manual.path().join("reference").join(name)).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(name);
        let renewal =
            "cargo run -p ksmith -- manual --dir target/manual && cp target/manual/reference/*.md docs/reference/";
        let committed = fs::read_to_string(path).unwrap_or_default();
        assert!(made == committed, "docs/reference/{name} is out of date: {renewal}");
    }
}

#[test]
fn each_command_of_the_help_has_a_man_page_and_no_hidden_one_has() {
    let manual = written();
    let program = <ksmith::cli::Cli as clap::CommandFactory>::command();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = commands.map(clap::Command::get_name).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let page = fs::read_to_string(manual.path().join(format!("man1/ksmith-{name}.1"))).expect(name);
        assert!(page.contains(&format!(".TH ksmith-{name} 1 2026-11-24")), "{page}");
    }
    for hidden in ["memory-guest", "manual", "help"] {
        assert!(!manual.path().join(format!("man1/ksmith-{hidden}.1")).exists(), "{hidden}");
    }
}

#[test]
fn man_shows_each_page_without_a_warning() {
    let manual = written();
    let pages = [pages(manual.path(), "man1"), pages(manual.path(), "man5")].concat();
    assert!(pages.len() > 30, "{pages:?}");
    for page in pages {
        let shown = Command::new("man")
            .args(["--warnings", "-l", "-P", "cat"])
            .arg(&page)
            .env("LC_ALL", "C.UTF-8")
            .output();
        let Ok(shown) = shown else { return skipped("there is no man here") };
        assert!(shown.status.success() && shown.stderr.is_empty(), "{page:?}: {shown:?}");
        assert!(shown.stdout.len() > 1000, "{page:?} has no text: {shown:?}");
    }
}

#[test]
fn each_shell_reads_its_completions() {
    let manual = written();
    for (shell, file) in [("bash", "ksmith.bash"), ("zsh", "_ksmith"), ("fish", "ksmith.fish")] {
        let path = manual.path().join("completions").join(file);
        assert!(fs::read_to_string(&path).unwrap().contains("KSMITH_COMPLETE"), "{file}");
        // bash is on every host that builds this; the others are read where they are.
        match Command::new(shell).arg("-n").arg(&path).output() {
            Ok(read) => assert!(read.status.success(), "{file}: {}", String::from_utf8_lossy(&read.stderr)),
            Err(error) => assert_ne!(shell, "bash", "{error}"),
        }
    }
}

#[test]
fn a_directory_that_can_not_be_written_is_named() {
    let output = Command::new(PROGRAM).args(["manual", "--dir", "/dev/null/manual"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/dev/null/manual"), "{said}");
}
