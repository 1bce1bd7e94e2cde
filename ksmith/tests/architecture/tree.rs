//! The source tree of one crate: its files as modules, with what each re-exports and what each names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{Attribute, Item, ItemUse, UseTree};

/// A module's path below its crate: `["decide", "profit"]`; the crate's root is empty.
pub type Module = Vec<String>;

/// One file of production code.
#[derive(Debug, Default)]
pub struct SourceFile {
    /// The first sentence of its `//!` documentation.
    pub about: String,
    /// Child modules that are not compiled for tests only.
    children: BTreeSet<String>,
    /// Child modules that are.
    test_children: BTreeSet<String>,
    /// `pub use` and plain `use`: the name here, and the path it stands for.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths that the code names, beginning with `crate`, `self`, `super` or an imported name.
    names: BTreeSet<Vec<String>>,
}

/// All files of a crate.
#[derive(Debug, Default)]
pub struct SourceTree {
    /// The files by module.
    pub files: BTreeMap<Module, SourceFile>,
}

impl SourceTree {
    /// Reads the crate with its sources in `src`.
    pub fn read(src: &Path) -> Self {
        let mut tree = Self::default();
        let root = ["lib.rs", "main.rs"].into_iter().map(|name| src.join(name)).find(|path| path.exists());
        tree.take_in(src, &root.expect("a crate has a root"), Vec::new());
        tree
    }

    fn take_in(&mut self, src: &Path, path: &Path, module: Module) {
        let text = fs::read_to_string(path).unwrap();
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut file = SourceFile { about: first_sentence(&syntax.attrs), ..SourceFile::default() };
        let mut reader = PathCollector { file: &mut file };
        reader.visit_file(&syntax);
        let below = src.join(module.iter().collect::<PathBuf>());
        // A macro may declare children too, as the registry of hypervisors does.
        file.children.extend(beside(&below).into_iter().filter(|name| !file.test_children.contains(name)));
        let children = file.children.clone();
        self.files.insert(module.clone(), file);
        for child in children {
            let places = [below.join(format!("{child}.rs")), below.join(&child).join("mod.rs")];
            if let Some(place) = places.iter().find(|place| place.exists()) {
                let module = module.iter().cloned().chain([child]).collect();
                self.take_in(src, place, module);
            }
        }
    }

    /// The modules of the items that `module` names. A re-export counts as the module that defines the item.
    pub fn named_by(&self, module: &Module) -> BTreeSet<Module> {
        let file = &self.files[module];
        let paths = file.names.iter().chain(file.imports.values());
        let found = paths.filter_map(|path| self.resolve(module, path, 0));
        found.filter(|other| other != module).collect()
    }

    /// The module in which the item at `path`, as named in `module`, is defined. `None`: in another crate.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Module> {
        let mut at = module.to_vec();
        let mut rest = path;
        let mut is_local = false;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ => break,
            }
            (rest, is_local) = (after, true);
        }
        for (n, name) in rest.iter().enumerate() {
            let file = self.files.get(&at)?;
            if file.children.contains(name) {
                at.push(name.clone());
                is_local = true;
            } else if let Some(target) =
                file.imports.get(name).filter(|target| depth < 8 && target.as_slice() != path)
            {
                let target: Vec<String> = target.iter().chain(&rest[n + 1..]).cloned().collect();
                return self.resolve(&at, &target, depth + 1);
            } else {
                break;
            }
        }
        (is_local && self.files.contains_key(&at)).then_some(at)
    }
}

/// The modules with their files in a directory.
fn beside(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists());
    let names = files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    names.filter(|name| !["lib", "main", "mod"].contains(&name.as_str())).collect()
}

/// Returns true if an item is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

fn first_sentence(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    });
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    match paragraph.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => paragraph,
    }
}

struct PathCollector<'a> {
    file: &'a mut SourceFile,
}

impl PathCollector<'_> {
    fn import(&mut self, tree: &UseTree, prefix: &[String]) {
        let joined = |name: &syn::Ident| prefix.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &joined(&path.ident)),
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = prefix.last() {
                    self.file.imports.insert(last.clone(), prefix.to_vec());
                }
            }
            UseTree::Name(name) => drop(self.file.imports.insert(name.ident.to_string(), joined(&name.ident))),
            UseTree::Rename(rename) => {
                self.file.imports.insert(rename.rename.to_string(), joined(&rename.ident));
            }
            UseTree::Glob(_) => drop(self.file.names.insert(prefix.to_vec())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, prefix)),
        }
    }
}

impl Visit<'_> for PathCollector<'_> {
    fn visit_item(&mut self, item: &Item) {
        let attributes: &[Attribute] = match item {
            Item::Mod(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            _ => &[],
        };
        if is_test(attributes) {
            if let Item::Mod(module) = item {
                self.file.test_children.insert(module.ident.to_string());
            }
            return;
        }
        if let Item::Mod(module) = item
            && module.content.is_none()
        {
            self.file.children.insert(module.ident.to_string());
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        self.import(&item.tree, &[]);
    }

    /// Visits the arguments of `format!` and the like as expressions. Macros of other forms are left alone.
    fn visit_macro(&mut self, item: &syn::Macro) {
        let arguments = item.parse_body_with(Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated);
        for expression in arguments.into_iter().flatten() {
            PathCollector { file: &mut *self.file }.visit_expr(&expression);
        }
        syn::visit::visit_macro(self, item);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let first = path.segments.first().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if ["crate", "self", "super"].contains(&first.as_str()) && path.segments.len() > 1 {
            self.file.names.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }
}
