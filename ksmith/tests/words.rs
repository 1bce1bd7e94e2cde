//! Holds every tracked text to plain words, and the documentation of every public item to sentences.
//!
//! `words_allowed.txt` lists the exact phrases that may stay: names of others that hold such a word.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use syn::visit::{self, Visit};

/// Words for which the field has a term of its own. A hyphen divides each, so that this file passes its own test.
const PRIVATE: &str = "wit-ness, wit-nesses, err-and, err-ands, squ-eal, squ-eals, squ-ealed, squ-ealing, war-den, \
     war-dens, ten-ant, ten-ants, pay-er, pay-ers, new-comer, new-comers, resi-due, resi-dues, fam-iliar, fai-th, \
     gre-et, gre-ets, gre-eted, gre-eting, se-at, se-ats, se-ated, bo-oks, co-me by, co-mes by, ca-me by, co-ming by, \
     se-t out, se-ts out, se-tting out, i-n vain, a-t rest, th-e house";

/// Tracked files with words that are not ours, or are history.
const EXEMPT: [&str; 10] = [
    "CHANGELOG.md",
    "LICENSE",
    "testdata/",
    "Cargo.lock",
    "core/proptest-regressions/",
    "serve/assets/uPlot.",
    "serve/tests/page/package-lock.json",
    "packaging/copyright",
    "packaging/grafana/package-lock.json",
    "ksmith/tests/words_allowed.txt",
];

/// A word in lower case and the line that it stands in.
struct WordToken {
    word: String,
    line: usize,
}

/// The words of a text. Identifiers are divided at underscores and at capitals.
fn tokens(text: &str) -> Vec<WordToken> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut word = String::new();
        let mut previous = ' ';
        for c in line.chars().chain([' ']) {
            let divides = c.is_uppercase() && previous.is_lowercase();
            if (divides || !c.is_alphanumeric()) && !word.is_empty() {
                found.push(WordToken { word: std::mem::take(&mut word), line: index + 1 });
            }
            if c.is_alphanumeric() {
                word.extend(c.to_lowercase());
            }
            previous = c;
        }
    }
    found
}

fn phrase(text: &str) -> Vec<String> {
    tokens(text).into_iter().map(|token| token.word).collect()
}

/// The text without the hyphens that divide its words.
fn joined(text: &str) -> String {
    text.replace('-', "")
}

fn starts_with(tokens: &[WordToken], phrase: &[String]) -> bool {
    tokens.len() >= phrase.len() && tokens.iter().zip(phrase).all(|(token, word)| token.word == *word)
}

/// Each refused phrase of a text with its line, and the allowed phrases that were met.
fn refused(
    text: &str,
    refused: &[Vec<String>],
    allowed: &[Vec<String>],
) -> (Vec<(usize, String)>, BTreeSet<usize>) {
    let tokens = tokens(text);
    let (mut exempt, mut met) = (vec![false; tokens.len()], BTreeSet::new());
    for at in 0..tokens.len() {
        for (index, phrase) in allowed.iter().enumerate().filter(|(_, phrase)| starts_with(&tokens[at..], phrase)) {
            exempt[at..at + phrase.len()].fill(true);
            met.insert(index);
        }
    }
    let is_refused = |at: usize| refused.iter().find(|phrase| !exempt[at] && starts_with(&tokens[at..], phrase));
    let found = (0..tokens.len()).filter_map(|at| Some((tokens[at].line, is_refused(at)?.join(" ")))).collect();
    (found, met)
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn tracked() -> Vec<String> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(workspace()).output().unwrap();
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
}

/// The text of a tracked file, or nothing for a drawing, a binary or a file deleted but not committed.
fn text_of(file: &str) -> Option<String> {
    if file.ends_with(".svg") { None } else { fs::read_to_string(workspace().join(file)).ok() }
}

#[test]
fn every_tracked_text_is_in_plain_words() {
    let words: Vec<_> = joined(PRIVATE).split(',').map(phrase).collect();
    let allowed = fs::read_to_string(workspace().join("ksmith/tests/words_allowed.txt")).unwrap();
    let allowed: Vec<&str> = allowed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let phrases: Vec<_> = allowed.iter().map(|line| phrase(line)).collect();

    let (mut report, mut total, mut met) = (String::new(), 0, BTreeSet::new());
    let mut totals: BTreeMap<String, usize> = BTreeMap::new();
    let files = tracked()
        .into_iter()
        .filter(|file| !EXEMPT.iter().any(|exempt| file.starts_with(exempt)) || file == "testdata/README.md");
    for file in files {
        let Some(text) = text_of(&file) else { continue };
        let (found, here) = refused(&text, &words, &phrases);
        met.extend(here);
        total += found.len();
        if !found.is_empty() {
            writeln!(report, "{file}: {}", found.len()).unwrap();
        }
        for (line, word) in found {
            writeln!(report, "    {file}:{line}: {word}").unwrap();
            *totals.entry(word).or_default() += 1;
        }
    }
    let unused = allowed.iter().enumerate().filter(|(index, _)| !met.contains(index)).map(|(_, line)| *line);
    let unused: Vec<&str> = unused.collect();
    assert!(total == 0, "{report}{total} words to replace: {totals:?}");
    assert!(unused.is_empty(), "phrases of words_allowed.txt that stand nowhere: {unused:?}");
}

#[test]
fn words_are_found_in_sentences_identifiers_and_across_lines() {
    let words = ["err-and", "co-mes by"].map(|word| phrase(&joined(word)));
    let lines = |text: &str, allowed: &[Vec<String>]| {
        refused(&joined(text), &words, allowed).0.into_iter().map(|(line, _)| line).collect::<Vec<_>>()
    };
    assert_eq!(lines("/// Err-and.\nfn err-and_is_done() {}\nstruct Err-andList;", &[]), [1, 2, 3]);
    assert_eq!(lines("// ksmd co-mes\n    // by here", &[]), [1]);
    assert_eq!(lines("user `err-and` and err-and", &[phrase(&joined("user err-and"))]), [1]);
    assert_eq!(lines("err-andless", &[]), [0; 0]);
}

/// The documentation of each public item of a file that is not a sentence of its own.
struct DocChecker<'a> {
    file: &'a str,
    checked: usize,
    found: Vec<String>,
}

/// The first sentence of documentation, if its first paragraph holds a full one.
fn first_sentence(doc: &str) -> Option<&str> {
    let paragraph = doc.trim_start().split("\n\n").next().unwrap_or_default().trim_end();
    let inside = paragraph.match_indices('.').map(|(at, _)| at + 1);
    let mut ends = inside.filter(|at| paragraph[*at..].chars().next().is_none_or(char::is_whitespace));
    ends.next().map(|end| &paragraph[..end])
}

fn fault(doc: &str) -> Option<&'static str> {
    let Some(sentence) = first_sentence(doc) else { return Some("the first paragraph holds no full stop") };
    let first = sentence.chars().next().unwrap_or_default();
    let is_name = ["[`", "ksmd", "ksmith"].iter().any(|name| sentence.starts_with(name));
    if !(first.is_uppercase() || first == '`' || is_name || first.is_ascii_digit()) {
        return Some("begins with a small letter");
    }
    (sentence.split_whitespace().count() < 2).then_some("a single word")
}

impl DocChecker<'_> {
    fn check(&mut self, name: &dyn ToString, attributes: &[syn::Attribute]) {
        let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        });
        let lines: Vec<String> = lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).to_owned()).collect();
        if lines.is_empty() {
            return;
        }
        self.checked += 1;
        if let Some(fault) = fault(&lines.join("\n")) {
            self.found.push(format!("{}: {}: {fault}: {}", self.file, name.to_string(), lines[0]));
        }
    }
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for DocChecker<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            if is_public(&item.vis) {
                self.check(&item.ident, &item.attrs);
            }
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (visibility, name, attributes): (_, &dyn ToString, _) = match item {
            syn::Item::Const(item) => (&item.vis, &item.ident, &item.attrs),
            syn::Item::Enum(item) => (&item.vis, &item.ident, &item.attrs),
            syn::Item::Fn(item) => (&item.vis, &item.sig.ident, &item.attrs),
            syn::Item::Static(item) => (&item.vis, &item.ident, &item.attrs),
            syn::Item::Struct(item) => (&item.vis, &item.ident, &item.attrs),
            syn::Item::Trait(item) => (&item.vis, &item.ident, &item.attrs),
            syn::Item::Type(item) => (&item.vis, &item.ident, &item.attrs),
            _ => return visit::visit_item(self, item),
        };
        if is_public(visibility) {
            self.check(name, attributes);
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_public(&item.vis) {
            self.check(&item.sig.ident, &item.attrs);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.check(&item.sig.ident, &item.attrs);
    }

    fn visit_field(&mut self, item: &'ast syn::Field) {
        if let Some(name) = item.ident.as_ref().filter(|_| is_public(&item.vis)) {
            self.check(name, &item.attrs);
        }
    }

    fn visit_variant(&mut self, item: &'ast syn::Variant) {
        self.check(&item.ident, &item.attrs);
    }
}

#[test]
fn the_documentation_of_every_public_item_begins_with_a_sentence() {
    let (mut found, mut checked) = (Vec::new(), 0);
    for file in tracked().iter().filter(|file| file.ends_with(".rs") && file.contains("src/")) {
        let Some(text) = text_of(file) else { continue };
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut docs = DocChecker { file, checked: 0, found: Vec::new() };
        docs.check(&"(file)", &parsed.attrs);
        docs.visit_file(&parsed);
        checked += docs.checked;
        found.append(&mut docs.found);
    }
    assert!(found.is_empty(), "{}\n{} of {checked} are no sentence", found.join("\n"), found.len());
}

#[test]
fn a_sentence_that_stands_alone_is_told_from_a_fragment() {
    assert_eq!(fault("Reads `/proc/PID/stat` whole. Then more."), None);
    assert_eq!(fault("Bytes that one page\nholds.\n\nMore."), None);
    assert_eq!(fault("1 where KSM runs."), None);
    assert!(fault("Bytes that one page holds").is_some());
    assert!(fault("bytes of a page.").is_some());
    assert_eq!(fault("ksmd is paused."), None);
    assert!(fault("Same.").is_some());
    assert!(fault("As above\n\nA sentence in a later paragraph.").is_some());
}
