//! The style of messages, as far as it can be checked. A message is one sentence without a full stop, and begins in
//! lower case unless a name begins it. It says what can't be done in plain words, and has commands in backquotes.

use clap::CommandFactory;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprMethodCall, Lit, Macro};

use crate::doctor_page::first_literal;
use crate::generated::sources;

/// Names that begin a message with a capital letter.
const NAMES: [&str; 4] = ["Linux", "MemoryKSM=", "Proxmox", "QEMU's"];

/// Words of other programs' messages, with what ksmith says.
const WORDS: [(&str, &str); 9] = [
    ("cannot", "can't"),
    ("can not", "can't"),
    ("failed to ", "can't"),
    ("unable to", "can't"),
    ("please", "nothing"),
    ("invalid", "what it takes instead"),
    ("illegal", "what it takes instead"),
    ("oops", "nothing"),
    ("error:", "nothing"),
];

#[derive(Default)]
struct MessageTexts(Vec<String>);

/// The text that an argument is, or is made from.
fn text_of(argument: &Expr) -> Option<String> {
    match argument {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        Expr::Macro(call) => first_literal(call.mac.tokens.clone()),
        Expr::Closure(closure) => text_of(&closure.body),
        Expr::Reference(inner) => text_of(&inner.expr),
        _ => None,
    }
}

impl<'a> Visit<'a> for MessageTexts {
    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if attribute.path().is_ident("error")
            && let Ok(list) = attribute.meta.require_list()
        {
            self.0.extend(first_literal(list.tokens.clone()));
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        let name = call.path.segments.last().map(|part| part.ident.to_string()).unwrap_or_default();
        if ["anyhow", "bail", "error", "warn", "info"].contains(&name.as_str()) {
            self.0.extend(first_literal(call.tokens.clone()));
        }
        visit::visit_macro(self, call);
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        if let Expr::Path(function) = call.func.as_ref()
            && function.path.segments.iter().rev().nth(1).is_some_and(|part| part.ident == "Failure")
        {
            self.0.extend(call.args.iter().filter_map(text_of));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        if ["context", "with_context"].contains(&call.method.to_string().as_str()) {
            self.0.extend(call.args.iter().filter_map(text_of));
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// Returns the faults in the style of a message.
fn faults(text: &str, commands: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let first = text.split([' ', ':', ',']).next().unwrap_or_default();
    let is_name = NAMES.contains(&first) || first.chars().filter(|c| c.is_uppercase()).count() > 1;
    if first.starts_with(char::is_uppercase) && !is_name {
        found.push("it begins with a capital letter".to_owned());
    }
    if text.ends_with(['.', '!', ' ']) || text.starts_with(' ') {
        found.push("it ends with a full stop or the like, or has a space at its side".to_owned());
    }
    if text.contains('\n') {
        found.push("it has several lines".to_owned());
    }
    let lower = text.to_lowercase();
    found.extend(
        WORDS
            .iter()
            .filter(|(word, _)| lower.contains(word))
            .map(|(word, instead)| format!("it says {word:?}: say {instead}")),
    );
    for command in commands {
        let call = format!("ksmith {command}");
        let bare = text.match_indices(&call).find(|(at, _)| {
            let ends = text[at + call.len()..].starts_with(|c: char| !c.is_alphanumeric()) || text.ends_with(&call);
            ends && text[..*at].matches('`').count().is_multiple_of(2)
        });
        if bare.is_some() {
            found.push(format!("`{call}` is not in backquotes"));
        }
    }
    found
}

#[test]
fn bad_style_is_found() {
    let commands = ["status".to_owned()];
    for bad in
        ["Can't do it", "it is so.", "cannot do it", "see ksmith status", "two\nlines", "failed to open {path}"]
    {
        assert_eq!(faults(bad, &commands).len(), 1, "{bad}");
    }
    for good in [
        "{path}: {why}",
        "QEMU refuses",
        "see `ksmith status`",
        "`ksmith set` and `sudo ksmith status`",
        "KSM is on",
    ] {
        assert_eq!(faults(good, &commands), [""; 0], "{good}");
    }
}

#[test]
fn all_messages_are_of_one_style() {
    let commands: Vec<String> =
        ksmith::cli::Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    let crates =
        ["core/src", "host/src", "record/src", "sketch/src", "serve/src", "service/src", "lab/src", "ksmith/src"];
    for (path, file) in sources(&crates) {
        let mut messages = MessageTexts::default();
        messages.visit_file(&file);
        count += messages.0.len();
        for text in messages.0 {
            wrong.extend(faults(&text, &commands).into_iter().map(|fault| format!("{path}: {text:?}: {fault}")));
        }
    }
    assert!(count > 200, "only {count} messages were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
