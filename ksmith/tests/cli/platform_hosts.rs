//! Hosts with guests of the platforms of docs/how-to/platforms.md, and of others, by the command lines, cgroups, mappings and
//! records that these give their guests.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A host with guests of one platform.
pub struct PlatformHost {
    pub name: &'static str,
    /// Its configuration.
    pub config: &'static str,
    /// Other files, with their text.
    files: &'static [(&'static str, &'static str)],
    pub guests: &'static [PlatformGuest],
}

/// A guest as the platform starts it.
pub struct PlatformGuest {
    line: &'static str,
    cgroup: &'static str,
    uid: u32,
    /// Permissions, size in MiB and path of its largest mapping.
    mapping: (&'static str, u64, &'static str),
    /// The metadata in libvirt's record, if it has one.
    record: Option<&'static str>,
    /// Name, kind, manager, memory in MiB, obstacle, domain, labels, and true if it is verified.
    pub golden: &'static str,
}

const PRIVATE: (&str, u64, &str) = ("rw-p", 2048, "");

const PLAIN: PlatformGuest =
    PlatformGuest { line: "", cgroup: "/", uid: 0, mapping: PRIVATE, record: None, golden: "" };

/// A pod of Kubernetes, a container in it, and the kubelet's files for them.
const POD: &str = "0d8f3d1e-3c4b-4c1e-9a52-6a1d0e5b7f10";
const CONTAINER: &str = "4f1c0b7e9a3d5e6f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7";
const SANDBOX: &str = "9a3d5e6f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f74f1c0b7e";

pub const HOSTS: &[PlatformHost] = &[
    PlatformHost {
        name: "Incus and LXD",
        config: "[[domains.rule]]\ndomain = \"blue\"\nname = \"blue_*\"\n[[guests.label]]\nlabel = \"role\"\n\
                 value = \"web\"\nname = \"web*\"\n",
        files: &[(
            "run/incus/web/qemu.conf",
            "# Memory\n[memory]\nsize = \"2048M\"\n\n[object \"mem0\"]\nqom-type = \"memory-backend-memfd\"\n\
             size = \"2048M\"\nshare = \"on\"\n\n[numa]\ntype = \"node\"\nnodeid = \"0\"\nmemdev = \"mem0\"\n",
        )],
        guests: &[
            PlatformGuest {
                line: "/opt/incus/bin/qemu-system-x86_64 -S -name web -uuid 0e44be5a-ff12-52fb-9413-07b52f3593c3 -daemonize \
                       -nodefaults -no-user-config -readconfig /run/incus/web/qemu.conf -pidfile /run/incus/web/qemu.pid",
                cgroup: "/system.slice/incus.service",
                mapping: ("rw-s", 2048, "/memfd:memory-backend-memfd (deleted)"),
                golden: "web qemu - 2048 shared - role=web true",
                ..PLAIN
            },
            PlatformGuest {
                line: "/snap/lxd/current/bin/qemu-system-x86_64 -S -name own -uuid 0e44be5a-ff12-52fb-9413-07b52f3593c4 -daemonize \
                       -nodefaults -readconfig /var/snap/lxd/common/lxd/logs/own/qemu.conf",
                cgroup: "/system.slice/snap.lxd.daemon.service",
                golden: "own qemu - - - - - true",
                ..PLAIN
            },
            PlatformGuest {
                line: "nginx",
                cgroup: "/lxc.payload.blue_shop/init.scope",
                golden: "blue_shop container - - - blue - true",
                ..PLAIN
            },
        ],
    },
    PlatformHost {
        name: "OpenNebula",
        config: "[[domains.rule]]\ndomain = \"cloud\"\nname = \"one-*\"\n",
        files: &[],
        guests: &[
            PlatformGuest {
                line: "/usr/bin/qemu-kvm-one -name guest=one-42,debug-threads=on -S -machine \
                       pc-i440fx-7.2,usb=off,dump-guest-core=off,memory-backend=pc.ram -m size=2097152k -object \
                       {\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":2147483648} -uuid UUID MONITOR",
                cgroup: "/machine.slice/machine-qemu\\x2d3\\x2done\\x2d42.scope/libvirt/emulator",
                uid: 9869,
                record: Some("<one:vm xmlns:one='http://opennebula.org/xmlns/libvirt/1.0'/>"),
                golden: "one-42 qemu libvirt 2048 - cloud - true",
                ..PLAIN
            },
            // Its user has no record of libvirt for it.
            PlatformGuest {
                line: "/usr/bin/qemu-kvm-one -name guest=one-43 -m 512 MONITOR",
                cgroup: "/user.slice/user-1000.slice/session-1.scope",
                uid: 1000,
                golden: "one-43 qemu libvirt 512 - - - false",
                ..PLAIN
            },
        ],
    },
    PlatformHost {
        name: "OpenStack Nova",
        config: "[[domains.rule]]\ndomain = \"project-a\"\nmetadata = '*<nova:project uuid=\"6f70656e\"*'\n[[guests.label]]\n\
                 label = \"flavor\"\nvalue = \"large\"\nmetadata = '*<nova:flavor name=\"m1.large\"*'\n",
        files: &[],
        guests: &[
            PlatformGuest {
                line: "/usr/bin/qemu-system-x86_64 -name guest=instance-0000001a,debug-threads=on -S -machine q35,usb=off -m \
                       size=4194304k -object {\"qom-type\":\"memory-backend-ram\",\"id\":\"pc.ram\",\"size\":4294967296} -machine \
                       memory-backend=pc.ram -uuid UUID MONITOR",
                cgroup: "/machine.slice/machine-qemu\\x2d3\\x2dinstance\\x2d0000001a.scope/libvirt/emulator",
                uid: 64055,
                mapping: ("rw-p", 4096, ""),
                record: Some(
                    "<nova:instance xmlns:nova=\"http://openstack.org/xmlns/libvirt/nova/1.1\"><nova:flavor name=\"m1.large\"/>\
                     <nova:owner><nova:project uuid=\"6f70656e\">a</nova:project></nova:owner></nova:instance>",
                ),
                golden: "instance-0000001a qemu libvirt 4096 - project-a flavor=large true",
            },
            // hw:mem_page_size=large
            PlatformGuest {
                line: "/usr/bin/qemu-system-x86_64 -name guest=instance-0000001b,debug-threads=on -S -m size=1048576k -object \
                       {\"qom-type\":\"memory-backend-file\",\"id\":\"ram-node0\",\"mem-path\":\"/dev/hugepages/libvirt/qemu/7-instance-0000001b\",\
                       \"prealloc\":true,\"size\":1073741824,\"host-nodes\":[0],\"policy\":\"bind\"} -numa \
                       node,nodeid=0,cpus=0-1,memdev=ram-node0 -uuid UUID MONITOR",
                cgroup: "/machine.slice/machine-qemu\\x2d4\\x2dinstance\\x2d0000001b.scope/libvirt/emulator",
                uid: 64055,
                mapping: ("rw-p", 1024, "/dev/hugepages/libvirt/qemu/7-instance-0000001b (deleted)"),
                record: Some("<nova:instance xmlns:nova=\"http://openstack.org/xmlns/libvirt/nova/1.1\"/>"),
                golden: "instance-0000001b qemu libvirt 1024 hugepages - - true",
            },
            // file_backed_memory
            PlatformGuest {
                line: "/usr/bin/qemu-system-x86_64 -name guest=instance-0000001c,debug-threads=on -S -m size=1048576k -object \
                       {\"qom-type\":\"memory-backend-file\",\"id\":\"ram-node0\",\"mem-path\":\"/var/lib/libvirt/qemu/ram/9-instance-0000001c/ram-node0\",\
                       \"share\":true,\"size\":1073741824} -numa node,nodeid=0,cpus=0-1,memdev=ram-node0 -uuid UUID MONITOR",
                cgroup: "/machine.slice/machine-qemu\\x2d5\\x2dinstance\\x2d0000001c.scope/libvirt/emulator",
                uid: 64055,
                mapping: ("rw-s", 1024, "/var/lib/libvirt/qemu/ram/9-instance-0000001c/ram-node0"),
                record: Some(""),
                golden: "instance-0000001c qemu libvirt 1024 shared - - true",
            },
            // hw:mem_encryption
            PlatformGuest {
                line: "/usr/bin/qemu-system-x86_64 -name guest=instance-0000001d -machine q35,confidential-guest-support=lsec0 -m \
                       1024 -object {\"qom-type\":\"sev-guest\",\"id\":\"lsec0\",\"cbitpos\":47} -uuid UUID MONITOR",
                cgroup: "/machine.slice/machine-qemu\\x2d6\\x2dinstance\\x2d0000001d.scope/libvirt/emulator",
                uid: 64055,
                mapping: ("rw-p", 1024, ""),
                record: Some(""),
                golden: "instance-0000001d qemu libvirt 1024 sev - - true",
            },
        ],
    },
    PlatformHost {
        name: "Kubernetes with Kata Containers and KubeVirt",
        config: "[[domains.rule]]\ndomain = \"shop\"\nname = \"shop/*\"\n",
        files: &[
            ("var/log/pods/shop_web-0_POD/nginx/0.log", ""),
            ("var/log/containers/web-0_shop_nginx-CONTAINER.log", ""),
            ("var/log/pods/shop_virt-launcher-db-x2k9q_1d8f3d1e-3c4b-4c1e-9a52-6a1d0e5b7f10/compute/0.log", ""),
        ],
        guests: &[
            PlatformGuest {
                line: "nginx",
                cgroup: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podSLICE.slice/cri-containerd-CONTAINER.scope",
                uid: 101,
                golden: "shop/web-0/nginx container kubernetes - - shop - true",
                ..PLAIN
            },
            // Memory is shared for virtiofs.
            PlatformGuest {
                line: "/opt/kata/bin/qemu-system-x86_64 -name sandbox-SANDBOX,debug-threads=on -uuid UUID -machine \
                       q35,accel=kvm,nvdimm=on -qmp unix:fd=3,server=on,wait=off -m 2048M,slots=10,maxmem=64G -object \
                       memory-backend-file,id=dimm1,size=2048M,mem-path=/dev/shm,share=on -numa node,memdev=dimm1",
                cgroup: "/kata_overhead/SANDBOX",
                mapping: ("rw-s", 2048, "/dev/shm/qemu_back_mem.dimm1.x (deleted)"),
                golden: "sandbox-SANDBOX qemu - 2048 shared - - true",
                ..PLAIN
            },
            // Its image is an nvdimm of a file that can't be written to; its maps can't be read.
            PlatformGuest {
                line: "/opt/kata/bin/qemu-system-x86_64 -name sandbox-CONTAINER,debug-threads=on -machine q35,accel=kvm,nvdimm=on \
                       -m 1024M -device nvdimm,id=nv0,memdev=mem0,unarmed=on -object \
                       memory-backend-file,id=mem0,mem-path=/opt/kata/share/kata.img,size=134217728,readonly=on -object \
                       memory-backend-file,id=dimm1,size=1024M,mem-path=/dev/shm,share=on -numa node,memdev=dimm1",
                cgroup: "/kata_overhead/CONTAINER",
                mapping: ("r--p", 128, "/opt/kata/share/kata.img"),
                golden: "sandbox-CONTAINER qemu - 1024 shared - - true",
                ..PLAIN
            },
            PlatformGuest {
                line: "/opt/kata/bin/cloud-hypervisor --api-socket /run/vc/vm/SANDBOX/clh-api.sock",
                cgroup: "/kata_overhead/SANDBOX",
                mapping: ("rw-s", 2048, "/memfd:ch_ram (deleted)"),
                golden: "SANDBOX cloud-hypervisor - - shared - - true",
                ..PLAIN
            },
            PlatformGuest {
                line: "/usr/libexec/qemu-kvm -name guest=shop_db,debug-threads=on -m size=1048576k -smbios \
                       type=1,manufacturer=KubeVirt MONITOR",
                cgroup: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1d8f3d1e_3c4b_4c1e_9a52_6a1d0e5b7f10.slice/cri-containerd-SANDBOX.scope",
                uid: 107,
                golden: "shop/db qemu kubevirt 1024 - shop - true",
                ..PLAIN
            },
        ],
    },
    PlatformHost {
        name: "Podman, with a pod",
        config: "[[domains.rule]]\ndomain = \"pods\"\ncgroup = \"/machine.slice/machine-libpod_pod_*\"\n",
        files: &[(
            "var/lib/containers/storage/overlay-containers/containers.json",
            "[{\"id\":\"CONTAINER\",\"names\":[\"web\"]},{\"id\":\"SANDBOX\",\"names\":[\"pod-infra\"]}]",
        )],
        guests: &[
            PlatformGuest {
                line: "nginx",
                cgroup: "/machine.slice/machine-libpod_pod_SANDBOX.slice/libpod-CONTAINER.scope",
                golden: "web container podman - - pods - true",
                ..PLAIN
            },
            // Without systemd a pod is a cgroup with its ID alone.
            PlatformGuest {
                line: "/catatonit -P",
                cgroup: "/libpod_parent/CONTAINER/libpod-SANDBOX",
                golden: "pod-infra container podman - - - - true",
                ..PLAIN
            },
        ],
    },
    PlatformHost {
        name: "Proxmox VE",
        config: "[[domains.rule]]\ndomain = \"win\"\nname = \"win*\"\n[[guests.label]]\nlabel = \"tier\"\nvalue = \"gold\"\n\
                 name = \"win*\"\n",
        files: &[],
        guests: &[
            // A Windows guest.
            PlatformGuest {
                line: "/usr/bin/kvm -id 101 -name win11,debug-threads=on -no-shutdown -chardev \
                       socket,id=qmp,path=/var/run/qemu-server/101.qmp,server=on,wait=off -mon chardev=qmp,mode=control -pidfile \
                       /var/run/qemu-server/101.pid -daemonize -smbios type=1,uuid=UUID -smp 4,sockets=1,cores=4,maxcpus=4 -cpu \
                       host,hv_ipi,hv_relaxed,hv_reset,hv_runtime,hv_spinlocks=0x1fff,hv_stimer,hv_synic,hv_time,hv_vapic,hv_vpindex \
                       -m 8192 -machine hpet=off,type=pc-q35-9.2+pve1",
                cgroup: "/qemu.slice/101.scope",
                mapping: ("rw-p", 8192, ""),
                golden: "win11 qemu proxmox 8192 - win tier=gold true",
                ..PLAIN
            },
            PlatformGuest {
                line: "postgres",
                cgroup: "/lxc/102/ns/init.scope",
                uid: 100_106,
                golden: "102 container - - - - - true",
                ..PLAIN
            },
        ],
    },
    PlatformHost {
        name: "user-mode Linux",
        config: "[[guests.label]]\nlabel = \"role\"\nvalue = \"lab\"\nname = \"box*\"\n",
        files: &[],
        guests: &[PlatformGuest {
            line: "linux.uml mem=256M umid=box ubd0=box.cow,base.img con=null",
            cgroup: "/user.slice/user-1000.slice/session-1.scope",
            mapping: ("rwxs", 256, "/dev/shm/vm_file-x2k9q0 (deleted)"),
            golden: "box uml - 256 shared - role=lab true",
            ..PLAIN
        }],
    },
    PlatformHost {
        name: "microVMs",
        config: "[[domains.rule]]\ndomain = \"f\"\ncgroup = \"/system.slice/web1.service\"\n",
        files: &[],
        guests: &[
            // Started from a snapshot, whose file is mapped privately.
            PlatformGuest {
                line: "/usr/bin/firecracker-v1.7.0-x86_64 --id web1 --api-sock /run/web1.sock",
                cgroup: "/system.slice/web1.service",
                mapping: ("rw-p", 512, "/srv/snapshots/web.mem"),
                golden: "web1 firecracker - - - f - true",
                ..PLAIN
            },
            PlatformGuest {
                line: "/usr/bin/cloud-hypervisor --api-socket fd=22 --event-monitor path=/run/x",
                cgroup: "/machine.slice/machine-ch\\x2d1\\x2dmy\\x2dweb.scope",
                golden: "my-web cloud-hypervisor - - - - - true",
                ..PLAIN
            },
            PlatformGuest {
                line: "microvm@db -name db -m 512 -M microvm -object memory-backend-memfd,id=mem,size=512M,share=on -numa \
                       node,memdev=mem",
                cgroup: "/system.slice/system-microvm.slice/microvm@db.service",
                mapping: ("rw-s", 512, "/memfd:memory-backend-memfd (deleted)"),
                golden: "db qemu - 512 shared - - true",
                ..PLAIN
            },
        ],
    },
];

/// Returns a text with the names that stand for longer ones.
pub fn filled(text: &str) -> String {
    let monitor =
        "-chardev socket,id=charmonitor,fd=33,server=on,wait=off -mon chardev=charmonitor,id=monitor,mode=control";
    text.replace("UUID", "9a4b2c1d-7c0e-4d5f-8a55-0b1c2d3e4f50")
        .replace("MONITOR", monitor)
        .replace("SLICE", &POD.replace('-', "_"))
        .replace("POD", POD)
        .replace("CONTAINER", CONTAINER)
        .replace("SANDBOX", SANDBOX)
}

fn put(tree: &Path, file: &str, text: &str) {
    let path = tree.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
}

/// Writes the files of a process, and libvirt's record of it.
fn put_guest(tree: &Path, pid: usize, guest: &PlatformGuest) {
    let (line, cgroup) = (filled(guest.line), filled(guest.cgroup));
    let program = line.split(' ').next().unwrap().rsplit('/').next().unwrap();
    let comm: String =
        if program.starts_with("microvm@") { "qemu-system-x86" } else { program }.chars().take(15).collect();
    let (permissions, size, path) = guest.mapping;
    let (start, end) = (1_u64 << 40, (1_u64 << 40) + (size << 20));
    let ids = format!("{0}\t{0}\t{0}\t{0}", guest.uid);
    for (file, text) in [
        ("comm", format!("{comm}\n")),
        ("cmdline", line.replace(' ', "\0") + "\0"),
        ("stat", format!("{pid} ({comm}) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 4194304 300 0\n")),
        ("status", format!("Name:\t{comm}\nUid:\t{ids}\nGid:\t{ids}\n")),
        ("cgroup", format!("0::{cgroup}\n")),
        (
            "ksm_stat",
            "ksm_rmap_items 160\nksm_merging_pages 112\nksm_merge_any: no\nksm_mergeable: yes\n".to_owned(),
        ),
        ("ksm_merging_pages", "112\n".to_owned()),
        ("maps", format!("{start:x}-{end:x} {permissions} 00000000 00:00 0 {}\n", filled(path))),
    ] {
        put(tree, &format!("proc/{pid}/{file}"), &text);
    }
    if let Some(metadata) = guest.record {
        let name = guest.golden.split(' ').next().unwrap();
        let id = cgroup.split("\\x2d").nth(1).unwrap();
        let record = format!(
            "<domstatus state='running' pid='{pid}'><domain type='kvm' id='{id}'><name>{name}</name><uuid>{}</uuid>\
             <metadata>{metadata}</metadata></domain></domstatus>",
            filled("UUID")
        );
        put(tree, &format!("run/libvirt/qemu/{name}.xml"), &record);
    }
}

impl PlatformHost {
    /// Writes the host's files below `root`, with KSM's of the captured tree of Linux 6.18.
    pub fn write(&self, root: &Path) {
        for directory in ["sys", "proc"] {
            fs::create_dir(root.join(directory)).unwrap();
        }
        let captured = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/linux-6.18/sys/kernel");
        let copied = Command::new("cp").arg("-r").arg(captured).arg(root.join("sys")).status();
        assert!(copied.unwrap().success());
        put(root, "proc/cpuinfo", "vendor_id\t: AuthenticAMD\n");
        put(root, "proc/mounts", "hugetlbfs /dev/hugepages hugetlbfs rw 0 0\n");
        put(root, "etc/passwd", "root:x:0:0::/root:/bin/sh\n");
        put(root, "etc/ksmith.toml", self.config);
        for (file, text) in self.files {
            put(root, &filled(file), &filled(text));
        }
        for (pid, guest) in (100..).zip(self.guests) {
            put_guest(root, pid, guest);
        }
    }
}
