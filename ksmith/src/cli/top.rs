//! The command `ksmith top`: the threads and the terminal around the state machine in [`crate::top`].
//!
//! Threads read figures, keys and the evidence on a guest, and send them as messages. The main thread alone owns the
//! state and the terminal, and waits for nothing but messages.

use std::io::{IsTerminal, Stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};
use ksmith_core::guest::GuestId;
use ksmith_core::printable::TextPage;
use ksmith_core::sample::ProcessId;
use ksmith_record::{ReadError, times};
use ksmith_service::daemon::{DaemonEnvironment, LiveEnvironment};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::force_color_output;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};

use super::amounts::interval;
use super::past::PastReader;
use super::source::{FallbackSource, HostFigures};
use super::{CommandFailure, GlobalArgs, print};
use crate::top::{HostSnapshot, PastFigures, TopApp, TopEvent, TopRequest};
use ksmith_host::doctor::{self, ExaminationOptions};
use ksmith_host::root::Root;
use ksmith_host::signals;

/// Watch guests, savings and the policy live, on the whole terminal.
///
/// Shows what is saved and spent and what the policy does; the guests, ordered by any column, filtered and grouped; a
/// page for each guest, with the reasons why its memory does not merge; the policy's decisions; and balance. Its
/// figures come from a running daemon, or without one from the kernel. `?` shows the keys. It only reads.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Refresh every TIME; a longer time suits a slow link
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = interval)]
    every: Duration,
    /// Use the mouse: a click on a heading sorts, the wheel scrolls. The terminal then can't select text
    #[arg(long)]
    mouse: bool,
    /// Order the guests by this figure, by key or heading
    #[arg(long, value_name = "FIGURE")]
    sort: Option<String>,
    /// Show only the guests that match: an expression as for `ksmith guests`, or a piece of text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Replay the past from this time on: how long ago (2h, 30m), a date (2026-11-23T20:15), or seconds since 1970
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Begin the replay at this time, in the same forms
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

/// Least time between two redraws: events that come faster are drawn together.
const BETWEEN: Duration = Duration::from_millis(100);

/// Milliseconds of the past in the charts, before a start or before the moment where a replay begins.
const BEFORE: i64 = 15 * 60_000;

/// The longest time to watch a guest's pages.
const LONGEST: Duration = Duration::from_secs(10);

impl TopArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let config = global.load_config_to_read()?;
        if !print::terminal().is_terminal() {
            let why = "top needs a terminal as its output; `ksmith status --every 2` and `ksmith guests --every 2` write lines";
            return Err(CommandFailure::usage(why).into());
        }
        if global.json {
            return Err(CommandFailure::usage("top has no JSON; `ksmith guests --json --every 2` has").into());
        }
        let root = global.root();
        let has_colours = print::has_colours(true);
        let app = TopApp::new(size().unwrap_or((80, 24)), has_colours);
        let app = app.with_list(self.sort.as_deref(), self.filter.as_deref()).map_err(CommandFailure::usage)?;
        let (started, file) = (LiveEnvironment.day_clock(), config.history.file(&root));
        let past = self.open_past(&file, started)?;
        let signals = signals::catch()?.listen()?;
        let (panicked, panics) = bounded(1);
        let mut screen = TopScreen::enter(self.mouse, panicked)?;
        // The library looks at NO_COLOR too, which `--color=always` overrules.
        force_color_output(has_colours);
        let others = unbounded();
        let (sights, recalls, (mut app, first)) = match past {
            Some(ReplayStart { past, figures, at }) => {
                (never(), Some(spawn_recaller(past, others.0.clone())?), app.replaying(figures, at))
            }
            None => {
                spawn_prefill(file, started, others.0.clone())?;
                (
                    spawn_sampler(FallbackSource::steady(root.clone(), config).watching(self.every), self.every)?,
                    None,
                    (app, None),
                )
            }
        };
        let shell = TopShell { sights, keys: read_keys()?, others, recalls, root };
        if let Some(request) = first {
            shell.carry_out(request);
        }
        let (mut is_dirty, mut next) = (true, Instant::now());
        loop {
            if is_dirty && Instant::now() >= next {
                screen.0.draw(|frame| app.draw(frame)).context("can't draw on the terminal")?;
                (is_dirty, next) = (false, Instant::now() + BETWEEN);
            }
            let drawing = if is_dirty { crossbeam_channel::at(next) } else { never() };
            let event = select! {
                // A terminal that goes away sends SIGHUP.
                recv(signals) -> _ => return Ok(ExitCode::SUCCESS),
                recv(panics) -> _ => return Err(anyhow!("a thread of ksmith ended by a panic, which is a fault of ksmith: report it")),
                recv(drawing) -> _ => continue,
                recv(shell.keys) -> event => match event {
                    Ok(event) => event,
                    Err(_) => return Ok(ExitCode::SUCCESS),
                },
                recv(shell.sights) -> sight => TopEvent::Seen(Box::new(sight??)),
                recv(shell.others.1) -> event => event??,
            };
            is_dirty = true;
            match app.update(event) {
                Some(TopRequest::End) => return Ok(ExitCode::SUCCESS),
                Some(request) => shell.carry_out(request),
                None => {}
            }
        }
    }

    /// Opens the history and reads its figures, where the command line asks for a replay.
    fn open_past(&self, file: &Path, started: i64) -> Result<Option<ReplayStart>, CommandFailure> {
        let parse = |text: &str| times::parse(text, started).map_err(|why| CommandFailure::usage(why.to_string()));
        let at = self.at.as_deref().map(parse).transpose()?;
        let since = self.since.as_deref().map(parse).transpose()?;
        let Some(since) = since.or(at.map(|at| at.saturating_sub(BEFORE))) else { return Ok(None) };
        let past = PastReader::open(file, started)?;
        let figures = past.read_figures(since)?;
        let at = past.seconds(at.unwrap_or(since));
        Ok(Some(ReplayStart { past, figures, at }))
    }
}

/// A history that is replayed from a moment on, in seconds since the start.
struct ReplayStart {
    past: PastReader,
    figures: PastFigures,
    at: f64,
}

/// The channels of the threads around the state.
struct TopShell {
    sights: Receiver<anyhow::Result<HostSnapshot>>,
    keys: Receiver<TopEvent>,
    /// Events of threads that come now and then. The sender keeps the channel open.
    others: (Sender<anyhow::Result<TopEvent>>, Receiver<anyhow::Result<TopEvent>>),
    /// Moments of a replay whose guests are to be read.
    recalls: Option<Sender<f64>>,
    root: Root,
}

impl TopShell {
    /// Carries a request out, or has a thread do it.
    fn carry_out(&self, request: TopRequest) {
        match request {
            TopRequest::Explain(guest, processes) => self.explain(guest, processes),
            TopRequest::Recall(at) => {
                if let Some(recalls) = &self.recalls {
                    let _ = recalls.send(at);
                }
            }
            TopRequest::End => {}
        }
    }

    /// Starts a thread that diagnoses a guest's memory. A process that blocks the thread blocks nothing else.
    fn explain(&self, guest: GuestId, processes: Vec<ProcessId>) {
        let (root, sender) = (self.root.clone(), self.others.0.clone());
        let work = move || {
            let page = explanation(&root, &processes).map_err(|why| why.to_string());
            let _ = sender.send(Ok(TopEvent::Explained(guest, page)));
        };
        if let Err(error) = thread::Builder::new().name("doctor".to_owned()).spawn(work) {
            let why = Err(format!("can't start a thread: {error}"));
            let _ = self.others.0.send(Ok(TopEvent::Explained(guest, why)));
        }
    }
}

/// Diagnoses the memory of these processes, as `ksmith doctor` does.
fn explanation(root: &Root, processes: &[ProcessId]) -> anyhow::Result<TextPage> {
    let mut page = TextPage::new();
    for process in processes {
        let found = doctor::find(root, &process.pid.to_string())?;
        // The PID may be another process's by now.
        let patient = found.into_iter().find(|patient| patient.start_ticks == process.start_ticks);
        let Some(patient) = patient else { bail!("process {} has ended", process.pid) };
        let options = ExaminationOptions { longest: LONGEST, ..ExaminationOptions::default() };
        page.append(&doctor::examine(root, &patient, options)?.page());
    }
    Ok(page)
}

/// Starts a thread that samples the host periodically.
fn spawn_sampler(
    mut source: FallbackSource,
    every: Duration,
) -> anyhow::Result<Receiver<anyhow::Result<HostSnapshot>>> {
    let (sender, sights) = bounded(1);
    let started = Instant::now();
    thread::Builder::new().name("looks".to_owned()).spawn(move || {
        let mut due = started;
        loop {
            let sight = source.everything().map(|seen| {
                let HostFigures { status, guests, balance } = seen.value;
                HostSnapshot { at: started.elapsed(), status, guests, balance, note: seen.note }
            });
            if sender.send(sight).is_err() {
                return;
            }
            due = (due + every).max(Instant::now());
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    })?;
    Ok(sights)
}

/// Starts a thread that reads what the charts show of the time before. A host without a history has none.
fn spawn_prefill(file: PathBuf, started: i64, sender: Sender<anyhow::Result<TopEvent>>) -> anyhow::Result<()> {
    thread::Builder::new().name("past".to_owned()).spawn(move || {
        let read = || -> Result<PastFigures, ReadError> {
            PastReader::open(&file, started)?.read_figures(started.saturating_sub(BEFORE))
        };
        if let Ok(figures) = read() {
            let _ = sender.send(Ok(TopEvent::Past(Box::new(figures))));
        }
    })?;
    Ok(())
}

/// Starts a thread that reads the guests of moments. Of moments that wait it reads the last.
fn spawn_recaller(past: PastReader, sender: Sender<anyhow::Result<TopEvent>>) -> anyhow::Result<Sender<f64>> {
    let (recalls, moments) = unbounded();
    thread::Builder::new().name("past".to_owned()).spawn(move || {
        while let Ok(at) = moments.recv() {
            let at = moments.try_iter().last().unwrap_or(at);
            let guests = past.read_guests(at).map_err(anyhow::Error::from);
            if sender.send(guests.map(|guests| TopEvent::Recalled(Box::new(guests)))).is_err() {
                return;
            }
        }
    })?;
    Ok(recalls)
}

/// Starts a thread that reads keys, the mouse and changes of size.
fn read_keys() -> anyhow::Result<Receiver<TopEvent>> {
    let (sender, keys) = bounded(64);
    thread::Builder::new().name("keys".to_owned()).spawn(move || {
        while let Ok(event) = event::read() {
            let event = match event {
                event::Event::Key(key) => TopEvent::Key(key),
                event::Event::Mouse(mouse) => TopEvent::Mouse(mouse),
                event::Event::Resize(columns, lines) => TopEvent::Resize(columns, lines),
                _ => continue,
            };
            if sender.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok(keys)
}

/// The whole terminal. Dropping it restores the terminal, and so does a panic of any thread.
struct TopScreen(Terminal<CrosstermBackend<Stdout>>);

impl TopScreen {
    fn enter(with_mouse: bool, panicked: Sender<()>) -> anyhow::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
            let _ = panicked.try_send(());
        }));
        let why = "the terminal can't be taken as a whole";
        enable_raw_mode().context(why)?;
        let entered = execute!(print::terminal(), EnterAlternateScreen).and_then(|()| match with_mouse {
            true => execute!(print::terminal(), EnableMouseCapture),
            false => Ok(()),
        });
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(print::terminal())));
        match terminal {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                leave();
                Err(error).context(why)
            }
        }
    }
}

impl Drop for TopScreen {
    fn drop(&mut self) {
        leave();
    }
}

/// Restores the terminal, ignoring errors: it may be gone.
fn leave() {
    let _ = execute!(print::terminal(), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_panic_of_any_thread_gives_the_terminal_back() {
        const MARK: &str = "KSMITH_TEST_HAS_TERMINAL";
        if std::env::var_os(MARK).is_some() {
            let (panicked, panics) = bounded(1);
            let screen = TopScreen::enter(true, panicked).unwrap();
            let thread = thread::spawn(|| panic!("on purpose"));
            assert!(thread.join().is_err() && panics.recv().is_ok());
            // It was the panic that gave the terminal back.
            std::mem::forget(screen);
            return;
        }
        let own = std::env::current_exe().unwrap();
        let test = "cli::top::tests::a_panic_of_any_thread_gives_the_terminal_back";
        let command = format!("{} --exact {test} --nocapture --test-threads=1", own.display());
        let mut script = Command::new("script");
        let script = script.args(["-qec", &command, "/dev/null"]).env(MARK, "1").stdin(Stdio::null());
        let output = script.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text:?}"));
        assert!(output.status.success(), "{text}");
        assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l") && at("\u{1b}[?1049l") < at("on purpose"), "{text:?}");
    }
}
