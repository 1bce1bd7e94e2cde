use proptest::prelude::*;

use super::FigureFilter;
use crate::figures::GUEST;
use crate::guest::{Guest, GuestKind, GuestMemoryFigures};
use crate::sample::ProcessId;

fn guest(name: &str, kind: &str, saved: u64) -> Guest {
    Guest {
        is_verified: name == "web1",
        kind: GuestKind::new(kind),
        program: "qemu-system-x86_64".to_owned(),
        memory_bytes: Some(u64::MAX),
        user: Some("alice".to_owned()),
        domain: (name == "db").then(|| "gold customers".to_owned()),
        mergeable: (kind == "qemu").then_some(true),
        figures: GuestMemoryFigures { saved_bytes: saved, profit_bytes: -5, ..GuestMemoryFigures::default() },
        ..Guest::plain(name, ProcessId { pid: 7, start_ticks: 1 })
    }
}

fn guests() -> [Guest; 3] {
    [guest("web1", "qemu", 300 << 20), guest("db", "qemu", 100 << 20), guest("sshd", "process", 0)]
}

fn fitting(filter: &str) -> Vec<String> {
    let filter = FigureFilter::parse(filter, GUEST).unwrap();
    guests().into_iter().filter(|guest| filter.fits(guest)).map(|guest| guest.name).collect()
}

fn fault(filter: &str) -> (usize, String) {
    let error = FigureFilter::parse(filter, GUEST).expect_err(filter);
    (error.at, error.why)
}

#[test]
fn figures_are_compared_by_key_or_heading_with_bytes_as_people_write_them() {
    assert_eq!(fitting("saved_bytes>100MiB"), ["web1"]);
    assert_eq!(fitting("saved >= 100 MiB"), ["web1", "db"]);
    assert_eq!(fitting("saved=104857600"), ["db"]);
    assert_eq!(fitting("saved<0.2G and saved>0"), ["db"]);
    assert_eq!(fitting("saved>\"99.5 MiB\""), ["web1", "db"]);
    assert_eq!(fitting("profit<=-5 and profit>-6B"), ["web1", "db", "sshd"]);
    assert_eq!(fitting("memory_bytes=18446744073709551615"), ["web1", "db", "sshd"]);
    assert_eq!(fitting("memory_bytes<18446744073709551615"), [""; 0], "64 bits are exact");
}

#[test]
fn text_is_compared_and_matched() {
    assert_eq!(fitting("name~web*"), ["web1"]);
    assert_eq!(fitting("name~?b and kind!=process"), ["db"]);
    assert_eq!(fitting("name!~web*"), ["db", "sshd"]);
    assert_eq!(fitting("name=web*"), [""; 0]);
    assert_eq!(fitting("domain=\"gold customers\""), ["db"]);
}

#[test]
fn words_and_parentheses_join_comparisons() {
    assert_eq!(fitting("kind=process or name=db and saved>0"), ["db", "sshd"], "`and` binds more tightly");
    assert_eq!(fitting("(kind=process or name=db) and saved>0"), ["db"]);
    assert_eq!(fitting("not (kind=qemu and saved>200M)"), ["db", "sshd"]);
    assert_eq!(fitting("not not name=db"), ["db"]);
    assert_eq!(fitting("is_verified"), ["web1"]);
    assert_eq!(fitting("not is_verified and is_verified=no"), ["db", "sshd"]);
}

#[test]
fn the_unknown_is_neither_less_nor_greater() {
    assert_eq!(fitting("domain=-"), ["web1", "sshd"]);
    assert_eq!(fitting("pss_bytes<1T or pss_bytes>=0"), [""; 0]);
    assert_eq!(fitting("pss_bytes!=5"), ["web1", "db", "sshd"]);
    assert_eq!(fitting("mergeable!=-"), ["web1", "db"]);
    assert_eq!(fitting("domain~*"), ["db"]);
}

#[test]
fn errors_name_the_place_and_what_is_known() {
    let (at, why) = fault("name=x and savd>5");
    assert_eq!(at, 12);
    assert!(why.starts_with("there is no figure `savd`; known are name, uuid,"), "{why}");
    for (filter, at, part) in [
        ("", 1, "a comparison is missing"),
        ("name=x and", 11, "a comparison is missing"),
        ("saved", 6, "saved needs a comparison, such as saved_bytes>100MiB"),
        ("saved>", 7, "the value is missing"),
        ("saved>many", 7, "`many` is not a value of saved"),
        ("saved>5 XB", 9, "`XB` stands where `and` or `or` would"),
        ("saved>1.2345678M", 7, "is not a value"),
        ("saved~5", 6, "`~` does not go with saved"),
        ("name<x", 5, "`<` does not go with name, which is compared as in name=word or name~word*"),
        ("mergeable>yes", 10, "`>` does not go with mergeable"),
        ("mergeable=maybe", 11, "compared as in mergeable=yes"),
        ("(name=ä", 8, "the parenthesis at character 1 has no end"),
        ("(name=x name", 9, "`name` stands where `)` would"),
        ("name=\"x", 6, "a quote has no end"),
        ("name=(", 6, "`(` stands where a value would"),
        ("name!x", 5, "`!` stands before `=` or `~`"),
        ("= 5", 1, "`=` stands where the name of a figure would"),
        ("saved>-", 6, "`>` does not go with saved"),
    ] {
        let fault = fault(filter);
        assert!(fault.0 == at && fault.1.contains(part), "{filter:?}: {fault:?}");
    }
}

#[test]
fn no_depth_ends_the_stack() {
    for deep in ["(".repeat(100_000), "not ".repeat(100_000), format!("{}name=x", "(not ".repeat(70))] {
        assert!(fault(&deep).1.starts_with("more than 64"), "{:?}", fault(&deep));
    }
    let wide = vec!["name=db"; 50_000].join(" or ");
    assert_eq!(fitting(&wide), ["db"]);
}

/// Generates text out of the pieces of filters, so that much of it is one.
fn almost() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "name",
        "saved",
        "mergeable",
        "domain",
        "=",
        "!=",
        "~",
        "<",
        ">=",
        "(",
        ")",
        "and",
        "or",
        "not",
        "-",
        "5MiB",
        "web*",
        "\"",
        "\\",
        "!",
        " ",
        "1.5",
        "yes",
        "ä",
        "\u{0}",
    ]);
    prop::collection::vec((piece, prop::bool::ANY), 0..24).prop_map(|pieces| {
        pieces
            .into_iter()
            .map(|(piece, apart)| if apart { format!("{piece} ") } else { piece.to_owned() })
            .collect()
    })
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in prop_oneof![any::<String>(), almost()]) {
        match FigureFilter::parse(&text, GUEST) {
            Ok(filter) => {
                let opposite = FigureFilter::parse(&format!("not ({text})"), GUEST).unwrap();
                for guest in guests() {
                    prop_assert_ne!(filter.fits(&guest), opposite.fits(&guest));
                }
            }
            Err(error) => prop_assert!((1..=text.chars().count() + 1).contains(&error.at), "{}", error),
        }
    }

    #[test]
    fn comparisons_are_those_of_numbers(saved in any::<u64>(), other in any::<u64>()) {
        let guest = guest("a", "qemu", saved);
        let fits = |sign: &str| FigureFilter::parse(&format!("saved_bytes{sign}{other}"), GUEST).unwrap().fits(&guest);
        prop_assert_eq!(fits("<"), saved < other);
        prop_assert_eq!(fits("<="), saved <= other);
        prop_assert_eq!(fits(">"), saved > other);
        prop_assert_eq!(fits(">="), saved >= other);
        prop_assert_eq!(fits("="), saved == other);
        prop_assert_eq!(fits("!="), saved != other);
    }

    #[test]
    fn every_text_is_found_in_quotes(name in "[a-z\\\\\" *]{0,12}") {
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
        let filter = FigureFilter::parse(&format!("name=\"{quoted}\""), GUEST).unwrap();
        prop_assert!(filter.fits(&guest(&name, "qemu", 0)));
    }
}
