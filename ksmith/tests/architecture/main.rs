//! Holds every module of the workspace to an allow-list, and every file to having no circle of imports.
//!
//! Arrows between crates are the compiler's business (`Cargo.toml`). Inside a crate these tests read the sources, and
//! compare what each module names with `modules.toml`. With `KSMITH_WRITE=1` they write that list, and the picture of
//! modules in `docs/internals/architecture.md`, instead of comparing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod circles;
mod picture;
mod tree;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tree::SourceTree;

/// The modules of the same crate that each module names, by module.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// The crates, the lowest first.
const CRATES: [&str; 8] = ["core", "record", "host", "sketch", "service", "lab", "serve", "ksmith"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn tree_of(name: &str) -> SourceTree {
    SourceTree::read(&workspace().join(name).join("src"))
}

/// Returns which modules right below the crate's root name each other. Items of the root itself are `lib`.
fn uses(tree: &SourceTree) -> Uses {
    let room = |module: &Vec<String>| module.first().cloned().unwrap_or_else(|| "lib".to_owned());
    let mut uses = Uses::new();
    for module in tree.files.keys() {
        let named = tree.named_by(module).iter().map(room).collect::<BTreeSet<_>>();
        uses.entry(room(module)).or_default().extend(named.into_iter().filter(|other| *other != room(module)));
    }
    // The root declares and re-exports; it depends on nothing.
    uses.insert("lib".to_owned(), BTreeSet::new());
    uses
}

fn wants_writing() -> bool {
    std::env::var_os("KSMITH_WRITE").is_some()
}

/// The form of `modules.toml`.
fn listed(found: &BTreeMap<&str, Uses>) -> String {
    let mut text = "# Which modules of the same crate each module may name, production code only. Compared with the sources by\n\
                    # `cargo test -p ksmith --test architecture`; KSMITH_WRITE=1 before that command writes it.\n"
        .to_owned();
    for name in CRATES {
        text.push_str(&format!("\n[{name}]\n"));
        for (module, named) in &found[name] {
            text.push_str(&format!("{module} = {:?}\n", named.iter().collect::<Vec<_>>()));
        }
    }
    text
}

#[test]
fn every_module_names_just_those_that_it_may() {
    let found: BTreeMap<&str, Uses> = CRATES.into_iter().map(|name| (name, uses(&tree_of(name)))).collect();
    let path = workspace().join("ksmith/tests/architecture/modules.toml");
    if wants_writing() {
        fs::write(&path, listed(&found)).unwrap();
    }
    let allowed: BTreeMap<String, Uses> = toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for name in CRATES {
        let (found, allowed) = (&found[name], &allowed[name]);
        let difference: Vec<String> = found
            .keys()
            .chain(allowed.keys())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .filter(|module| found.get(*module) != allowed.get(*module))
            .map(|module| {
                format!("{name}/{module}: names {:?}, may name {:?}", found.get(module), allowed.get(module))
            })
            .collect();
        assert_eq!(difference, Vec::<String>::new());
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let all: Vec<String> = CRATES
        .into_iter()
        .flat_map(|name| circles::circles(&tree_of(name)).into_iter().map(move |circle| (name, circle)))
        .map(|(name, circle)| {
            let members = circle.iter().map(|module| module.join("::")).collect::<Vec<_>>();
            format!("{name}: {}", members.join(" <-> "))
        })
        .collect();
    assert_eq!(all, Vec::<String>::new());
}

#[test]
fn the_picture_of_modules_is_that_of_the_sources() {
    let drawn: String = CRATES
        .into_iter()
        .map(|name| {
            let tree = tree_of(name);
            picture::draw_crate(name, &tree, &uses(&tree))
        })
        .collect();
    let path = workspace().join("docs/internals/architecture.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) =
        page.split_once(picture::BEGIN).expect("docs/internals/architecture.md has a place for modules");
    let (old, after) =
        rest.split_once(picture::END).expect("docs/internals/architecture.md says where modules end");
    let new = format!("{drawn}\n");
    if wants_writing() {
        fs::write(&path, format!("{before}{}{new}{}{after}", picture::BEGIN, picture::END)).unwrap();
    } else {
        assert_eq!(old, new, "KSMITH_WRITE=1 cargo test -p ksmith --test architecture writes the picture anew");
    }
}

#[test]
fn every_module_stands_above_those_that_it_names() {
    for name in CRATES {
        let uses = uses(&tree_of(name));
        let mut placed = BTreeSet::new();
        while let Some(module) =
            uses.keys().find(|module| !placed.contains(*module) && uses[*module].is_subset(&placed))
        {
            placed.insert(module.clone());
        }
        let left: Vec<&String> = uses.keys().filter(|module| !placed.contains(*module)).collect();
        assert_eq!(
            left,
            Vec::<&String>::new(),
            "crate {name}: these modules name each other, or name such modules"
        );
    }
}

/// A crate made up of these files.
fn made_up(files: &[(&str, &str)]) -> (tempfile::TempDir, SourceTree) {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let tree = SourceTree::read(directory.path());
    (directory, tree)
}

#[test]
fn uses_are_read_in_every_form_and_through_re_exports() {
    for (source, expected) in [
        ("use crate::observe::Observer;", &["observe"][..]),
        ("use crate::{observe::Observer, act::{Control, Lock}};", &["act", "observe"]),
        ("fn f() { crate::observe::Observer::new(); }", &["observe"]),
        ("fn f(a: &super::act::Control) {}", &["act"]),
        ("pub(crate) use crate::act::Control as C;", &["act"]),
        ("use crate::Handy;", &["act"]),
        ("fn f() { println!(\"{} {}\", 1, crate::act::name()); }", &["act"]),
        ("fn f() { warn!(at = super::observe::now(), \"text\"); }", &["observe"]),
        ("/// See [`crate::act::Control`].\nuse crate::observe::Observer;", &["observe"]),
        ("use mycrate::act::Control; use ksmith_core::act;", &[]),
        ("#[cfg(test)]\nmod tests { use crate::act::Control; }", &[]),
    ] {
        let root = "mod observe; mod act; mod room; pub use act::Control as Handy;";
        let (_directory, tree) =
            made_up(&[("lib.rs", root), ("observe.rs", ""), ("act/mod.rs", ""), ("room.rs", source)]);
        assert_eq!(uses(&tree)["room"].iter().collect::<Vec<_>>(), expected, "{source}");
    }
}

#[test]
fn a_planted_circle_is_found_and_a_parent_with_its_children_is_none() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a/mod.rs", "mod inner; use inner::Inner; pub struct A;"),
        ("a/inner.rs", "use super::A; pub struct Inner;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::a::A; pub struct C;"),
    ];
    assert_eq!(circles::circles(&made_up(&files).1), Vec::<Vec<Vec<String>>>::new());
    let mut closed = files;
    closed[1].1 = "mod inner; use inner::Inner; use crate::b::B; pub struct A;";
    let names = ["a", "b", "c"].map(|name| vec![name.to_owned()]);
    assert_eq!(circles::circles(&made_up(&closed).1), [names.to_vec()]);
}
