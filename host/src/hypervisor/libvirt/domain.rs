//! What libvirt knows of a running domain, from the status file that it keeps for itself.

use roxmltree::Document;

use crate::hypervisor::Managed;
use crate::root::Root;

/// The status of the domain `name` of a driver. `None` if there is none of this PID, or the file is not for us.
pub(super) fn status(root: &Root, driver: &str, name: &str, pid: u32) -> Option<Managed> {
    // libvirt refuses such names; a command line may hold anything.
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    parse(root.text(format!("run/libvirt/{driver}/{name}.xml")).value()?, pid)
}

fn parse(text: &str, pid: u32) -> Option<Managed> {
    let document = Document::parse(text).ok()?;
    let root = document.root_element();
    if !root.has_tag_name("domstatus") || root.attribute("pid")?.parse::<u32>() != Ok(pid) {
        return None;
    }
    let domain = root.children().find(|node| node.has_tag_name("domain"))?;
    let child = |name: &str| domain.children().find(|node| node.has_tag_name(name));
    let metadata = child("metadata").and_then(|node| {
        let (first, last) = (node.first_child()?, node.last_child()?);
        Some(text.get(first.range().start..last.range().end)?.trim().to_owned())
    });
    Some(Managed { uuid: child("uuid").and_then(|node| node.text()).map(str::to_owned), metadata })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<domstatus state='running' reason='booted' pid='812'>
  <monitor path='/var/lib/libvirt/qemu/domain-1-web/monitor.sock' type='unix'/>
  <domain type='qemu' id='1'>
    <name>web</name>
    <uuid>00000000-1111-2222-3333-444444444444</uuid>
    <metadata>
      <app:customer xmlns:app='http://example.org/app'>blue</app:customer>
    </metadata>
  </domain>
</domstatus>";

    #[test]
    fn uuid_and_metadata_come_from_the_file_of_this_very_process() {
        let status = parse(TEXT, 812).unwrap();
        assert_eq!(status.uuid.as_deref(), Some("00000000-1111-2222-3333-444444444444"));
        assert_eq!(
            status.metadata.as_deref(),
            Some("<app:customer xmlns:app='http://example.org/app'>blue</app:customer>")
        );
        assert_eq!(parse(TEXT, 813), None);
        for bad in ["", "<domain/>", "<domstatus pid='812'/>", "<domstatus"] {
            assert_eq!(parse(bad, 812), None, "{bad}");
        }
    }

    #[test]
    fn a_name_never_leads_out_of_the_directory() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("run/libvirt/qemu")).unwrap();
        std::fs::write(tree.path().join("run/libvirt/web.xml"), TEXT).unwrap();
        std::fs::write(tree.path().join("run/libvirt/qemu/web.xml"), TEXT).unwrap();
        let root = Root::at(tree.path());
        assert!(status(&root, "qemu", "web", 812).is_some());
        assert_eq!(status(&root, "qemu", "../web", 812), None);
    }
}
