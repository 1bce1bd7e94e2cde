//! Tests of keys, the mouse and figures.

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
    let rows = lines(app).into_iter().skip(7).take_while(|line| !line.is_empty());
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
    let head = lines(&app)[9].clone();
    let column = |heading: &str| u16::try_from(head[..head.find(heading).unwrap()].chars().count()).unwrap();
    let (profit, pid, kind) = (column("profit"), column("pid"), column("kind"));
    click(&mut app, profit, 9);
    assert_eq!((app.list.figure().field.name, app.list.is_reversed), ("profit_bytes", false));
    click(&mut app, profit, 9);
    assert_eq!((app.list.figure().field.name, app.list.is_reversed), ("profit_bytes", true));
    click(&mut app, pid, 9);
    assert_eq!(app.list.figure().field.name, "profit_bytes", "the PID orders nothing");
    click(&mut app, kind, 9);
    assert_eq!(app.list.figure().field.name, "kind");
    click(&mut app, 5, 11);
    assert!(press(&mut app, "[enter]").is_empty());
    assert!(lines(&app)[9].starts_with("b (pid 1)"), "{:?}", lines(&app)[9]);
    for (column, row) in [(0, 0), (199, 49), (5, 40), (u16::MAX, u16::MAX)] {
        click(&mut app, column, row);
    }
}

#[test]
fn a_click_on_the_number_of_guests_orders_groups_by_it() {
    let mut app = app((80, 24));
    press(&mut app, "g");
    let head = lines(&app)[6].clone();
    let guests = u16::try_from(head.find("guests").unwrap()).unwrap();
    click(&mut app, guests, 6);
    is_listed(&app, &["qemu", "container"]);
    assert!(lines(&app)[5].ends_with("order guests ▼  by kind"), "{:?}", lines(&app)[5]);
    click(&mut app, guests, 6);
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
    assert!(last.starts_with("the filter, at character 7: `1MiBx` is no value of saved"), "{last}");
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
    assert_eq!(lines(&app)[6], "c (pid 3)");
    press(&mut app, "[esc]");
    let mut next = sight(41, 600);
    next.guests.guests.retain(|guest| guest.name != "c");
    app.update(TopEvent::Seen(Box::new(next)));
    press(&mut app, "[enter]");
    assert!(lines(&app)[6].starts_with("数"), "the first, where the chosen one is gone: {:?}", lines(&app)[6]);
}

#[test]
fn a_guest_is_examined_once_and_the_screen_goes_on() {
    let mut app = app((80, 24));
    let wishes = press(&mut app, "ww");
    let id = GuestId::new(ProcessId { pid: 2, start_ticks: 1 });
    assert_eq!(wishes, [TopRequest::Explain(id, vec![id.process()])]);
    press(&mut app, "[end]");
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
    assert_eq!(lines(&app)[1..4], before[1..4]);
    assert!(before[0].ends_with("HELD: Space goes on"));
    press(&mut app, " ");
    assert!(lines(&app)[1].starts_with("saved 84.0 MiB"), "{:?}", lines(&app)[1]);
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
        8 => prop::sample::select("qr/g w?123hjk<>".chars().collect::<Vec<_>>()).prop_map(KeyCode::Char),
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
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn no_sequence_of_events_makes_it_panic(events in prop::collection::vec(any_event(), 0..60)) {
        let mut app = TopApp::new((80, 24), false);
        for event in events {
            app.update(event);
            assert_no_colour(drawn(&app).backend().buffer());
        }
    }
}
