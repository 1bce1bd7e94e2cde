//! The option `--every`: periodic output. A terminal is redrawn, and a pipe gets one block after the other.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use crossbeam_channel::{Receiver, bounded, select};
use ksmith_core::printable::{TextPage, TextTone};
use serde_json::Value;

use super::amounts::interval;
use super::print;
use crate::show::{cut, paint};
use ksmith_host::signals::{self, Signal};

/// The option `--every` of commands that print once without it.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct WatchArgs {
    /// Repeat every TIME (in seconds, or as in 1min) until Ctrl-C: a terminal is redrawn, a pipe gets block after
    /// block, with --json one document per line
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub every: Option<Duration>,
}

/// The output of one refresh.
pub(super) enum WatchOutput {
    /// Text for people.
    Page(TextPage),
    /// A document for programs.
    Json(Value),
}

/// The result of one refresh: the output, and a note on its source.
type Look = anyhow::Result<(WatchOutput, Option<String>)>;

/// Shows what `look` returns, until a signal arrives or the reader closes the pipe. `look` runs in a thread of its own,
/// so that Ctrl-C waits for no guest.
pub(super) fn watch(every: Duration, look: impl FnMut() -> Look + Send + 'static) -> anyhow::Result<ExitCode> {
    let signals = signals::catch()?.listen()?;
    let (ask, asked) = bounded::<()>(1);
    let (answer, answers) = bounded(1);
    std::thread::Builder::new().name("looks".to_owned()).spawn(move || {
        let mut look = look;
        for () in asked {
            if answer.send(look()).is_err() {
                break;
            }
        }
    })?;
    let mut last = None;
    let result = run(every, &signals, &answers, || ask.send(()).is_ok(), &mut last);
    // What was seen last stays, where a terminal was redrawn.
    if let Some(page) = last {
        print::page(&page)?;
    }
    result.map(|()| ExitCode::SUCCESS)
}

fn run(
    every: Duration,
    signals: &Receiver<Signal>,
    answers: &Receiver<Look>,
    ask: impl Fn() -> bool,
    last: &mut Option<TextPage>,
) -> anyhow::Result<()> {
    let mut screen = None;
    let mut due = Instant::now();
    while ask() {
        let look = select! {
            recv(signals) -> _ => return Ok(()),
            recv(answers) -> look => look??,
        };
        let is_read = match look {
            (WatchOutput::Json(json), note) => {
                if let Some(note) = note {
                    print::aside(&noted(&note, "ksmith: "));
                }
                print::json_line(&json)?
            }
            (WatchOutput::Page(page), note) => {
                let mut whole = note.map_or_else(TextPage::new, |note| noted(&note, ""));
                whole.append(&page);
                match print::size() {
                    Some(size) => {
                        screen.get_or_insert_with(WatchScreen::enter).draw(&whole, size)?;
                        *last = Some(whole);
                        true
                    }
                    None => print::block(&whole)?,
                }
            }
        };
        if !is_read {
            return Ok(());
        }
        due = (due + every).max(Instant::now());
        select! {
            recv(signals) -> _ => return Ok(()),
            recv(crossbeam_channel::at(due)) -> _ => {}
        }
    }
    Ok(())
}

fn noted(note: &str, before: &str) -> TextPage {
    let mut page = TextPage::new();
    page.partly_toned(before, TextTone::Warning, "note", format_args!("  {note}"));
    page
}

/// The terminal while it is redrawn. Dropping it restores the terminal.
struct WatchScreen;

/// Escape codes that enter the alternate screen, without a cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[H\u{1b}[2J";

/// Escape codes that restore the screen and the cursor.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

impl WatchScreen {
    fn enter() -> Self {
        // A terminal that can't be written to fails at the first drawing.
        let _ = print::stream(ENTER);
        Self
    }

    /// Draws over what is there, line by line, so that no line is ever empty in between.
    fn draw(&mut self, page: &TextPage, (columns, rows): (usize, usize)) -> anyhow::Result<()> {
        let mut lines = paint::lines(page, print::has_colours(true), Some(columns));
        if lines.len() > rows {
            let hidden = lines.len() - rows + 1;
            lines.truncate(rows.saturating_sub(1));
            lines.push(cut(&format!("… {hidden} more lines: the terminal is too low"), columns));
        }
        // Terminals that know the first and the last code show the whole at once.
        let mut text = "\u{1b}[?2026h\u{1b}[H".to_owned();
        text.push_str(&lines.join("\u{1b}[K\r\n"));
        text.push_str("\u{1b}[K\u{1b}[J\u{1b}[?2026l");
        print::stream(&text).map(drop)
    }
}

impl Drop for WatchScreen {
    fn drop(&mut self) {
        let _ = print::stream(LEAVE);
    }
}
