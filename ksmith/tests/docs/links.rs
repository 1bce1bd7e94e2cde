//! Every link of a page leads to a file, and to a heading in it.

use std::fs;

use crate::page::{self, DocPage};

/// Returns the fault of a link, if it has one.
fn fault(page: &DocPage, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { page::workspace().join(&page.path) } else { page.beside(file) };
    if !target.exists() {
        return Some(format!("there is no {file}"));
    }
    let anchor = anchor?;
    let path = target.display().to_string();
    let text = fs::read_to_string(&target).unwrap_or_default();
    let has = DocPage { path, text }.anchors().contains(anchor);
    (!has).then(|| format!("{file} has no heading #{anchor}"))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut faults = Vec::new();
    let mut checked = 0;
    for page in page::all() {
        for (link, line) in page.links() {
            checked += 1;
            faults.extend(fault(&page, &link).map(|fault| format!("{}:{line}: {fault}", page.path)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(checked > 100, "only {checked} links were found");
}

#[test]
fn a_link_without_a_file_or_heading_is_a_fault() {
    let page = DocPage { path: "docs/SUMMARY.md".to_owned(), text: "# One two three\n".to_owned() };
    assert_eq!(fault(&page, "https://example.org"), None);
    assert_eq!(fault(&page, "#one-two-three").as_deref(), Some(" has no heading #one-two-three"));
    assert_eq!(fault(&page, "nowhere.md").as_deref(), Some("there is no nowhere.md"));
}
