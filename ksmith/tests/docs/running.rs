//! Runs the blocks that are marked as run. `ksmith` reads the captured tree of Linux 6.18 there, or that of a platform's host,
//! and so changes nothing.
//!
//! A block `text,output` behind such a block is its output: lines must be the same, but for their numbers. A line `…`
//! stands for any number of lines.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::commands::{BlockMark, mark};
use crate::page::{self, DocBlock, DocPage};
use crate::platform_hosts::HOSTS;

/// A line without its numbers and its widths.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.trim_end().chars() {
        match c {
            '0'..='9' | '.' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            ' ' | '─' if shape.ends_with([' ', '─']) => {}
            c => shape.push(c),
        }
    }
    shape
}

/// Returns true if the lines match those that are expected, where `…` stands for any lines.
fn fits(expected: &[&str], lines: &[&str]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((&"…", rest)), _) => (0..=lines.len()).any(|from| fits(rest, &lines[from..])),
        (Some((first, rest)), Some((line, others))) => shape(first) == shape(line) && fits(rest, others),
        (Some(_), None) => false,
    }
}

/// Writes a `ksmith` that reads a tree into the directory.
fn put_program(directory: &Path, tree: &Path) {
    let script = format!("#!/bin/sh\nexec {} --root {} \"$@\"\n", env!("CARGO_BIN_EXE_ksmith"), tree.display());
    let program = directory.join("ksmith");
    // A copy is renamed into place: a file that is open for writing can't be started.
    let written = directory.join("written");
    fs::write(&written, script).unwrap();
    fs::set_permissions(&written, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Command::new("cp").arg("-p").args([&written, &program]).status().unwrap().success());
}

/// The output that stands behind the block, with nothing but space between.
fn expected<'a>(page: &DocPage, blocks: &'a [DocBlock], at: usize) -> Option<&'a DocBlock> {
    let next = blocks.get(at + 1).filter(|next| next.info.as_deref() == Some("text,output"))?;
    page.text[blocks[at].end..next.start].trim().is_empty().then_some(next)
}

#[test]
fn every_block_that_is_marked_as_run_does_what_it_shows() {
    let directory = tempfile::tempdir().unwrap();
    let captured = page::workspace().join("testdata/linux-6.18").canonicalize().unwrap();
    put_program(directory.path(), &captured);
    for host in HOSTS {
        let its = directory.path().join(host.name.to_lowercase().replace(' ', "-"));
        fs::create_dir_all(its.join("tree")).unwrap();
        host.write(&its.join("tree"));
        put_program(&its, &its.join("tree"));
    }
    let (mut faults, mut ran) = (Vec::new(), 0);
    for page in page::for_users() {
        let blocks = page.blocks();
        for (at, block) in blocks.iter().enumerate() {
            let Ok(Some(BlockMark::Run { code, host })) = mark(block) else { continue };
            ran += 1;
            let place = format!("{}:{}", page.path, block.line);
            let programs =
                host.as_deref().map_or_else(|| directory.path().to_owned(), |name| directory.path().join(name));
            if !programs.exists() {
                faults.push(format!("{place}: no host {host:?}"));
            }
            let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
            let inside = tempfile::tempdir().unwrap();
            let output = Command::new("/bin/sh")
                .args(["-eu", "-c", &block.code])
                .env("PATH", &path)
                .env("COLUMNS", "100")
                .current_dir(inside.path())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.code() != Some(code) {
                let why = String::from_utf8_lossy(&output.stderr);
                faults.push(format!("{place}: {} instead of {code}: {why}", output.status));
            }
            let lines: Vec<&str> = said.lines().collect();
            let other =
                expected(&page, &blocks, at).filter(|next| !fits(&next.code.lines().collect::<Vec<_>>(), &lines));
            faults.extend(other.map(|next| format!("{}:{}: other output:\n{said}", page.path, next.line)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(ran >= 7, "only {ran} blocks are marked as run");
}

#[test]
fn numbers_may_differ_and_words_may_not() {
    assert!(fits(&["saved 764 KiB", "…", "end"], &["saved 12.5 KiB", "any", "lines", "end"]));
    assert!(!fits(&["saved 764 KiB"], &["lost 764 KiB"]));
    assert!(!fits(&["saved 764 KiB"], &["saved 764 KiB", "more"]));
    assert!(!fits(&["saved 764 KiB", "more"], &["saved 764 KiB"]));
}
