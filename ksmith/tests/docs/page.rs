//! A page of the documentation, and its parts.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Pages below docs/ for developers, and records of what was measured. The threat model is among them: it is read in
/// audits, and its tables name a test for each line.
const NOT_FOR_USERS: [&str; 3] = ["docs/internals/", "docs/measurements/", "docs/explanation/threat-model.md"];

/// Pages that a command writes.
pub const GENERATED: [&str; 9] = [
    "docs/reference/figures.md",
    "docs/reference/history.md",
    "docs/reference/doctor.md",
    "docs/reference/exit-codes.md",
    "docs/reference/json.md",
    "docs/reference/messages.md",
    "docs/reference/commands.md",
    "docs/reference/configuration.md",
    "docs/SUMMARY.md",
];

/// A page of Markdown by its path from the workspace.
pub struct DocPage {
    pub path: String,
    pub text: String,
}

/// A block of code, with the word behind its fence; `None` is a block that is indented instead.
pub struct DocBlock {
    pub info: Option<String>,
    pub code: String,
    pub line: usize,
    /// The byte offset of the block's end in the text.
    pub end: usize,
    /// The byte offset of the block's begin in the text.
    pub start: usize,
}

pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Every tracked page of Markdown that is ours.
pub fn all() -> Vec<DocPage> {
    let listed = Command::new("git").args(["ls-files", "*.md"]).current_dir(workspace()).output().unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    let read = |path: &str| {
        Some(DocPage { path: path.to_owned(), text: fs::read_to_string(workspace().join(path)).ok()? })
    };
    let pages: Vec<DocPage> = names.lines().filter_map(read).collect();
    assert!(pages.len() > 30, "the pages were not found");
    pages
}

/// The pages that are written by hand for users: those below docs/ and README.md.
pub fn for_users() -> Vec<DocPage> {
    let mut pages = all();
    pages.retain(|page| page.is_for_users() && !GENERATED.contains(&page.path.as_str()));
    pages
}

impl DocPage {
    pub fn is_for_users(&self) -> bool {
        let is_below_docs =
            self.path.starts_with("docs/") && !NOT_FOR_USERS.iter().any(|start| self.path.starts_with(start));
        is_below_docs || self.path == "README.md"
    }

    fn events(&self) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
        Parser::new_ext(&self.text, Options::ENABLE_TABLES).into_offset_iter()
    }

    fn line_of(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }

    pub fn blocks(&self) -> Vec<DocBlock> {
        let mut blocks = Vec::new();
        let mut open: Option<DocBlock> = None;
        for (event, range) in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => Some(info.to_string()),
                        CodeBlockKind::Indented => None,
                    };
                    let line = self.line_of(range.start);
                    open = Some(DocBlock { info, code: String::new(), line, start: range.start, end: range.end });
                }
                Event::Text(text) => open.iter_mut().for_each(|block| block.code.push_str(&text)),
                Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
                _ => {}
            }
        }
        blocks
    }

    /// Each piece of code within a line, with its line.
    pub fn inline_code(&self) -> Vec<(String, usize)> {
        let code = self.events().filter_map(|(event, range)| match event {
            Event::Code(code) => Some((code.to_string(), self.line_of(range.start))),
            _ => None,
        });
        code.collect()
    }

    /// The target of each link and picture, with its line.
    pub fn links(&self) -> Vec<(String, usize)> {
        let links = self.events().filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some((dest_url.to_string(), self.line_of(range.start)))
            }
            _ => None,
        });
        links.collect()
    }

    /// Returns the valid fragments of links (behind `#`): the headings in the form of GitHub and mdBook.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        let mut heading: Option<String> = None;
        for (event, _) in self.events() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    heading.iter_mut().for_each(|heading| heading.push_str(&text))
                }
                Event::End(TagEnd::Heading(_)) => anchors.extend(heading.take().map(|heading| anchor(&heading))),
                _ => {}
            }
        }
        anchors
    }

    /// The file that a relative link names.
    pub fn beside(&self, link: &str) -> PathBuf {
        workspace().join(&self.path).parent().unwrap().join(link)
    }

    /// The words outside of blocks of code: each has a letter or a digit.
    pub fn words(&self) -> usize {
        let mut is_code = false;
        let mut words = 0;
        for (event, _) in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(_)) => is_code = true,
                Event::End(TagEnd::CodeBlock) => is_code = false,
                Event::Text(text) | Event::Code(text) if !is_code => {
                    words += text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
                }
                _ => {}
            }
        }
        words
    }
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn the_parts_of_a_page_are_found() {
    let text =
        "# A `page` of, say, parts\n\n[a](b.md#c) and `ksmith status`\n\n```sh,run\nksmith\n```\n\n    indented\n";
    let page = DocPage { path: "docs/a.md".to_owned(), text: text.to_owned() };
    assert_eq!(page.anchors(), BTreeSet::from(["a-page-of-say-parts".to_owned()]));
    assert_eq!(page.links(), [("b.md#c".to_owned(), 3)]);
    assert_eq!(page.inline_code()[1], ("ksmith status".to_owned(), 3));
    let blocks = page.blocks();
    assert_eq!(blocks.len(), 2);
    assert_eq!(
        (blocks[0].info.as_deref(), blocks[0].code.as_str(), blocks[0].line),
        (Some("sh,run"), "ksmith\n", 5)
    );
    assert_eq!(blocks[1].info, None);
    assert_eq!(page.words(), 9);
}
