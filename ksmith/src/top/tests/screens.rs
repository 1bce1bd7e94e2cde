//! Each view at two sizes, as a terminal without colours shows it.

use ksmith_core::huge_worth::SplitMemory;

use super::*;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

/// Compares the screen after these keys with its snapshot, at each size.
fn check(name: &str, keys: &str) {
    for size in SIZES {
        let mut app = app(size);
        for wish in press(&mut app, keys) {
            if let TopRequest::Explain(guest, _) = wish {
                app.update(TopEvent::Explained(guest, Ok(explanation())));
            }
        }
        compare(name, &app);
    }
}

fn compare(name: &str, app: &TopApp) {
    let terminal = drawn(app);
    assert_no_colour(terminal.backend().buffer());
    insta::assert_snapshot!(format!("{name}-{}x{}", app.size.0, app.size.1), terminal.backend());
}

#[test]
fn the_list_of_guests() {
    check("guests", "");
}

#[test]
fn the_list_in_another_order_with_a_filter() {
    check("filtered", "/not name=c[enter][right]r[down]");
}

#[test]
fn a_filter_that_is_typed_and_one_that_is_wrong() {
    check("prompt", "/saved>1MiB");
    check("wrong-filter", "/saved>1MiB and nme=x[enter]");
}

#[test]
fn guests_by_user() {
    check("by-user", "gggg[down]");
}

#[test]
fn the_page_of_a_guest_and_why_it_does_not_merge() {
    check("guest", "[end][enter]");
    check("explained", "[enter]w");
}

#[test]
fn decisions_balance_and_keys() {
    for size in SIZES {
        let mut app = app(size);
        let mut next = sight(41, 520);
        if let Some(daemon) = &mut next.status.daemon {
            daemon.state = "burst".to_owned();
            daemon.reason = "12.0 MiB of new memory, 1 new process".to_owned();
            daemon.reason_detail = Some("every page, up to 20 % of a CPU".to_owned());
        }
        app.update(TopEvent::Seen(Box::new(next)));
        app.update(TopEvent::Seen(Box::new(without_daemon(50))));
        press(&mut app, "2");
        compare("decisions", &app);
    }
    check("balance", "3");
    check("keys", "?");
}

#[test]
fn charts_with_the_history_before() {
    for size in SIZES {
        let mut app = app(size);
        app.update(TopEvent::Past(Box::new(past())));
        press(&mut app, "4");
        compare("charts", &app);
    }
}

#[test]
fn a_replay_of_the_past() {
    for size in SIZES {
        let mut app = replay(size, -301.0);
        press(&mut app, "tt");
        compare("replay", &app);
    }
}

#[test]
fn a_host_without_daemon() {
    for size in SIZES {
        let mut app = app(size);
        app.update(TopEvent::Seen(Box::new(without_daemon(50))));
        compare("without-daemon", &app);
    }
}

#[test]
fn figures_of_the_header_are_whole_on_every_terminal() {
    let mut next = sight(41, 600);
    next.status.sample.processes[0].split =
        Some(SplitMemory { bytes: models::MIB, cost: Duration::from_millis(120) });
    let figures = |columns| {
        let mut app = app((columns, 24));
        app.update(TopEvent::Seen(Box::new(next.clone())));
        let line = lines(&app)[3].clone();
        line.split("  ").map(str::to_owned).collect::<Vec<_>>()
    };
    let all = figures(200);
    assert_eq!(all.len(), 8, "{all:?}");
    assert!(all.contains(&"splits cost ≤0.12 CPU".to_owned()), "{all:?}");
    for columns in 60..200 {
        let shown = figures(columns);
        assert!(shown.iter().all(|figure| all.contains(figure)), "{columns}: {shown:?}");
        let important = ["saved ", "profit ", "ksmd CPU "];
        assert!(important.iter().all(|name| shown.iter().any(|figure| figure.starts_with(name))), "{columns}");
    }
    assert_eq!(figures(80)[4], "notes: 4, see 2", "it is more important than the number of guests");
}

#[test]
fn before_the_first_look_and_on_a_small_terminal() {
    assert_eq!(lines(&TopApp::new((80, 24), false))[0], "ksmith top: looking at the host …");
    let small = lines(&app((59, 24)));
    assert_eq!(small[..2], ["ksmith top needs 60 x 16, this terminal has 59 x 24", ""]);
    assert_eq!(lines(&app((30, 5)))[..2], ["ksmith top needs 60 x 16, this", "  terminal has 30 x 5"]);
}

#[test]
fn colours_are_used_where_they_are_wanted() {
    let mut app = app((80, 24));
    app.has_colours = true;
    let terminal = drawn(&app);
    let red = terminal.backend().buffer().content.iter().filter(|cell| cell.fg == Color::Red);
    let red: String = red.map(|cell| cell.symbol()).collect();
    let (bar, legend) = red.split_at(red.find(' ').unwrap());
    // What the headroom covers is a part of the problem.
    assert!(bar.starts_with("▒!") && bar.trim_end_matches('!').len() < bar.len(), "{bar}");
    assert_eq!(legend, " exposure 65.9 MiB OVER ");
}
