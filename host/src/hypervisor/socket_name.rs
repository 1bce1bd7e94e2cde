//! The name of a guest that has none of its own, from the path of its API's socket or of its configuration.

/// Parts of paths that name a hypervisor, a manager or a kind of file, and no guest.
const GENERIC: [&str; 29] = [
    "",
    "api",
    "ch",
    "ch-api",
    "clh",
    "clh-api",
    "cloud-hypervisor",
    "config",
    "control",
    "crosvm",
    "fc",
    "firecracker",
    "firecracker-api",
    "fc-config",
    "firecracker-config",
    "jailer",
    "kata",
    "lib",
    "root",
    "run",
    "sock",
    "socket",
    "tmp",
    "var",
    "vc",
    "vm",
    "vm-config",
    "vm_config",
    "vmm",
];

/// Returns the stem of the file, or the innermost directory with a name of its own if the file is called by its
/// purpose: a manager gives each guest a directory then.
pub(super) fn name_from_path(path: &str) -> Option<String> {
    let mut parts = path.rsplit('/');
    let file = parts.next()?;
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let stem = stem.strip_suffix("-socket").unwrap_or(stem);
    let is_own = |part: &&str| !GENERIC.contains(part);
    let name = Some(stem).filter(is_own).or_else(|| parts.find(is_own)).unwrap_or(stem);
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_named_after_its_guest_or_lies_in_the_guests_directory() {
        for (path, expected) in [
            ("/run/ch/web.sock", Some("web")),
            ("db.sock", Some("db")),
            ("/run/libvirt/ch/web-socket", Some("web")),
            ("/run/vc/vm/1b8a5c10/clh-api.sock", Some("1b8a5c10")),
            ("/run/kata/1b8a5c10/vmm/ch-api.sock", Some("1b8a5c10")),
            ("/srv/instances/web.example/ch-api.sock", Some("web.example")),
            ("/run/vc/firecracker/web/run/firecracker.socket", Some("web")),
            ("/tmp/ch-api.sock", Some("ch-api")),
            ("/run/firecracker.socket", Some("firecracker")),
            ("/run/web/", Some("web")),
            ("/srv/vms/web.json", Some("web")),
            ("/srv/vms/web/vm_config.json", Some("web")),
            ("vm_config.json", Some("vm_config")),
            ("", None),
        ] {
            assert_eq!(name_from_path(path).as_deref(), expected, "{path}");
        }
    }
}
