//! The pictures of a run, which `make screens` takes, and what the pages say of them.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::page;

fn read_text(path: &str) -> String {
    fs::read_to_string(page::workspace().join(path)).unwrap()
}

/// Returns the SVG of a terminal of two lines; `None`, said loudly, without Python.
#[allow(clippy::disallowed_methods, reason = "the harness swallows what a test that passes says by eprintln")]
fn draw_terminal(columns: &str, captured: &str) -> Option<String> {
    let program = page::workspace().join("tools/ansi-svg");
    let started = Command::new("python3")
        .arg(program)
        .args([columns, "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        let _ = writeln!(std::io::stderr(), "SKIPPED, nothing was tested: there is no python3 here");
        return None;
    };
    child.stdin.take().unwrap().write_all(captured.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_readme_shows_the_status_of_the_run() {
    let status = read_text("docs/figures/status.txt");
    assert!(status.contains("saved"), "{status}");
    assert!(
        read_text("README.md").contains(&format!("```text\n{status}```\n")),
        "README.md shows another status than docs/figures/status.txt"
    );
}

#[test]
fn no_picture_is_of_a_made_up_host() {
    let script = read_text("serve/tests/page/screenshots.js");
    let imported: Vec<&str> = script.lines().filter(|line| line.starts_with("import ")).collect();
    assert!(!imported.is_empty());
    assert!(imported.iter().all(|line| line.ends_with("\"./browser.js\";")), "{imported:?}");
}

#[test]
fn a_terminal_is_drawn_with_its_colours_bars_and_text() {
    let captured =
        "a<b \u{1b}[1;31mred\u{1b}[0m \u{1b}[38;5;196mx\u{1b}[39m\n\u{1b}[32m▄▄\u{1b}[7m▒\u{1b}[0mcut off";
    let Some(svg) = draw_terminal("10", captured) else { return };
    let has = |part: &str| assert!(svg.contains(part), "no {part} in\n{svg}");
    has(">a&lt;b</text>");
    has("fill=\"#f2716b\" font-weight=\"700\">red</text>");
    has("fill=\"#ff0000\">x</text>");
    // Half of two cells, in green.
    has("<rect x=\"12\" y=\"39\" width=\"16.8\" height=\"9\" fill=\"#63c174\"/>");
    // A cell in reverse has the colour as its ground, and half of it in that of the paper.
    has("<rect x=\"28.8\" y=\"30\" width=\"8.4\" height=\"18\" fill=\"#63c174\"/>");
    has("<rect x=\"28.8\" y=\"30\" width=\"8.4\" height=\"18\" fill=\"#12161c\" opacity=\"0.5\"/>");
    has(">cut off</text>");
    let Some(narrow) = draw_terminal("6", captured) else { return };
    assert!(narrow.contains(">cut</text>") && !narrow.contains("off"), "{narrow}");
}
