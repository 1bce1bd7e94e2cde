//! The picture of modules in `docs/internals/architecture.md`: for each crate its modules in layers, those above first. A
//! module's own first sentence has what it is, and `modules.toml` what it names.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::Uses;
use crate::tree::SourceTree;

/// The line before the picture.
pub const BEGIN: &str = "<!-- modules: made by `KSMITH_WRITE=1 cargo test -p ksmith --test architecture` -->\n";
/// The line after the picture.
pub const END: &str = "<!-- end of modules -->\n";

/// Returns the length of the longest chain of modules below this one.
fn height(module: &str, uses: &Uses, known: &mut BTreeMap<String, usize>) -> usize {
    if let Some(height) = known.get(module) {
        return *height;
    }
    known.insert(module.to_owned(), 0);
    let below = uses.get(module).into_iter().flatten().map(|other| height(other, uses, known) + 1).max();
    known.insert(module.to_owned(), below.unwrap_or(0));
    below.unwrap_or(0)
}

/// Draws one crate's part of the picture.
pub fn draw_crate(name: &str, tree: &SourceTree, uses: &Uses) -> String {
    let mut text = String::new();
    let about = tree.files.get(&Vec::new()).map(|file| file.about.clone()).unwrap_or_default();
    writeln!(text, "\n**{name}/**: {about}\n").unwrap();
    let mut known = BTreeMap::new();
    let mut modules: Vec<(usize, &String)> = uses
        .keys()
        .filter(|module| *module != "lib")
        .map(|module| (height(module, uses, &mut known), module))
        .collect();
    modules.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let mut line = None;
    for (height, module) in modules {
        let before = match line {
            None => "* ",
            Some(of_line) if of_line == height => ", ",
            Some(_) => "\n* ",
        };
        write!(text, "{before}`{module}`").unwrap();
        line = Some(height);
    }
    text + "\n"
}
