//! Tests of keys, the mouse and figures.

use std::rc::Rc;

use ksmith_core::guest::GuestId;
use proptest::prelude::*;
use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::*;

fn click(app: &mut TopApp, column: u16, row: u16) {
    let kind = MouseEventKind::Down(MouseButton::Left);
    app.update(TopEvent::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
}

/// Returns the names in the list, in their order.
fn names(app: &TopApp) -> Vec<String> {
    let is_row = |line: &String| !line.is_empty() && !line.starts_with("total of ");
    let rows = lines(app).into_iter().skip(8).take_while(is_row);
    rows.map(|line| line.chars().take_while(|c| *c != ' ').collect()).collect()
}

fn is_listed(app: &TopApp, expected: &[&str]) {
    let names = names(app);
    let fits = names.iter().zip(expected).all(|(name, expected)| name.replace(' ', "").starts_with(expected));
    assert!(fits && names.len() == expected.len(), "{names:?}");
}

#[test]
fn every_column_orders_the_list() {
    let mut app = app((80, 24));
    is_listed(&app, &["a", "c", "b", "数"]);
    press(&mut app, "r");
    is_listed(&app, &["数", "b", "c", "a"]);
    press(&mut app, "r[right][right]");
    assert_eq!(app.list.figure().field.name, "profit_bytes");
    is_listed(&app, &["c", "b", "数", "a"]);
    press(&mut app, "[right]");
    assert_eq!(app.list.figure().field.name, "name", "after the last column comes the first");
    is_listed(&app, &["a", "b", "c", "数"]);
    press(&mut app, "[left][left]");
    assert_eq!(app.list.figure().field.name, "metadata_bytes");
}

#[test]
fn a_click_on_a_heading_orders_and_on_a_guest_chooses() {
    let mut app = app((200, 50));
    let head = lines(&app)[13].clone();
    let column = |heading: &str| u16::try_from(head[..head.find(heading).unwrap()].chars().count()).unwrap();
    let (profit, pid, kind) = (column("profit"), column("pid"), column("kind"));
    click(&mut app, profit, 13);
    assert_eq!((app.list.figure().field.name, app.list.is_reversed), ("profit_bytes", false));
    click(&mut app, profit, 13);
    assert_eq!((app.list.figure().field.name, app.list.is_reversed), ("profit_bytes", true));
    click(&mut app, pid, 13);
    assert_eq!(app.list.figure().field.name, "profit_bytes", "the PID orders nothing");
    click(&mut app, kind, 13);
    assert_eq!(app.list.figure().field.name, "kind");
    click(&mut app, 5, 15);
    assert!(press(&mut app, "[enter]").is_empty());
    assert!(lines(&app)[13].starts_with("b (pid 1)"), "{:?}", lines(&app)[13]);
    for (column, row) in [(0, 0), (199, 49), (5, 40), (u16::MAX, u16::MAX)] {
        click(&mut app, column, row);
    }
}

#[test]
fn a_click_on_the_number_of_guests_orders_groups_by_it() {
    let mut app = app((80, 24));
    press(&mut app, "g");
    let head = lines(&app)[7].clone();
    let guests = u16::try_from(head.find("guests").unwrap()).unwrap();
    click(&mut app, guests, 7);
    is_listed(&app, &["qemu", "container"]);
    assert!(lines(&app)[6].ends_with("order guests ▼  by kind"), "{:?}", lines(&app)[6]);
    click(&mut app, guests, 7);
    is_listed(&app, &["container", "qemu"]);
    press(&mut app, "rggg");
    assert_eq!(app.list.label().unwrap().field.name, "user");
    is_listed(&app, &["x", "y"]);
}

#[test]
fn a_filter_is_an_expression_or_a_piece_of_text() {
    let mut app = app((80, 24));
    press(&mut app, "/服务[enter]");
    is_listed(&app, &["数"]);
    press(&mut app, "/[esc]");
    is_listed(&app, &["数"]);
    press(&mut app, "[esc]");
    is_listed(&app, &["a", "c", "b", "数"]);
    press(&mut app, "/saved>1MiB[enter]");
    is_listed(&app, &["a", "c"]);
    press(&mut app, "/x[enter]");
    let last = lines(&app)[23].clone();
    assert!(last.starts_with("the filter, at character 7: `1MiBx` is not a value of saved"), "{last}");
    assert_eq!(app.prompt.as_ref().unwrap().text, "saved>1MiBx", "it can be put right");
}

#[test]
fn a_group_opens_as_its_guests() {
    let mut app = app((80, 24));
    press(&mut app, "gggg");
    assert_eq!(app.list.label().unwrap().field.name, "user");
    is_listed(&app, &["x", "y"]);
    press(&mut app, "[down][enter]");
    is_listed(&app, &["c", "数"]);
    assert_eq!(app.list.sieve.as_ref().unwrap().text, "user=\"y\"");
    press(&mut app, "[esc]gggggg");
    assert_eq!(names(&app), ["-"], "by domain");
    press(&mut app, "[enter]");
    is_listed(&app, &["a", "c", "b", "数"]);
}

#[test]
fn the_chosen_guest_stays_chosen_when_the_order_changes() {
    let mut app = app((80, 24));
    press(&mut app, "[down]r[enter]");
    assert_eq!(lines(&app)[7], "c (pid 3)");
    press(&mut app, "[esc]");
    let mut next = sight(41, 600);
    next.guests.guests.retain(|guest| guest.name != "c");
    app.update(TopEvent::Seen(Box::new(next)));
    press(&mut app, "[enter]");
    assert!(lines(&app)[7].starts_with("数"), "the first, where the chosen one is gone: {:?}", lines(&app)[7]);
}

#[test]
fn a_guest_is_examined_once_and_the_screen_goes_on() {
    let mut app = app((80, 24));
    let wishes = press(&mut app, "ww");
    let id = GuestId::new(ProcessId { pid: 2, start_ticks: 1 });
    assert_eq!(wishes, [TopRequest::Explain(id, vec![id.process()])]);
    assert!(lines(&app).iter().any(|line| line.contains("is being examined (0 ms)")), "{:#?}", lines(&app));
    app.update(TopEvent::Seen(Box::new(sight(45, 600))));
    assert!(lines(&app).iter().any(|line| line.contains("is being examined (6 s)")), "{:#?}", lines(&app));
    let other = GuestId::new(ProcessId { pid: 3, start_ticks: 1 });
    app.update(TopEvent::Explained(other, Ok(explanation())));
    assert!(lines(&app).iter().any(|line| line.contains("is being examined")), "of another guest");
    app.update(TopEvent::Explained(id, Err("process 2 has ended".to_owned())));
    assert!(lines(&app).iter().any(|line| line == "Why it does not merge: process 2 has ended"));
    assert_eq!(press(&mut app, "w"), wishes, "it may be tried again");
}

#[test]
fn a_held_screen_stands_still_and_goes_on_with_the_newest() {
    let mut app = app((80, 24));
    press(&mut app, " ");
    let before = lines(&app);
    app.update(TopEvent::Seen(Box::new(sight(41, 5120))));
    assert_eq!(lines(&app)[1..5], before[1..5]);
    assert!(before[0].ends_with("HELD: Space goes on"));
    press(&mut app, " ");
    assert!(lines(&app)[3].starts_with("saved 84.0 MiB"), "{:?}", lines(&app)[3]);
}

#[test]
fn the_command_line_orders_and_filters() {
    let listed = |order, filter| TopApp::new((80, 24), false).with_list(order, filter);
    let mut app = listed(Some("name"), Some("saved>1MiB")).unwrap();
    app.update(TopEvent::Seen(Box::new(sight(1, 100))));
    is_listed(&app, &["a", "c"]);
    assert_eq!(listed(Some("rss_bytes"), None).unwrap().list.order(), "rss");
    let error = listed(Some("colour"), None).unwrap_err();
    assert!(error.starts_with("the list can't be ordered by \"colour\"; name one of name, kind, rss, "), "{error}");
    let error = listed(None, Some("saved>red")).unwrap_err();
    assert!(error.contains("`red` is not a value of saved"), "{error}");
}

#[test]
fn rows_are_made_once_for_all_frames_and_keys_between_two_looks() {
    let mut app = app((80, 24));
    let mut rows = app.rows().unwrap();
    let mut is_new = |app: &TopApp| {
        let before = std::mem::replace(&mut rows, app.rows().unwrap());
        !Rc::ptr_eq(&before, &rows)
    };
    press(&mut app, "[down][up]");
    drawn(&app);
    assert!(!is_new(&app));
    for keys in ["[right]", "r", "g", "/not name=c[enter]", "[esc]"] {
        press(&mut app, keys);
        assert!(is_new(&app), "{keys}");
    }
    app.update(TopEvent::Seen(Box::new(sight(41, 600))));
    assert!(is_new(&app));
    press(&mut app, " ");
    app.update(TopEvent::Seen(Box::new(sight(42, 600))));
    assert!(!is_new(&app), "the screen is held");
    press(&mut app, " ");
    assert!(is_new(&app));
}

#[test]
fn the_sums_are_those_of_the_guests_that_are_listed() {
    let mut app = app((80, 24));
    let total = |app: &TopApp| lines(app)[22].split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert!(total(&app).starts_with("total of 4 4.00 MiB") && total(&app).ends_with("88 %"), "{}", total(&app));
    press(&mut app, "/saved>1MiB[enter]");
    assert!(total(&app).starts_with("total of 2 2.00 MiB") && total(&app).ends_with("62 %"), "{}", total(&app));
    let shares: Vec<String> = lines(&app)[8..10].iter().map(|line| line[line.len() - 4..].to_owned()).collect();
    assert_eq!(shares, ["38 %", "25 %"]);
}

#[test]
fn a_replay_steps_back_and_forth_and_shows_what_was_decided_by_then() {
    let mut app = replay((80, 24), -301.0);
    assert!(lines(&app)[0].starts_with("REPLAY 2026-11-23 20:05:00"), "{:?}", lines(&app)[0]);
    assert!(lines(&app)[0].ends_with("6 of 11  t forth  T back"), "{:?}", lines(&app)[0]);
    assert!(lines(&app)[4].starts_with("policy profit: burst, 12.0 MiB of new memory"), "{:?}", lines(&app)[4]);
    assert_eq!(press(&mut app, "t"), [TopRequest::Recall(-241.0)]);
    assert_eq!(press(&mut app, "t"), [TopRequest::Recall(-181.0)]);
    assert!(lines(&app)[3].starts_with("saved 49.0 MiB  profit -4.00 KiB  ksmd CPU 3.0 %"), "{:?}", lines(&app)[3]);
    assert!(lines(&app)[4].starts_with("policy profit: parked, the last scan"), "{:?}", lines(&app)[4]);
    press(&mut app, "2");
    assert!(lines(&app).iter().any(|line| line.contains("3 min 50 s ago") || line.contains("4 min ago")));
    assert_eq!(
        press(&mut app, "]T["),
        [TopRequest::Recall(-1.0), TopRequest::Recall(-61.0), TopRequest::Recall(-601.0)]
    );
    assert!(press(&mut app, "T[").is_empty(), "it is the first");
    assert!(lines(&app)[4].starts_with("policy -: no decision was recorded before"), "{:?}", lines(&app)[4]);
    press(&mut app, "1");
    assert!(press(&mut app, "[enter]w").is_empty(), "memory of the past can't be examined");
}

#[test]
fn a_replay_of_nothing_says_so() {
    let (app, request) = TopApp::new((80, 24), false).replaying(PastFigures::default(), -60.0);
    assert_eq!((request, lines(&app)[0].as_str()), (None, "ksmith top: nothing was recorded in that time"));
}

#[test]
fn keys_of_a_replay_do_nothing_in_the_present() {
    let mut app = app((80, 24));
    let before = lines(&app);
    assert!(press(&mut app, "tT][").is_empty());
    assert_eq!(lines(&app), before);
}

#[test]
fn q_and_ctrl_c_end() {
    assert_eq!(press(&mut app((80, 24)), "q"), [TopRequest::End]);
    let mut typing = app((80, 24));
    assert!(press(&mut typing, "/q").is_empty(), "in a filter it is a letter");
    let end = TopEvent::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert_eq!(typing.update(end), Some(TopRequest::End));
}

fn any_key() -> impl Strategy<Value = KeyCode> {
    prop_oneof![
        8 => prop::sample::select("qr/g w?1234hjk<>tT[]".chars().collect::<Vec<_>>()).prop_map(KeyCode::Char),
        2 => any::<char>().prop_map(KeyCode::Char),
        6 => prop::sample::select(vec![
            KeyCode::Enter, KeyCode::Esc, KeyCode::Up, KeyCode::Down, KeyCode::Left, KeyCode::Right, KeyCode::PageUp,
            KeyCode::PageDown, KeyCode::Home, KeyCode::End, KeyCode::Tab, KeyCode::Backspace, KeyCode::F(1),
        ]),
    ]
}

fn any_event() -> impl Strategy<Value = TopEvent> {
    let sight =
        (0_u64..1000, 0_u64..1 << 40, 0_usize..5, any::<bool>()).prop_map(|(at, pages, guests, has_daemon)| {
            let mut sight = if has_daemon { sight(at, pages) } else { without_daemon(at) };
            sight.guests.guests.truncate(guests);
            TopEvent::Seen(Box::new(sight))
        });
    let mouse = (0_usize..3, any::<u16>(), 0_u16..60).prop_map(|(kind, column, row)| {
        let kinds = [MouseEventKind::ScrollUp, MouseEventKind::ScrollDown, MouseEventKind::Down(MouseButton::Left)];
        TopEvent::Mouse(MouseEvent { kind: kinds[kind], column: column % 220, row, modifiers: KeyModifiers::NONE })
    });
    let explained = (1_u32..5, any::<bool>()).prop_map(|(pid, is_known)| {
        let id = GuestId::new(ProcessId { pid, start_ticks: 1 });
        TopEvent::Explained(id, if is_known { Ok(explanation()) } else { Err("it is\u{1b}[2J gone".to_owned()) })
    });
    prop_oneof![
        10 => any_key().prop_map(key),
        2 => (0_u16..220, 0_u16..60).prop_map(|(columns, lines)| TopEvent::Resize(columns, lines)),
        2 => sight,
        2 => mouse,
        1 => explained,
        1 => Just(TopEvent::Past(Box::new(past()))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn no_sequence_of_events_makes_it_panic(events in prop::collection::vec(any_event(), 0..60)) {
        let mut app = TopApp::new((80, 24), false);
        let (mut replay, _) = TopApp::new((80, 24), false).replaying(past(), -301.0);
        for event in events {
            replay.update(event.clone());
            app.update(event);
            for app in [&app, &replay] {
                assert_no_colour(drawn(app).backend().buffer());
            }
        }
    }
}
