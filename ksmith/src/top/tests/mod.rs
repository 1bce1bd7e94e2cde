mod events;
mod screens;

use std::time::Duration;

use ksmith_core::guest::{Guest, GuestKind};
use ksmith_core::model::StatusReport;
use ksmith_core::printable::{TextPage, TextTone};
use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::{HeaderFigures, HostSnapshot, PastFigures, PastMoment, ShownDecision, TopApp, TopEvent, TopRequest};
use crate::show::tests::models;

/// Returns a guest with a name in wide characters.
fn wide() -> Guest {
    Guest {
        name: "数据库服务器-一号-in-the-second-rack-of-the-hall".to_owned(),
        kind: GuestKind::new("container"),
        processes: vec![ProcessId { pid: 4, start_ticks: 9 }, ProcessId { pid: 5, start_ticks: 9 }],
        user: Some("y".to_owned()),
        cgroup: Some("/system.slice/db\u{1b}[2J.service".to_owned()),
        errors: vec!["its figures\nare hidden".to_owned()],
        ..models::guests().guests[0].clone()
    }
}

/// Returns the figures of a daemon at the second `at`, with so many pages merged.
fn sight(at: u64, pages_sharing: u64) -> HostSnapshot {
    let mut status = StatusReport { history: None, ..models::status() };
    status.sample.ksm.pages_sharing = Reading::Value(pages_sharing);
    status.ksmd_cpu_percent = Some(at as f64 / 2.0);
    let mut guests = models::guests();
    guests.guests.push(wide());
    guests.saved_bytes = 8 * models::MIB;
    HostSnapshot { at: Duration::from_secs(at), status, guests, balance: Some(models::balance()), note: None }
}

/// Returns the figures of the kernel, without a daemon.
fn without_daemon(at: u64) -> HostSnapshot {
    let sight = sight(at, 512);
    let status = StatusReport { daemon: None, balance: None, ..sight.status };
    HostSnapshot { status, balance: None, note: Some("no daemon answers".to_owned()), ..sight }
}

/// Returns ten minutes of the past, up to a second before the start, with two decisions.
fn past() -> PastFigures {
    let moment = |minute: u32| PastMoment {
        at: f64::from(minute) * 60.0 - 601.0,
        clock: format!("2026-11-23 20:{minute:02}:00"),
        figures: HeaderFigures {
            saved_bytes: Some(u64::from(minute * minute) * models::MIB),
            profit_bytes: Some(-4096),
            exposure_bytes: Some(u64::from(minute * minute) * models::MIB),
            headroom_bytes: Some(110 * models::MIB),
            ksmd_percent: Some(f64::from(10 - minute)),
            pressure_percent: Some(0.5),
            ..HeaderFigures::default()
        },
    };
    let decision = |at: f64, state: &str, reason: &str, detail: Option<&str>| ShownDecision {
        at,
        state: format!("profit: {state}"),
        reason: reason.to_owned(),
        detail: detail.map(str::to_owned),
    };
    PastFigures {
        moments: (0..=10).map(moment).collect(),
        decisions: vec![
            decision(
                -421.0,
                "burst",
                "12.0 MiB of new memory, 1 new process",
                Some("every page, up to 20 % of a CPU"),
            ),
            decision(-211.0, "parked", "the last scan found little new; next look in 35 s", None),
        ],
    }
}

/// Returns a replay that begins so many seconds before the start, with its guests.
fn replay(size: (u16, u16), at: f64) -> TopApp {
    let (mut app, request) = TopApp::new(size, false).replaying(past(), at);
    assert!(matches!(request, Some(TopRequest::Recall(_))), "{request:?}");
    app.update(TopEvent::Recalled(Box::new(sight(0, 0).guests)));
    app
}

fn key(code: KeyCode) -> TopEvent {
    TopEvent::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// Returns an app that has run for some seconds.
fn app(size: (u16, u16)) -> TopApp {
    let mut app = TopApp::new(size, false);
    for at in 0..40 {
        app.update(TopEvent::Seen(Box::new(sight(at, 100 + 10 * at))));
    }
    app
}

/// Presses keys: characters as they are, and some names in brackets.
fn press(app: &mut TopApp, keys: &str) -> Vec<TopRequest> {
    let mut wishes = Vec::new();
    let mut rest = keys;
    while let Some(first) = rest.chars().next() {
        let names = [
            ("[enter]", KeyCode::Enter),
            ("[esc]", KeyCode::Esc),
            ("[left]", KeyCode::Left),
            ("[right]", KeyCode::Right),
            ("[down]", KeyCode::Down),
            ("[up]", KeyCode::Up),
            ("[end]", KeyCode::End),
            ("[tab]", KeyCode::Tab),
        ];
        let named = names.into_iter().find(|(name, _)| rest.starts_with(name));
        let (code, length) =
            named.map_or((KeyCode::Char(first), first.len_utf8()), |(name, code)| (code, name.len()));
        rest = &rest[length..];
        wishes.extend(app.update(key(code)));
    }
    wishes
}

fn drawn(app: &TopApp) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(app.size.0, app.size.1)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal
}

fn lines(app: &TopApp) -> Vec<String> {
    let terminal = drawn(app);
    let buffer = terminal.backend().buffer();
    let line =
        |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..buffer.area.height).map(line).collect()
}

fn assert_no_colour(buffer: &Buffer) {
    for cell in &buffer.content {
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        assert!(!cell.symbol().contains(char::is_control), "{:?}", cell.symbol());
    }
}

/// Returns a diagnosis like one of `ksmith doctor`.
fn explanation() -> TextPage {
    let mut page = TextPage::new();
    page.line("a (pid 2): 12.0 MiB it differs from all others");
    page.toned(TextTone::Warning, " 12.0 MiB  pages that no other process has");
    page
}
