//! The page of `ksmith doctor`'s codes, from the calls that make its findings.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprTuple, Lit};

use crate::generated::{cell, check, sources};

const PAGE: &str = "docs/reference/doctor.md";

const HEAD: &str = "# Codes of `ksmith doctor`\n\n\
    `ksmith doctor` without a guest examines the host. `--json` has the code of each finding as `code`. Words in braces stand for figures.\n\n\
    This page is generated: `KSMITH_WRITE=1 cargo test -p ksmith --test docs`. [Troubleshooting](../how-to/troubleshooting.md) goes by symptom,\n\
    and `ksmith doctor GUEST` has [causes of its own](../internals/doctor.md#causes).\n\n\
    | code | severity | says | remedy |\n|---|---|---|---|\n";

#[derive(Default)]
struct FindingCodes {
    rows: BTreeMap<String, [String; 3]>,
}

/// The text of an expression that is a string, a `format!` or a conversion of these.
fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        Expr::Macro(call) if call.mac.path.is_ident("format") => first_literal(call.mac.tokens.clone()),
        Expr::MethodCall(call) => text(&call.receiver),
        Expr::Reference(reference) => text(&reference.expr),
        Expr::Paren(inner) => text(&inner.expr),
        _ => None,
    }
}

/// The first string among the tokens of a macro.
pub fn first_literal(tokens: impl IntoIterator<Item = impl ToString>) -> Option<String> {
    let mut literals = tokens.into_iter().map(|token| token.to_string()).filter(|token| token.starts_with('"'));
    syn::parse_str::<syn::LitStr>(&literals.next()?).ok().map(|literal| literal.value())
}

/// Returns true if a text has the form of a code.
fn is_code(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

fn severity(expression: &Expr) -> String {
    match expression {
        Expr::Path(path) => path.path.segments.last().map(|part| part.ident.to_string().to_lowercase()),
        _ => None,
    }
    .unwrap_or_else(|| "depends".to_owned())
}

impl FindingCodes {
    fn add(&mut self, code: String, severity: String, what: &Expr, remedy: &Expr) {
        let said = |expression| text(expression).unwrap_or_else(|| "(depends on what is found)".to_owned());
        self.rows.insert(code, [severity, said(what), said(remedy)]);
    }
}

impl<'a> Visit<'a> for FindingCodes {
    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        let arguments: Vec<&Expr> = call.args.iter().collect();
        let is_finding = matches!(&*call.func, Expr::Path(path) if path.path.segments.last().is_some_and(|part| part.ident == "finding"));
        if let ([code, severity_of, what, remedy], true) = (arguments.as_slice(), is_finding)
            && let Some(code) = text(code).filter(|code| is_code(code))
        {
            self.add(code, severity(severity_of), what, remedy);
        }
        visit::visit_expr_call(self, call);
    }

    /// Some findings are chosen as a code with its texts, or with its severity.
    fn visit_expr_tuple(&mut self, tuple: &'a ExprTuple) {
        let parts: Vec<&Expr> = tuple.elems.iter().collect();
        if let [code, severity_of @ Expr::Path(_)] = parts.as_slice()
            && let Some(code) = text(code).filter(|code| is_code(code))
        {
            self.add(code, severity(severity_of), severity_of, severity_of);
        }
        if let [code, what, remedy] = parts.as_slice()
            && let Some(code) = text(code).filter(|code| is_code(code))
        {
            self.add(code, "problem".to_owned(), what, remedy);
        }
        visit::visit_expr_tuple(self, tuple);
    }
}

#[test]
fn the_page_of_doctors_codes_is_fresh() {
    let mut codes = FindingCodes::default();
    for (_, file) in sources(&["core/src/diagnose"]).iter().filter(|(path, _)| path.contains("diagnose/host")) {
        codes.visit_file(file);
    }
    assert!(codes.rows.len() > 20, "{:?}", codes.rows.keys());
    let row = |(code, [severity, what, remedy]): (&String, &[String; 3])| {
        format!("| `{code}` | {severity} | {} | {} |\n", cell(what), cell(remedy))
    };
    check(PAGE, &format!("{HEAD}{}", codes.rows.iter().map(row).collect::<String>()));
}
