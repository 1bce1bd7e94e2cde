//! `<memoryBacking><nosharepages/></memoryBacking>` in a domain's XML: switches merging off permanently. Only that
//! element of the text is changed.

use std::ops::Range;

use roxmltree::Document;

use super::LibvirtError;

const OFF: &str = "<nosharepages/>";

/// Returns the definition with sharing as wanted; `None` if it is so already.
pub(in crate::hypervisor) fn with_sharing(xml: &str, on: bool) -> Result<Option<String>, LibvirtError> {
    let document = Document::parse(xml).map_err(|why| LibvirtError::Xml(why.to_string()))?;
    let domain = document.root_element();
    if !domain.has_tag_name("domain") {
        return Err(LibvirtError::Xml("it is not a <domain>".to_owned()));
    }
    let backings = || domain.children().filter(|node| node.has_tag_name("memoryBacking"));
    let off = backings().flat_map(|backing| backing.children()).filter(|node| node.has_tag_name("nosharepages"));
    let off: Vec<Range<usize>> = off.map(|node| node.range()).collect();
    if off.is_empty() == on {
        return Ok(None);
    }
    if on {
        // From the end, so that the earlier places stay right.
        return Ok(Some(off.into_iter().rev().fold(xml.to_owned(), |text, place| splice(&text, place, ""))));
    }
    let spliced = match backings().next().map(|backing| (backing, backing.first_child())) {
        Some((_, Some(first))) => splice(xml, first.range().start..first.range().start, OFF),
        Some((backing, None)) => splice(xml, backing.range(), &format!("<memoryBacking>{OFF}</memoryBacking>")),
        None => {
            // The end tag may hold spaces, and text after it the same words.
            let end = xml.get(..domain.range().end).and_then(|xml| xml.rfind("</"));
            let end = end.ok_or_else(|| LibvirtError::Xml("it is empty".to_owned()))?;
            splice(xml, end..end, &format!("  <memoryBacking>{OFF}</memoryBacking>\n"))
        }
    };
    Ok(Some(spliced))
}

/// Returns true if a definition is that of the domain with this UUID.
pub(super) fn is_of_domain(xml: &str, uuid: &str) -> bool {
    let Ok(document) = Document::parse(xml) else { return false };
    let its = document.root_element().children().find(|node| node.has_tag_name("uuid"));
    its.and_then(|node| node.text()).is_some_and(|its| its.trim().eq_ignore_ascii_case(uuid))
}

fn splice(text: &str, range: Range<usize>, with: &str) -> String {
    let mut text = text.to_owned();
    text.replace_range(range, with);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(xml: &str) -> Option<String> {
        with_sharing(xml, false).unwrap()
    }

    #[test]
    fn off_goes_into_the_backing_and_on_takes_it_out_again() {
        let bare = "<domain type='kvm'>\n  <name>a</name>\n</domain>\n";
        let with = off(bare).unwrap();
        assert!(with.contains("<memoryBacking><nosharepages/></memoryBacking>"), "{with}");
        assert_eq!(off(&with), None);
        assert!(!with_sharing(&with, true).unwrap().unwrap().contains("nosharepages"));
        assert_eq!(with_sharing(bare, true).unwrap(), None);
    }

    #[test]
    fn what_else_stands_in_the_backing_stays() {
        let full = "<domain><memoryBacking>\n<locked/>\n</memoryBacking></domain>";
        let with = off(full).unwrap();
        assert!(with.contains("<locked/>") && with.contains(OFF));
        assert_eq!(with_sharing(&with, true).unwrap().as_deref(), Some(full));
        assert_eq!(
            off("<domain><memoryBacking/></domain>").as_deref(),
            Some("<domain><memoryBacking><nosharepages/></memoryBacking></domain>")
        );
    }

    #[test]
    fn each_mark_is_taken_out_and_text_behind_the_end_is_no_end() {
        let twice = "<domain><memoryBacking><nosharepages/><nosharepages/></memoryBacking>\
                     <memoryBacking>\n<nosharepages/></memoryBacking></domain>";
        let on = with_sharing(twice, true).unwrap().unwrap();
        assert_eq!(on, "<domain><memoryBacking></memoryBacking><memoryBacking>\n</memoryBacking></domain>");
        let second = "<domain><memoryBacking/><memoryBacking><nosharepages/></memoryBacking></domain>";
        assert_eq!(off(second), None);
        let behind = "<domain>\n</domain ><!-- </domain> -->";
        let with = off(behind).unwrap();
        assert_eq!(off(&with), None, "{with}");
    }

    #[test]
    fn a_definition_is_that_of_its_uuid() {
        let xml = "<domain><uuid> 0A</uuid></domain>";
        assert!(is_of_domain(xml, "0a") && !is_of_domain(xml, "0b"));
        assert!(!is_of_domain("<domain/>", "0a") && !is_of_domain("<domain>", "0a"));
    }

    #[test]
    fn a_word_that_only_looks_like_it_is_left_alone() {
        let text = "<domain><title>nosharepages &lt;/domain&gt;</title></domain>";
        assert!(off(text).unwrap().ends_with("<memoryBacking><nosharepages/></memoryBacking>\n</domain>"));
        assert!(with_sharing("<network/>", false).is_err());
        assert!(with_sharing("<domain>", false).is_err());
    }
}
