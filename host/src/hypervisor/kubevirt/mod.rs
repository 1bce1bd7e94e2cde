//! QEMU under KubeVirt: in a pod, under a libvirt of the pod's own, which no other process may connect to.
//!
//! KubeVirt calls the domain of the machine `myvm` in the namespace `default` `default_myvm`; a namespace has no `_`.
//! The pod is `virt-launcher-myvm-abcde`: Kubernetes adds five characters to at most 58.
//!
//! Source: kubevirt, `pkg/virt-launcher/virtwrap/api/defaults.go`, `pkg/virt-controller/services/template.go`.

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

use super::container::pods::pod_of;
use super::{
    CgroupPath, ClaimedIdentity, Hypervisor, LibvirtUri, ManagerRecord, MonitorSocket, ResizeMethod, qemu,
};
use crate::root::Root;

/// QEMU in a pod of KubeVirt.
#[derive(Debug)]
pub(super) struct KubeVirt;

/// Maximum length of a pod's generated prefix, to which Kubernetes adds five characters.
const LONGEST_BEGINNING: usize = 58;
const ADDED: usize = 5;

impl Hypervisor for KubeVirt {
    fn kind(&self) -> GuestKind {
        qemu::KIND
    }

    fn manager(&self) -> Option<&'static str> {
        Some("kubevirt")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let is_its = |word: &String| word.contains("manufacturer=KubeVirt") || word.contains("/var/run/kubevirt");
        let is_in_pod =
            qemu::monitors(line).contains(&MonitorSocket::Inherited) && line.arguments().iter().any(is_its);
        let looks = qemu::looks(line);
        let name = looks.name.as_ref().filter(|_| is_in_pod)?.replacen('_', "/", 1);
        Some(ClaimedIdentity { name: Some(name), ..looks })
    }

    fn kept_out(&self, line: &CommandLine) -> Option<String> {
        qemu::is_kept_out(line)
            .then(|| format!("{}: KubeVirt does so for realtime and confidential machines", qemu::KEPT_OUT))
    }

    fn has_records(&self) -> bool {
        true
    }

    /// Returns a record if the kubelet lists the pod that the process is in under this name. It verifies namespace and
    /// name, and no UUID.
    fn record(&self, root: &Root, _libvirt: &LibvirtUri, name: &str, pid: u32) -> Option<ManagerRecord> {
        let text = root.text(format!("proc/{pid}/cgroup"));
        let cgroup = CgroupPath::parse(text.value()?)?;
        let pod = pod_of(root, cgroup.container()?)?;
        let (namespace, machine) = name.split_once('/')?;
        let beginning: String = format!("virt-launcher-{machine}-").chars().take(LONGEST_BEGINNING).collect();
        let added = pod.name.strip_prefix(beginning.as_str())?;
        (pod.namespace == namespace && added.len() == ADDED).then(ManagerRecord::default)
    }

    fn no_switch(&self, _on: bool, _name: &str) -> Option<String> {
        Some(
            "the libvirt in its pod has its monitor. Schedule it on a node without KSM \
            (/usr/share/doc/ksmith/docs/how-to/kubernetes.md)"
                .to_owned(),
        )
    }

    fn resize(&self) -> ResizeMethod {
        ResizeMethod::Unable("the libvirt in its pod has its balloon".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use crate::hypervisor::{CgroupPath, RecognisedProcess, recognise};
    use crate::root::Root;
    use ksmith_core::kernel::CommandLine;

    use super::*;

    const UID: &str = "0d8f3d1e-3c4b-4c1e-9a52-6a1d0e5b7f10";

    const LINE: &str = "/usr/libexec/qemu-kvm -name guest=default_my-vm,debug-threads=on -S \
        -machine pc-q35-rhel9.4.0,usb=off,memory-backend=pc.ram -m size=1048576k \
        -uuid 0e44be5a-ff12-52fb-9413-07b52f3593c3 -smbios type=1,manufacturer=KubeVirt,product=None,family=KubeVirt \
        -chardev socket,id=charmonitor,fd=19,server=on,wait=off -mon chardev=charmonitor,id=monitor,mode=control";

    fn found(line: &str) -> RecognisedProcess {
        let words: Vec<&str> = line.split_whitespace().collect();
        let cgroup = CgroupPath::new(path());
        recognise("qemu-kvm", &CommandLine::parse(words.join("\0").as_bytes()), Some(&cgroup), 1, None)
    }

    fn path() -> String {
        let id = "0123456789abcdef".repeat(4);
        format!("/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{id}.scope", UID.replace('-', "_"))
    }

    #[test]
    fn a_machine_is_called_by_namespace_and_name() {
        let identity = found(LINE).identity;
        assert_eq!(
            (identity.name.as_str(), identity.manager, identity.kind.word()),
            ("default/my-vm", Some("kubevirt"), "qemu")
        );
        assert_eq!(identity.memory_bytes, Some(1 << 30));
        assert!(!identity.is_verified, "so far it is the word of the pod's user");
        let disk =
            LINE.replace("manufacturer=KubeVirt", "manufacturer=Us") + " -drive /var/run/kubevirt-private/disk";
        assert_eq!(found(&disk).identity.name, "default/my-vm");
        let libvirts = LINE.replace("KubeVirt", "QEMU");
        assert_eq!(
            (found(&libvirts).identity.name.as_str(), found(&libvirts).identity.manager),
            ("default_my-vm", Some("libvirt"))
        );
    }

    /// Returns true if the kubelet's record of this pod verifies that name.
    fn verifies(pod: &str, name: &str, cgroup: &str) -> bool {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join(format!("var/log/pods/{pod}_{UID}"))).unwrap();
        std::fs::create_dir_all(tree.path().join("proc/7")).unwrap();
        std::fs::write(tree.path().join("proc/7/cgroup"), format!("0::{cgroup}\n")).unwrap();
        KubeVirt.record(&Root::at(tree.path()), &LibvirtUri::default(), name, 7).is_some()
    }

    #[test]
    fn the_kubelets_word_for_the_pod_verifies_the_name() {
        let pod = "default_virt-launcher-my-vm-x2k9q";
        assert!(verifies(pod, "default/my-vm", &path()));
        assert!(verifies(pod, "default/my-vm", &path().replace("/kubepods.slice", "/../..")), "seen from a pod");
        for (name, why) in [
            ("default/my", "another machine of the namespace"),
            ("default/my-vm-x", "another machine"),
            ("other/my-vm", "another namespace"),
            ("my-vm", "no namespace"),
        ] {
            assert!(!verifies(pod, name, &path()), "{why}");
        }
        let long = "a".repeat(60);
        assert!(verifies(
            &format!("default_virt-launcher-{}x2k9q", "a".repeat(44)),
            &format!("default/{long}"),
            &path()
        ));
        assert!(!verifies(pod, "default/my-vm", "/user.slice/user-1.slice/session-1.scope"));
        let inner = format!("{}/kubepods-pod{}.slice/x.scope", path(), UID.replace('-', "_"));
        assert!(
            !verifies(pod, "default/my-vm", &inner.replace("x.scope", &format!("crio-{}.scope", "f".repeat(64)))),
            "a cgroup of the pod's own making"
        );
    }
}
