//! The pods of Kubernetes, from the kubelet's files on its node, without its API.
//!
//! The cgroup of a container names its pod's UID: `…/kubepods-burstable-pod0d8f3d1e_….slice/cri-containerd-ID.scope`
//! with systemd's driver, `/kubepods/burstable/pod0d8f3d1e-…/ID` with the other. The kubelet's option `--cgroup-root`
//! puts a prefix before a slice's name. `/var/log/pods` has a directory
//! `NAMESPACE_POD_UID` for each pod, and `/var/log/containers` a link `POD_NAMESPACE_CONTAINER-ID.log` for each
//! container. Both belong to root. The UID of a static pod has no dashes.
//!
//! Source: kubernetes `pkg/kubelet/kuberuntime/helpers.go` (`BuildPodLogsDirectory`) and `legacy.go`.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use crate::root::Root;

/// Name of the manager.
pub(crate) const MANAGER: &str = "kubernetes";

/// The pod of a container, from the kubelet's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::hypervisor) struct PodName {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
}

/// Maximum directory entries that are read: a node has some hundred pods.
const MOST_ENTRIES: usize = 100_000;

/// Returns the pod of the container with this cgroup path; `None` if it is no container of a pod, or the kubelet has no
/// such pod.
pub(in crate::hypervisor) fn pod_of(root: &Root, path: &str) -> Option<PodName> {
    let mut parts = path.rsplit('/');
    let last = parts.next()?;
    let uid = uid(slice_of(last).or_else(|| parts.next())?)?;
    names(root, "var/log/pods", |entry| {
        let rest = entry.strip_suffix(uid.as_str())?.strip_suffix('_')?;
        // Neither a namespace nor a pod may have `_` in its name.
        let (namespace, name) = rest.split_once('_')?;
        Some(PodName { namespace: namespace.to_owned(), name: name.to_owned() })
    })
}

/// Returns the name of the container with this ID in its pod.
pub(super) fn container_in(root: &Root, pod: &PodName, id: &str) -> Option<String> {
    names(root, "var/log/containers", |entry| {
        let rest = entry.strip_prefix(pod.name.as_str())?.strip_prefix('_')?;
        let rest = rest.strip_prefix(pod.namespace.as_str())?.strip_prefix('_')?;
        Some(rest.strip_suffix(".log")?.strip_suffix(id)?.strip_suffix('-')?.to_owned())
    })
}

/// Returns the slice in a part `SLICE:PREFIX:ID`.
pub(super) fn slice_of(part: &str) -> Option<&str> {
    let mut fields = part.split(':');
    let slice = fields.next().filter(|slice| slice.ends_with(".slice"))?;
    (fields.count() == 2).then_some(slice)
}

/// Returns true if this part of a path is the cgroup of a pod.
pub(super) fn is_pod(part: &str) -> bool {
    uid(part).is_some()
}

/// Extracts the UID from the name of a pod's cgroup.
fn uid(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = name.strip_prefix("pod").or_else(|| Some(name.rsplit_once("-pod")?.1))?;
    // systemd has a meaning of its own for dashes.
    let uid = if name == part { uid.to_owned() } else { uid.replace('_', "-") };
    let digits = uid.bytes().filter(|&byte| byte != b'-');
    let is_uid = uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') && digits.count() == 32;
    is_uid.then_some(uid)
}

/// Returns the first result of `take` among the entries of a directory that only root can write.
fn names<T>(root: &Root, directory: &str, take: impl Fn(&str) -> Option<T>) -> Option<T> {
    let path = root.path(directory);
    let found = File::open(&path).and_then(|directory| directory.metadata()).ok()?;
    if root.is_host() && (found.uid() != 0 || found.mode() & 0o022 != 0) {
        return None;
    }
    let entries = std::fs::read_dir(path).ok()?.take(MOST_ENTRIES).flatten();
    entries.filter_map(|entry| take(entry.file_name().to_str()?)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0d8f3d1e-3c4b-4c1e-9a52-6a1d0e5b7f10";
    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn node() -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        let log = tree.path().join("var/log");
        for directory in
            [format!("shop_web-0_{UID}"), "kube-system_etcd-n1_0123456789abcdef0123456789abcdef".to_owned()]
        {
            std::fs::create_dir_all(log.join("pods").join(directory)).unwrap();
        }
        std::fs::create_dir_all(log.join("containers")).unwrap();
        std::fs::write(log.join(format!("containers/web-0_shop_nginx-{ID}.log")), "").unwrap();
        let root = Root::at(tree.path());
        (tree, root)
    }

    #[test]
    fn the_pod_of_each_form_of_cgroup_is_known() {
        let (_tree, root) = node();
        let pod = |path: &str| pod_of(&root, &path.replace("UID", UID)).map(|pod| (pod.namespace, pod.name));
        let web = Some(("shop".to_owned(), "web-0".to_owned()));
        let slice = UID.replace('-', "_");
        assert_eq!(pod("/kubepods/burstable/podUID/ID"), web);
        assert_eq!(pod("/kubepods/podUID/ID"), web);
        for class in
            ["kubepods-burstable-pod", "kubepods-besteffort-pod", "kubepods-pod", "kubelet-kubepods-burstable-pod"]
        {
            assert_eq!(
                pod(&format!("/kubepods.slice/{class}{slice}.slice/cri-containerd-ID.scope")),
                web,
                "{class}"
            );
            // As a container with a cgroup namespace of its own sees it.
            assert_eq!(pod(&format!("/../../{class}{slice}.slice/crio-ID.scope")), web, "{class}");
        }
        for runtime in ["", "/system.slice/containerd.service", "/system.slice/k3s.service"] {
            assert_eq!(pod(&format!("{runtime}/kubepods-burstable-pod{slice}.slice:cri-containerd:ID")), web);
        }
        let stat = pod("/kubepods/burstable/pod0123456789abcdef0123456789abcdef/ID").unwrap();
        assert_eq!(stat, ("kube-system".to_owned(), "etcd-n1".to_owned()));
    }

    #[test]
    fn what_is_no_container_of_a_known_pod_has_none() {
        let (_tree, root) = node();
        for path in [
            "/kubepods/burstable/pod11111111-3c4b-4c1e-9a52-6a1d0e5b7f10/ID",
            "/kubepods/burstable/podweb-0/ID",
            "/system.slice/docker-ID.scope",
            "/podUID",
            "/",
            "",
        ] {
            assert_eq!(pod_of(&root, &path.replace("UID", UID)), None, "{path}");
        }
    }

    #[test]
    fn a_container_is_known_by_its_pod_and_id() {
        let (_tree, root) = node();
        let pod = PodName { namespace: "shop".to_owned(), name: "web-0".to_owned() };
        assert_eq!(container_in(&root, &pod, ID).as_deref(), Some("nginx"));
        assert_eq!(container_in(&root, &pod, &ID.replace('0', "1")), None);
        let other = PodName { namespace: "shop".to_owned(), name: "web".to_owned() };
        assert_eq!(container_in(&root, &other, ID), None);
    }
}
