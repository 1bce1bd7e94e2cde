//! `<memoryBacking><nosharepages/></memoryBacking>` in a domain's XML: switches merging off permanently. Only that
//! element of the text is changed.

use roxmltree::Document;

use super::LibvirtError;

const OFF: &str = "<nosharepages/>";

/// Returns the definition with sharing as wanted; `None` if it is so already.
pub(in crate::hypervisor) fn with_sharing(xml: &str, on: bool) -> Result<Option<String>, LibvirtError> {
    let document = Document::parse(xml).map_err(|why| LibvirtError::Xml(why.to_string()))?;
    let domain = document.root_element();
    if !domain.has_tag_name("domain") {
        return Err(LibvirtError::Xml("it is no <domain>".to_owned()));
    }
    let backing = domain.children().find(|node| node.has_tag_name("memoryBacking"));
    let off = backing.and_then(|node| node.children().find(|node| node.has_tag_name("nosharepages")));
    let spliced = match (backing, off, on) {
        (_, Some(_), false) | (_, None, true) => return Ok(None),
        (_, Some(off), true) => splice(xml, off.range(), ""),
        (Some(backing), None, false) => match backing.first_child() {
            Some(first) => splice(xml, first.range().start..first.range().start, OFF),
            None => splice(xml, backing.range(), &format!("<memoryBacking>{OFF}</memoryBacking>")),
        },
        (None, None, false) => {
            let end = xml.rfind("</domain>").ok_or_else(|| LibvirtError::Xml("it is empty".to_owned()))?;
            splice(xml, end..end, &format!("  <memoryBacking>{OFF}</memoryBacking>\n"))
        }
    };
    Ok(Some(spliced))
}

fn splice(text: &str, range: std::ops::Range<usize>, with: &str) -> String {
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
    fn a_word_that_only_looks_like_it_is_left_alone() {
        let text = "<domain><title>nosharepages &lt;/domain&gt;</title></domain>";
        assert!(off(text).unwrap().ends_with("<memoryBacking><nosharepages/></memoryBacking>\n</domain>"));
        assert!(with_sharing("<network/>", false).is_err());
        assert!(with_sharing("<domain>", false).is_err());
    }
}
