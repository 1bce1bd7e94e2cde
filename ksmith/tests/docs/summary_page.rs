//! The contents of the book: every page below docs/, by its folder. A new page comes in by itself, by its heading.

use crate::generated::check;
use crate::page::{self, DocPage};

const PAGE: &str = "docs/SUMMARY.md";

/// Folders with the heading of their part, and the pages that have a place of their own there. `…` stands for all
/// others, by name.
const PARTS: [(&str, &str, &[&str]); 5] = [
    (
        "how-to",
        "How to",
        &[
            "install",
            "hand-over",
            "estimate",
            "top",
            "history-and-report",
            "web-page",
            "alerts",
            "domains",
            "balance",
            "opt-in",
            "plain-qemu",
            "libvirt",
            "proxmox",
            "user-mode-linux",
            "containers",
            "kubernetes",
            "hpc",
            "laptop",
            "other-distributions",
            "…",
            "troubleshooting",
            "uninstall",
        ],
    ),
    (
        "reference",
        "Reference",
        &["commands", "configuration", "guests", "figures", "json", "exit-codes", "doctor", "messages", "…"],
    ),
    ("explanation", "Explanation", &["ksm", "profit", "security", "threat-model", "figures", "comparison", "…"]),
    (
        "internals",
        "For developers",
        &["architecture", "kernel", "policies", "reliability", "lab", "adding-a-hypervisor", "…"],
    ),
    ("measurements", "Measurements", &["…"]),
];

/// The page after which the runbooks stand, as its own.
const RUNBOOKS: (&str, &str) = ("docs/how-to/alerts.md", "docs/how-to/runbooks/");

fn title(page: &DocPage) -> String {
    page.text.lines().next().unwrap_or_default().trim_start_matches("# ").replace('`', "")
}

fn line(page: &DocPage, indent: &str) -> String {
    format!("{indent}- [{}]({})\n", title(page), page.path.trim_start_matches("docs/"))
}

/// The pages that lie in the folder itself, in the order of the list.
fn ordered<'a>(pages: &'a [DocPage], folder: &str, order: &[&str]) -> Vec<&'a DocPage> {
    let place = |name: &str| order.iter().position(|known| *known == name);
    let others = place("…").unwrap_or(order.len());
    let prefix = format!("docs/{folder}/");
    let name = |page: &DocPage| Some(page.path.strip_prefix(&prefix)?.strip_suffix(".md")?.to_owned());
    let mut found: Vec<(usize, String, &DocPage)> = pages
        .iter()
        .filter_map(|page| Some((name(page)?, page)))
        .filter(|(name, _)| !name.contains('/'))
        .map(|(name, page)| (place(&name).unwrap_or(others), name, page))
        .collect();
    found.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    found.into_iter().map(|(_, _, page)| page).collect()
}

#[test]
fn the_contents_of_the_book_are_fresh() {
    let pages = page::all();
    let find = |path: &str| pages.iter().find(|page| page.path == path).unwrap();
    let unnumbered = |path: &str| line(find(path), "").trim_start_matches("- ").to_owned();
    let mut text = "# Contents of the book\n\n".to_owned();
    ["docs/README.md", "docs/tutorial.md"].map(unnumbered).iter().for_each(|line| text.push_str(line));
    for (folder, heading, order) in PARTS {
        text.push_str(&format!("\n# {heading}\n\n"));
        for page in ordered(&pages, folder, order) {
            text.push_str(&line(page, ""));
            if page.path == RUNBOOKS.0 {
                pages
                    .iter()
                    .filter(|page| page.path.starts_with(RUNBOOKS.1))
                    .for_each(|page| text.push_str(&line(page, "  ")));
            }
        }
    }
    text.push_str(&format!("\n---\n\n{}", unnumbered("docs/glossary.md")));
    check(PAGE, &text);
}
