//! Holds the names and the comments of the workspace to figures: a name carries its domain, and a comment begins as the field's do.
//!
//! The figures were taken from four well-kept code bases: 4 to 19 % of their types share a name, 12 to 35 % are of one word, and under
//! 1 % of their comments begin with a question word.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use syn::visit::{self, Visit};

/// The largest part of types that share their name with another, in thousandths.
const MOST_SHARED: usize = 120;

/// The largest part of types with a name of one word, in thousandths.
const MOST_OF_ONE_WORD: usize = 350;

/// Names of functions that say too little alone, and the most functions of these names.
const BARE_VERBS: [&str; 6] = ["of", "take", "look", "note", "ask", "tell"];
const MOST_BARE_VERBS: usize = 40;

/// First words of a doc comment that ask instead of saying, and the largest part of comments that begin so, in thousandths. The rest is
/// help that the command line prints.
const QUESTIONS: [&str; 6] = ["What", "Whether", "How", "Why", "Where", "Of the"];
const MOST_QUESTIONS: usize = 10;

/// Words of a long sentence, and the largest part of sentences in comments that are longer, in thousandths.
const LONG_SENTENCE: usize = 25;
const MOST_LONG_SENTENCES: usize = 10;

/// A doc comment with the place where it stands.
struct DocComment {
    place: String,
    lines: Vec<String>,
}

/// Names and comments of the workspace.
#[derive(Default)]
struct SourceNames {
    file: String,
    /// Files in which a type of this name is defined.
    types: BTreeMap<String, Vec<String>>,
    bare_verbs: Vec<String>,
    comments: Vec<DocComment>,
}

impl SourceNames {
    fn of_workspace() -> Self {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let output = Command::new("git").args(["ls-files", "-z", "*.rs"]).current_dir(root).output().unwrap();
        assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
        let mut names = Self::default();
        for file in String::from_utf8(output.stdout).unwrap().split_terminator('\0') {
            // A file deleted but not committed.
            let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
            names.read(file, &text);
        }
        names
    }

    fn read(&mut self, file: &str, text: &str) {
        file.clone_into(&mut self.file);
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        self.visit_file(&parsed);
        self.comments.append(&mut comments_of(file, text));
    }

    fn add_type(&mut self, name: &syn::Ident) {
        self.types.entry(name.to_string()).or_default().push(self.file.clone());
    }

    fn add_function(&mut self, name: &syn::Ident) {
        if BARE_VERBS.iter().any(|verb| name == verb) {
            self.bare_verbs.push(format!("{}: {name}", self.file));
        }
    }

    fn count(&self) -> usize {
        self.types.values().map(Vec::len).sum()
    }
}

impl<'ast> Visit<'ast> for SourceNames {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add_type(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add_type(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add_type(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.add_type(&item.ident);
        visit::visit_item_union(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.add_function(&signature.ident);
        visit::visit_signature(self, signature);
    }
}

/// The doc comments of a file: lines that follow each other.
fn comments_of(file: &str, text: &str) -> Vec<DocComment> {
    let mut comments: Vec<DocComment> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        let comment = line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!"));
        let Some(comment) = comment.map(str::trim) else {
            is_inside = false;
            continue;
        };
        match comments.last_mut().filter(|_| is_inside) {
            Some(last) => last.lines.push(comment.to_owned()),
            None => {
                comments.push(DocComment { place: format!("{file}: {comment}"), lines: vec![comment.to_owned()] })
            }
        }
        is_inside = true;
    }
    comments
}

/// The sentences of a comment. Lists, code and tables are none.
fn sentences(lines: &[String]) -> Vec<String> {
    let mut text = String::new();
    let mut is_code = false;
    for line in lines {
        is_code ^= line.starts_with("```");
        let is_prose = !is_code && !line.starts_with(['`', '*', '#', '|']) && !line.is_empty();
        text.push_str(if is_prose { line } else { "." });
        text.push(' ');
    }
    text.split_inclusive(['.', ';', ':', '?']).fold(vec![String::new()], |mut all: Vec<String>, piece| {
        // A stop inside a word or a path ends nothing.
        match all.last_mut() {
            Some(last) if !piece.starts_with(' ') => last.push_str(piece),
            _ => all.push(piece.to_owned()),
        }
        all
    })
}

fn begins_with_a_question(comment: &DocComment) -> bool {
    let first = &comment.lines[0];
    QUESTIONS
        .iter()
        .any(|word| first.strip_prefix(word).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)))
}

/// The number of words that a name is written of, by its capitals.
fn words_of_a_name(name: &str) -> usize {
    let is_capital =
        |at: usize, c: char| c.is_uppercase() && !name[..at].chars().next_back().is_some_and(char::is_uppercase);
    name.char_indices().filter(|(at, c)| is_capital(*at, *c)).count().max(1)
}

/// Fails if more than `most` thousandths of `all` are among `found`.
fn assert_at_most(found: &[String], all: usize, most: usize, meaning: &str) {
    let least_above = all * most / 1000 + 1;
    assert!(
        found.len() < least_above,
        "{}\n{} of {all} {meaning}, at most {} may",
        found.join("\n"),
        found.len(),
        least_above - 1
    );
}

#[test]
fn few_types_share_their_name() {
    let names = SourceNames::of_workspace();
    let shared = names.types.iter().filter(|(_, files)| files.len() > 1);
    let shared: Vec<String> =
        shared.flat_map(|(name, files)| files.iter().map(move |file| format!("{name}: {file}"))).collect();
    assert_at_most(&shared, names.count(), MOST_SHARED, "types share their name");
}

#[test]
fn few_types_are_named_by_one_word() {
    let names = SourceNames::of_workspace();
    let short = names.types.iter().filter(|(name, _)| words_of_a_name(name) == 1);
    let short: Vec<String> =
        short.flat_map(|(name, files)| files.iter().map(move |file| format!("{name}: {file}"))).collect();
    assert_at_most(&short, names.count(), MOST_OF_ONE_WORD, "types are named by one word");
}

#[test]
fn few_functions_are_named_by_a_bare_verb() {
    let found = SourceNames::of_workspace().bare_verbs;
    assert!(
        found.len() <= MOST_BARE_VERBS,
        "{}\n{} functions, at most {MOST_BARE_VERBS} may",
        found.join("\n"),
        found.len()
    );
}

#[test]
fn comments_begin_with_a_statement() {
    let names = SourceNames::of_workspace();
    let found = names.comments.iter().filter(|comment| begins_with_a_question(comment));
    let found: Vec<String> = found.map(|comment| comment.place.clone()).collect();
    assert_at_most(&found, names.comments.len(), MOST_QUESTIONS, "comments begin with a question");
}

#[test]
fn sentences_of_comments_are_short() {
    let names = SourceNames::of_workspace();
    let all: Vec<String> = names.comments.iter().flat_map(|comment| sentences(&comment.lines)).collect();
    let long = all.iter().filter(|sentence| sentence.split_whitespace().count() > LONG_SENTENCE);
    let long: Vec<String> = long.map(|sentence| sentence.trim().to_owned()).collect();
    assert_at_most(&long, all.len(), MOST_LONG_SENTENCES, "sentences are long");
}

#[test]
fn names_and_comments_are_read_as_they_are_meant() {
    let mut names = SourceNames::default();
    let text = "/// What is held.\nstruct Held {\n/// Whether it is.\n is_held: bool }\nmod inner { enum Held {} }\n\
                trait Take { fn take(&self); }\n/// Whatever it is, it ends here.\nfn of() {}";
    names.read("one.rs", text);
    assert_eq!(names.types["Held"], ["one.rs", "one.rs"]);
    assert_eq!((names.count(), names.bare_verbs.len(), names.comments.len()), (3, 2, 3));
    assert_eq!(names.comments.iter().filter(|comment| begins_with_a_question(comment)).count(), 2);
    assert_eq!(["Held", "KSM", "KsmdPace", "PSSReader"].map(words_of_a_name), [1, 1, 2, 1]);
    let sentences = sentences(&["Reads `a.b` in".to_owned(), "two lines. Then".to_owned(), "ends.".to_owned()]);
    let sentences: Vec<&str> =
        sentences.iter().map(|sentence| sentence.trim()).filter(|text| !text.is_empty()).collect();
    assert_eq!(sentences, ["Reads `a.b` in two lines.", "Then ends."]);
}
