//! The page of what ksmith writes to its log, from the macros that write it.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{ItemMod, Macro};

use crate::doctor_page::first_literal;
use crate::generated::{cell, check, sources};

const PAGE: &str = "docs/reference/messages.md";

const HEAD: &str = "# Messages of the log\n\n\
    The daemon and the server log to standard error; under systemd that is the journal: `journalctl -u ksmith`. Words in braces stand for what was met.\n\
    Messages that only pass on a sentence from elsewhere are left out.\n\n\
    This page is generated: `KSMITH_WRITE=1 cargo test -p ksmith --test docs`.\n";

/// Returns true if a message has words of its own besides its placeholders.
fn has_words(text: &str) -> bool {
    let mut depth = 0_usize;
    text.chars().any(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && c.is_alphabetic()
    })
}

#[derive(Default)]
struct LogMessages {
    of_level: BTreeMap<String, Vec<String>>,
}

impl<'a> Visit<'a> for LogMessages {
    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        // What a test logs stands in no log.
        if !module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        let level = call.path.segments.last().map(|part| part.ident.to_string()).unwrap_or_default();
        if ["error", "warn", "info", "debug"].contains(&level.as_str())
            && let Some(text) = first_literal(call.tokens.clone()).filter(|text| has_words(text))
        {
            self.of_level.entry(level).or_default().push(text);
        }
        visit::visit_macro(self, call);
    }
}

#[test]
fn a_text_of_braces_alone_has_no_words() {
    assert!(!has_words("{error}: {why}"));
    assert!(has_words("{error}; trying on"));
}

#[test]
fn the_page_of_log_messages_is_fresh() {
    let mut messages = LogMessages::default();
    for (_, file) in
        sources(&["core/src", "host/src", "record/src", "serve/src", "service/src", "sketch/src", "ksmith/src"])
    {
        messages.visit_file(&file);
    }
    let mut page = HEAD.to_owned();
    for (level, meaning) in [
        ("error", "Something failed, and an operator should look."),
        ("warn", "Something is not as it should be, and ksmith goes on."),
        ("info", "What ksmith does."),
        ("debug", "Shown with `-v`."),
    ] {
        let mut texts = messages.of_level.remove(level).unwrap_or_default();
        texts.sort();
        texts.dedup();
        assert!(!texts.is_empty(), "{level}");
        page.push_str(&format!("\n## {level}\n\n{meaning}\n\n"));
        texts.iter().for_each(|text| page.push_str(&format!("* {}\n", cell(text).replace('*', "\\*"))));
    }
    check(PAGE, &page);
}
