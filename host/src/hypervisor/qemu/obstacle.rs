//! Options of QEMU that keep a guest's memory from merging.
//!
//! An object is memory of the guest only if something names it: `-machine memory-backend=`, `-numa memdev=` or a
//! memory device. Others are those of devices, such as an ivshmem's. Without the first two QEMU makes memory of its
//! own. Source: QEMU, `docs/system/confidential-guest-support.rst`, `qemu-options.hx`, `qapi/qom.json`.

use ksmith_core::kernel::CommandLine;

use super::options::{QemuOptions, values};
use crate::hypervisor::options::is_huge_path;

/// Objects of confidential guests, with the word for them. Their memory is pinned, or not the process's at all.
const CONFIDENTIAL: [(&str, &str); 6] = [
    ("sev-guest", "sev"),
    ("sev-snp-guest", "sev-snp"),
    ("tdx-guest", "tdx"),
    ("s390-pv-guest", "s390-pv"),
    ("rme-guest", "rme"),
    ("pef-guest", "pef"),
];

/// Devices by VFIO that pin little or nothing: of another program, and those of s390x, which pin what a request names
/// (QEMU, `hw/vfio/ap.c` and `ccw.c`: `ram_block_discard_allowed`).
const PIN_LITTLE: [&str; 3] = ["vfio-user", "vfio-ap", "vfio-ccw"];

/// Devices that are memory of the guest; others with a `memdev` are not.
const MEMORY_DEVICES: [&str; 4] = ["pc-dimm", "nvdimm", "virtio-mem", "virtio-pmem"];

/// The options on a command line that decide over the guest's memory.
struct MemoryOptions {
    machine: QemuOptions,
    objects: Vec<QemuOptions>,
    devices: Vec<QemuOptions>,
    numa: Vec<QemuOptions>,
}

impl MemoryOptions {
    fn parse(line: &CommandLine) -> Self {
        let parsed =
            |name: &str, implied| values(line, &[name]).map(|text| QemuOptions::parse(text, implied)).collect();
        Self {
            machine: QemuOptions::merged(line, &["machine", "M"], "type"),
            objects: parsed("object", "qom-type"),
            devices: parsed("device", "driver"),
            numa: parsed("numa", "type"),
        }
    }

    fn object(&self, id: &str) -> Option<&QemuOptions> {
        self.objects.iter().find(|object| object.get("id") == Some(id))
    }

    /// Returns the ids of the objects that are the guest's memory at its start; none if QEMU makes memory of its own.
    fn initial(&self) -> Vec<&str> {
        let of_nodes = self.numa.iter().filter_map(|node| node.get("memdev"));
        let named: Vec<&str> = self.machine.get("memory-backend").into_iter().chain(of_nodes).collect();
        if !named.is_empty() {
            return named;
        }
        // The id of a machine's own memory, which libvirt takes for its object: `pc.ram`, `mach-virt.ram`.
        let is_devices = |id: &&str| self.devices.iter().any(|device| device.get("memdev") == Some(*id));
        let ids = self.objects.iter().filter_map(|object| object.get("id"));
        ids.filter(|id| id.ends_with(".ram") && !is_devices(id)).collect()
    }

    /// Returns the ids of the objects that memory devices bring. A file that can't be written to, such as the image of
    /// Kata's guests, stays one of the page cache.
    fn plugged(&self) -> impl Iterator<Item = &str> {
        let is_memory = |device: &&QemuOptions| {
            let driver = device.get("driver").unwrap_or_default();
            let is_kind =
                |kind: &&str| driver.strip_prefix(*kind).is_some_and(|end| ["", "-pci", "-ccw"].contains(&end));
            MEMORY_DEVICES.iter().any(is_kind)
        };
        let is_written = |id: &&str| self.object(id).is_none_or(|object| object.switch("readonly") != Some(true));
        self.devices.iter().filter(is_memory).filter_map(|device| device.get("memdev")).filter(is_written)
    }
}

/// Returns true if each object that is the guest's memory has `merge=off`.
pub(in crate::hypervisor) fn has_merge_off(line: &CommandLine) -> bool {
    let options = MemoryOptions::parse(line);
    let initial = options.initial();
    let is_off = |id: &str| options.object(id).is_some_and(|object| object.switch("merge") == Some(false));
    !initial.is_empty() && initial.iter().copied().chain(options.plugged()).all(is_off)
}

/// Returns the reason why no page of this guest can merge: a device of the host pins its memory (`vfio`, `vdpa`), the
/// host may not read it, or it lies in memory that KSM skips.
pub(in crate::hypervisor) fn obstacle(line: &CommandLine) -> Option<&'static str> {
    let options = MemoryOptions::parse(line);
    let drivers = || options.devices.iter().filter_map(|device| device.get("driver"));
    let is_vfio = |driver: &str| driver.starts_with("vfio-") && !PIN_LITTLE.iter().any(|it| driver.starts_with(it));
    if drivers().any(is_vfio) {
        return Some("vfio");
    }
    let is_vdpa = |kind: &str| kind.starts_with("vhost-vdpa");
    let mut netdevs = values(line, &["netdev"]).map(|text| QemuOptions::parse(text, "type"));
    if netdevs.any(|netdev| netdev.get("type").is_some_and(is_vdpa)) || drivers().any(is_vdpa) {
        return Some("vdpa");
    }
    let machine = &options.machine;
    let guard = machine.get("confidential-guest-support").or_else(|| machine.get("memory-encryption"));
    let guard = guard.and_then(|id| options.object(id)).and_then(|object| object.get("qom-type"));
    if let Some((_, word)) = CONFIDENTIAL.iter().find(|(kind, _)| guard == Some(*kind)) {
        return Some(word);
    }
    let initial = options.initial();
    let of_object = |id: &str| options.object(id).and_then(of_backend);
    let mut obstacles: Vec<Option<&'static str>> =
        initial.iter().copied().chain(options.plugged()).map(of_object).collect();
    if initial.is_empty() {
        let path = values(line, &["mem-path"]).last();
        obstacles.push(path.filter(|path| is_huge_path(path)).map(|_| HUGE));
    }
    // One part that can merge is enough.
    obstacles.iter().all(Option::is_some).then(|| obstacles.first().copied().flatten()).flatten()
}

/// The word for huge pages of hugetlbfs, and that for a shared mapping.
const HUGE: &str = "hugepages";
const SHARED: &str = "shared";

/// Returns the reason why no page of a memory backend can merge.
fn of_backend(object: &QemuOptions) -> Option<&'static str> {
    let kind = object.get("qom-type").unwrap_or_default();
    let is_on = |key: &str| object.switch(key) == Some(true);
    let path = object.get("mem-path").unwrap_or_default();
    if ["memory-backend-memfd-private", "memory-backend-guest-memfd"].contains(&kind) || is_on("guest-memfd") {
        Some("guest_memfd")
    } else if is_on("hugetlb") || is_huge_path(path) {
        Some(HUGE)
    } else if kind == "memory-backend-epc" || path.starts_with("/dev/dax") {
        Some("device")
    } else {
        let is_shared = match kind {
            "memory-backend-shm" => true,
            "memory-backend-memfd" => object.switch("share") != Some(false),
            _ => is_on("share"),
        };
        is_shared.then_some(SHARED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<&'static str> {
        obstacle(&CommandLine::parse(format!("qemu {text}").replace(' ', "\0").as_bytes()))
    }

    /// The obstacle of a guest with this object as its memory.
    fn of_memory(object: &str) -> Option<&'static str> {
        of(&format!("-machine q35,memory-backend=m -object {object}"))
    }

    #[test]
    fn memory_that_can_not_merge_is_told_by_its_cause() {
        for (object, expected) in [
            ("memory-backend-ram,id=m,size=1G", None),
            ("memory-backend-ram,id=m,size=1G,share=on", Some("shared")),
            ("memory-backend-file,id=m,size=1G,mem-path=/dev/shm/m,share=on", Some("shared")),
            ("memory-backend-file,id=m,size=1G,mem-path=/dev/shm/m,share=yes", Some("shared")),
            ("memory-backend-file,id=m,size=1G,mem-path=/srv/m", None),
            ("memory-backend-file,id=m,size=1G,mem-path=/srv/m,share=off", None),
            ("memory-backend-file,id=m,mem-path=/dev/hugepages/libvirt/qemu/1-web", Some("hugepages")),
            ("memory-backend-file,id=m,mem-path=/mnt/huge,share=on", Some("hugepages")),
            ("memory-backend-file,id=m,mem-path=/var/lib/libvirt/qemu/ram/3-hugepages-off/m", None),
            ("memory-backend-file,id=m,mem-path=/dev/dax0.0,share=on,pmem=on", Some("device")),
            ("memory-backend-memfd,id=m,size=1G", Some("shared")),
            ("memory-backend-memfd,id=m,size=1G,share=off", None),
            ("memory-backend-memfd,id=m,size=1G,hugetlb=on,share=off", Some("hugepages")),
            ("memory-backend-memfd,share=on,id=hugetlb=on,id=m", Some("shared")),
            ("memory-backend-shm,id=m,size=1G", Some("shared")),
            ("memory-backend-memfd-private,id=m,share=true", Some("guest_memfd")),
            (r#"{"qom-type":"memory-backend-ram","id":"m","size":1024}"#, None),
            (r#"{"qom-type":"memory-backend-memfd","id":"m","share":false}"#, None),
            (r#"{"qom-type":"memory-backend-memfd","id":"m","share":true}"#, Some("shared")),
            (r#"{"qom-type":"memory-backend-memfd","id":"m","hugetlb":true}"#, Some("hugepages")),
            (r#"{"qom-type":"memory-backend-file","id":"m","mem-path":"/dev/hugepages/m"}"#, Some("hugepages")),
        ] {
            assert_eq!(of_memory(object), expected, "{object}");
        }
    }

    #[test]
    fn only_objects_that_are_the_guests_memory_count() {
        let shared = "-object memory-backend-file,id=s,mem-path=/dev/shm/s,share=on,size=32M";
        let private = "-object memory-backend-ram,id=p,size=1G";
        let huge = "-object memory-backend-file,id=h,mem-path=/dev/hugepages,size=1G";
        for (line, expected) in [
            ("-m 1G".to_owned(), None),
            (format!("-m 1G {shared} -device ivshmem-plain,memdev=s"), None),
            (format!("-m 1G {shared} -device pc-dimm,memdev=s"), None),
            (format!("{private} -machine memory-backend=p {shared} -device virtio-pmem-pci,memdev=s"), None),
            (format!("{shared} -machine pc -M memory-backend=s"), Some("shared")),
            (format!("{shared} {private} -machine memory-backend=s -machine memory-backend=p"), None),
            (format!("{shared} -numa node,nodeid=0,memdev=s"), Some("shared")),
            (format!("{shared} {private} -numa node,memdev=s -numa node,memdev=p"), None),
            (format!("{huge} {private} -numa node,memdev=h -numa node,memdev=p"), None),
            (format!("{huge} {shared} -numa node,memdev=h -numa node,memdev=s"), Some("hugepages")),
            (format!("{shared} {private} -machine memory-backend=s -device virtio-mem-pci,memdev=p"), None),
            (format!("{shared} -machine memory-backend=unknown"), None),
            (
                format!(
                    "{shared} -numa node,memdev=s -device nvdimm,id=nv0,memdev=i,unarmed=on -object \
                     memory-backend-file,id=i,mem-path=/opt/kata.img,size=128M,readonly=on"
                ),
                Some("shared"),
            ),
            ("-object memory-backend-memfd,id=pc.ram,size=1G".to_owned(), Some("shared")),
            ("-object memory-backend-memfd,id=x.ram,size=1G -device ivshmem-plain,memdev=x.ram".to_owned(), None),
            ("-mem-path /dev/hugepages".to_owned(), Some("hugepages")),
            ("-mem-path /mnt/huge -mem-path /srv/ram".to_owned(), None),
        ] {
            assert_eq!(of(&line), expected, "{line}");
        }
    }

    #[test]
    fn memory_whose_objects_have_merge_off_is_not_offered() {
        let off = "-object memory-backend-ram,id=p,size=1G,merge=off";
        let on = "-object memory-backend-ram,id=q,size=1G";
        for (line, expected) in [
            (format!("{off} -machine memory-backend=p"), true),
            (format!("{off} {on} -numa node,memdev=p -numa node,memdev=q"), false),
            (format!("{off} {on} -machine memory-backend=p -device pc-dimm,memdev=q"), false),
            (format!("{off} -m 1G -device pc-dimm,memdev=p"), false),
            (r#"-object {"qom-type":"memory-backend-ram","id":"pc.ram","merge":false}"#.to_owned(), true),
            ("-m 1G".to_owned(), false),
        ] {
            assert_eq!(
                has_merge_off(&CommandLine::parse(format!("qemu {line}").replace(' ', "\0").as_bytes())),
                expected,
                "{line}"
            );
        }
    }

    #[test]
    fn a_device_of_the_host_pins_memory() {
        assert_eq!(of("-device vfio-pci,host=01:00.0"), Some("vfio"));
        assert_eq!(of(r#"-device {"driver":"vfio-pci-nohotplug","host":"0000:01:00.0"}"#), Some("vfio"));
        for line in [
            "-netdev vhost-vdpa,id=n,vhostdev=/dev/vhost-vdpa-0",
            r#"-netdev {"type":"vhost-vdpa","id":"n","vhostdev":"/dev/vhost-vdpa-0"}"#,
            "-device vhost-vdpa-device-pci,vhostdev=/dev/vhost-vdpa-0",
        ] {
            assert_eq!(of(line), Some("vdpa"), "{line}");
        }
        assert_eq!(of("-netdev vhost-user,id=vhost-vdpa,chardev=c -device virtio-net-pci,netdev=vhost-vdpa"), None);
        assert_eq!(of("-device virtio-net-pci,id=vfio-net"), None);
        for device in ["vfio-user-pci,socket=/run/s", "vfio-ap,sysfsdev=/sys/x", "vfio-ccw,sysfsdev=/sys/x"] {
            assert_eq!(of(&format!("-device {device}")), None, "{device}");
        }
    }

    #[test]
    fn memory_of_confidential_guests_is_not_for_the_host() {
        for (object, expected) in [
            ("sev-guest,id=c,cbitpos=51", Some("sev")),
            ("sev-snp-guest,id=c,policy=0x30000", Some("sev-snp")),
            (r#"{"qom-type":"tdx-guest","id":"c","quote-generation-socket":{"type":"vsock"}}"#, Some("tdx")),
            ("pef-guest,id=c", Some("pef")),
            ("nocc,id=c", None),
            ("sev-guest,id=other", None),
        ] {
            for key in ["confidential-guest-support", "memory-encryption"] {
                assert_eq!(of(&format!("-machine q35,{key}=c -object {object}")), expected, "{object}");
            }
            assert_eq!(of(&format!("-machine q35 -object {object}")), None);
        }
    }
}
