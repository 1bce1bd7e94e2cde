//! Names of containers in the files of their managers, by the path of the cgroup.

use serde_json::Value;

use super::super::ManagerName;
use super::forms::{container_id, short};
use super::pods::{MANAGER, container_in, pod_of};
use crate::root::Root;

/// Returns the name of the container with this cgroup path, if a manager has a file about it.
pub(super) fn called(root: &Root, path: &str) -> Option<ManagerName> {
    let part = path.rsplit('/').next()?;
    let called = |name: String, manager| Some(ManagerName { name, manager, number: None });
    let id = container_id(part);
    if let Some(pod) = pod_of(root, path) {
        let container = id.and_then(|id| container_in(root, &pod, id)).unwrap_or_else(|| short(id.unwrap_or(part)));
        return called(format!("{}/{}/{container}", pod.namespace, pod.name), MANAGER);
    }
    let Some(id) = id else { return of_lxc(root, part) };
    if path.contains("libpod") {
        return called(of_podman(root, id)?, "podman");
    }
    called(of_docker(root, id)?, "docker")
}

/// Returns the name in the list of root's Podman containers. Source: containers/storage, `containers.go`.
fn of_podman(root: &Root, id: &str) -> Option<String> {
    let text = ["overlay", "vfs", "btrfs", "zfs"].into_iter().find_map(|driver| {
        let file = root.text(format!("var/lib/containers/storage/{driver}-containers/containers.json"));
        file.value().filter(|text| text.contains(id)).cloned()
    })?;
    let list: Value = serde_json::from_str(&text).ok()?;
    let entry = list.as_array()?.iter().find(|entry| entry["id"] == id)?;
    Some(entry["names"].get(0)?.as_str()?.to_owned())
}

/// Directories of Docker: the usual one, and that of its snap.
const DOCKER: [&str; 2] = ["var/lib/docker", "var/snap/docker/common/var-lib-docker"];

/// Returns the name in Docker's file about the container. Source: moby, `daemon/container/container.go`.
fn of_docker(root: &Root, id: &str) -> Option<String> {
    let text =
        DOCKER.iter().find_map(|at| root.text(format!("{at}/containers/{id}/config.v2.json")).value().cloned())?;
    let config: Value = serde_json::from_str(&text).ok()?;
    Some(config["Name"].as_str()?.trim_start_matches('/').to_owned())
}

/// Returns the number and host name of a container of Proxmox VE. It calls its LXC containers by number, and has their
/// host names in the files that it writes for LXC at each start. Source: pve-container, `src/PVE/LXC.pm`
/// (`update_lxc_config`).
fn of_lxc(root: &Root, part: &str) -> Option<ManagerName> {
    let number = part.parse().ok()?;
    let text = root.text(format!("var/lib/lxc/{number}/config"));
    let name =
        |line: &str| Some(line.strip_prefix("lxc.uts.name")?.trim_start().strip_prefix('=')?.trim().to_owned());
    let name = text.value()?.lines().find_map(name)?;
    Some(ManagerName { name, manager: "proxmox", number: Some(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn called_in(files: &[(&str, &str)], path: &str) -> Option<(String, &'static str, Option<u32>)> {
        let tree = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = tree.path().join(file.replace("ID", CONTAINER));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text.replace("ID", CONTAINER)).unwrap();
        }
        let called = called(&Root::at(tree.path()), &path.replace("ID", CONTAINER))?;
        Some((called.name, called.manager, called.number))
    }

    #[test]
    fn podman_and_docker_have_names_for_their_containers() {
        let podman = [(
            "var/lib/containers/storage/overlay-containers/containers.json",
            r#"[{"id":"other","names":["db"]},{"id":"ID","names":["web"]}]"#,
        )];
        for path in ["/machine.slice/libpod-ID.scope", "/libpod_parent/libpod-ID", "/libpod_parent/ID/libpod-ID"] {
            assert_eq!(called_in(&podman, path), Some(("web".to_owned(), "podman", None)), "{path}");
        }
        let docker = [("var/lib/docker/containers/ID/config.v2.json", r#"{"ID":"ID","Name":"/web"}"#)];
        let snap = [("var/snap/docker/common/var-lib-docker/containers/ID/config.v2.json", docker[0].1)];
        for path in ["/docker/ID", "/system.slice/docker-ID.scope"] {
            for files in [docker, snap] {
                assert_eq!(called_in(&files, path), Some(("web".to_owned(), "docker", None)), "{path}");
            }
        }
        for (file, text) in [podman[0], docker[0]] {
            assert_eq!(
                called_in(&[(file, &text[1..])], "/docker/ID"),
                None,
                "a file that is no JSON names nothing"
            );
        }
        assert_eq!(called_in(&[], "/docker/ID"), None);
    }

    #[test]
    fn a_container_of_a_pod_is_called_by_both() {
        let uid = "0d8f3d1e-3c4b-4c1e-9a52-6a1d0e5b7f10";
        let pod = format!("var/log/pods/shop_web-0_{uid}/x");
        let path = format!("/kubepods/burstable/pod{uid}/ID");
        let link = ("var/log/containers/web-0_shop_nginx-ID.log", "");
        let name = |files: &[(&str, &str)]| called_in(files, &path);
        assert_eq!(name(&[(&pod, ""), link]), Some(("shop/web-0/nginx".to_owned(), "kubernetes", None)));
        assert_eq!(name(&[(&pod, "")]), Some(("shop/web-0/0123456789ab".to_owned(), "kubernetes", None)));
        assert_eq!(name(&[link]), None);
    }

    #[test]
    fn a_container_of_proxmox_has_a_number_and_a_host_name() {
        let config = ("var/lib/lxc/101/config", "lxc.arch = amd64\nlxc.uts.name = mail\n");
        assert_eq!(called_in(&[config], "/lxc/101"), Some(("mail".to_owned(), "proxmox", Some(101))));
        assert_eq!(called_in(&[config], "/lxc/102"), None);
        assert_eq!(called_in(&[config], "/lxc/web"), None, "LXC's own name is as good");
    }
}
