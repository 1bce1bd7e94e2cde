//! The picture of modules in `docs/internals/architecture.md`: for each crate its modules, those above first, with what each is
//! and what each names.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::Uses;
use crate::tree::Tree;

/// Where the picture stands.
pub const BEGIN: &str = "<!-- modules: made by `KSMITH_WRITE=1 cargo test -p ksmith --test architecture` -->\n";
/// Where it ends.
pub const END: &str = "<!-- end of modules -->\n";

/// How many modules stand below one another, at the longest.
fn height(module: &str, uses: &Uses, known: &mut BTreeMap<String, usize>) -> usize {
    if let Some(height) = known.get(module) {
        return *height;
    }
    known.insert(module.to_owned(), 0);
    let below = uses.get(module).into_iter().flatten().map(|other| height(other, uses, known) + 1).max();
    known.insert(module.to_owned(), below.unwrap_or(0));
    below.unwrap_or(0)
}

/// One crate's part of the picture.
pub fn of_crate(name: &str, tree: &Tree, uses: &Uses) -> String {
    let mut text = String::new();
    let about = tree.files.get(&Vec::new()).map(|file| file.about.clone()).unwrap_or_default();
    writeln!(text, "\n**{name}/**: {about}\n").unwrap();
    writeln!(text, "| module | what it is | names |\n|---|---|---|").unwrap();
    let mut known = BTreeMap::new();
    let mut modules: Vec<(usize, &String)> = uses
        .keys()
        .filter(|module| *module != "lib")
        .map(|module| (height(module, uses, &mut known), module))
        .collect();
    modules.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    for (_, module) in modules {
        let about = tree.files.get(&vec![module.clone()]).map(|file| file.about.clone()).unwrap_or_default();
        let about = without_links(&about).replace('|', "\\|");
        let names = uses[module].iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        writeln!(text, "| `{module}` | {about} | {names} |").unwrap();
    }
    text
}

/// A sentence of rustdoc without its links: ``[`Sample`](crate::sample::Sample)`` and ``[`Sample`]`` become `` `Sample` ``.
fn without_links(sentence: &str) -> String {
    let mut text = String::new();
    let mut rest = sentence;
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((name, after)) = after.split_once("`]") else { break };
        text.push_str(&format!("{before}`{name}`"));
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    text + rest
}
