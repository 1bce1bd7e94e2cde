//! QEMU under Proxmox VE.
//!
//! Proxmox VE starts each guest as root with `-id VMID -name NAME` and a QMP socket at `/var/run/qemu-server/VMID.qmp`.
//! Its own programs connect there for each query and close the connection, since QEMU serves one peer at a time; ksmith
//! does the same. The other monitor, `qmp-event`, is a connection that QEMU makes to `/var/run/qmeventd.sock`: no peer
//! of QEMU may connect there.
//!
//! The name on the command line is that in `/etc/pve/qemu-server/VMID.conf` when the guest was started. So the file,
//! which lies in the cluster's own file system and may hang with it, is not read for a name.
//!
//! Source: qemu-server, `src/PVE/QemuServer.pm` (`config_to_command`) and `src/PVE/QMPClient.pm`.

mod balloon;

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

pub use self::balloon::balloon_of_proxmox;
use super::{ClaimedIdentity, GuestTarget, Hypervisor, MonitorSocket, qemu};

/// Name of the manager.
pub const MANAGER: &str = "proxmox";

/// QEMU under Proxmox VE.
#[derive(Debug)]
pub(super) struct Proxmox;

impl Hypervisor for Proxmox {
    fn kind(&self) -> GuestKind {
        qemu::KIND
    }

    fn manager(&self) -> Option<&'static str> {
        Some(MANAGER)
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        let number = vmid(line)?;
        Some(ClaimedIdentity { number: Some(number), ..qemu::looks(line) })
    }

    fn kept_out(&self, line: &CommandLine) -> Option<String> {
        let number = vmid(line).filter(|_| qemu::is_kept_out(line))?;
        Some(format!(
            "{}: Proxmox VE does so for allow-ksm: 0; `qm set {number} --allow-ksm 1` holds from its next start on",
            qemu::KEPT_OUT
        ))
    }

    fn monitors(&self, line: &CommandLine) -> Vec<MonitorSocket> {
        qemu::monitors(line)
    }

    fn permanently(&self, target: &GuestTarget, on: bool) -> String {
        let id = target.identity.number.map_or_else(|| "VMID".to_owned(), |number| number.to_string());
        format!("Proxmox VE manages it: `qm set {id} --allow-ksm {}` holds from its next start on", u8::from(on))
    }
}

/// Returns the VMID, if the guest's monitor has Proxmox VE's path. Only Proxmox VE's own QEMU has the option `-id`.
fn vmid(line: &CommandLine) -> Option<u32> {
    let of_place = |place: &MonitorSocket| match place {
        MonitorSocket::Path(path) => path.strip_prefix("/var/run/qemu-server/")?.strip_suffix(".qmp")?.parse().ok(),
        MonitorSocket::Inherited => None,
    };
    let id = qemu::monitors(line).iter().find_map(of_place)?;
    line.option("-id").is_none_or(|option| option.parse() == Ok(id)).then_some(id)
}

#[cfg(test)]
mod tests {
    use crate::hypervisor::{MonitorSocket, recognise};
    use ksmith_core::kernel::CommandLine;

    /// The beginning of the command line of qemu-server 9.2, `src/test/cfg2cmd/simple1.conf.cmd`.
    const LINE: &str = "/usr/bin/kvm -id 8006 -name simple -no-shutdown \
        -chardev socket,id=qmp,path=/var/run/qemu-server/8006.qmp,server=on,wait=off -mon chardev=qmp,mode=control \
        -chardev socket,id=qmp-event,path=/var/run/qmeventd.sock,reconnect-ms=5000 -mon chardev=qmp-event,mode=control \
        -pidfile /var/run/qemu-server/8006.pid -daemonize -smbios type=1,uuid=7b10d7af-b932-4c66-b2c3-3996152ec465 \
        -smp 3,sockets=1,cores=3,maxcpus=3 -nodefaults -m 768 -machine hpet=off,type=pc+pve0";

    fn found(text: &str) -> crate::hypervisor::RecognisedProcess {
        let words: Vec<&str> = text.split_whitespace().collect();
        recognise("kvm", &CommandLine::parse(words.join("\0").as_bytes()), None, 1, None)
    }

    #[test]
    fn a_guest_is_known_by_vmid_name_and_uuid() {
        let guest = found(LINE);
        let identity = guest.identity;
        assert_eq!(
            (identity.manager, identity.number, identity.name.as_str()),
            (Some("proxmox"), Some(8006), "simple")
        );
        assert_eq!(identity.uuid.as_deref(), Some("7b10d7af-b932-4c66-b2c3-3996152ec465"));
        assert_eq!((identity.kind.word(), identity.memory_bytes), ("qemu", Some(768 << 20)));
    }

    #[test]
    fn only_the_socket_that_qemu_serves_is_a_monitor() {
        assert_eq!(found(LINE).monitors, [MonitorSocket::Path("/var/run/qemu-server/8006.qmp".to_owned())]);
    }

    #[test]
    fn memory_that_is_set_up_by_numa_nodes_is_known_too() {
        let hotplug = LINE.replace("-m 768", "-m size=1024,slots=255,maxmem=4194304M");
        assert_eq!(found(&hotplug).identity.memory_bytes, Some(1 << 30));
    }

    #[test]
    fn a_guest_that_may_not_merge_is_told_by_its_option() {
        let why = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            crate::hypervisor::kept_out("kvm", &CommandLine::parse(words.join("\0").as_bytes()))
        };
        assert_eq!(why(LINE), None);
        let off = LINE.replace("type=pc+pve0", "type=pc+pve0,mem-merge=off");
        assert!(why(&off).unwrap().contains("`qm set 8006 --allow-ksm 1`"));
        let of_other = off.replace("8006.qmp", "1.qmp");
        assert!(why(&of_other).unwrap().ends_with("start it with -machine mem-merge=on"));
        assert_eq!(why(&format!("{off} -M mem-merge=on")), None);
        let object = "kvm -object memory-backend-ram,id=m,merge=off -machine memory-backend=m";
        assert!(why(object).unwrap().ends_with("start it without that"));
        assert_eq!(crate::hypervisor::kept_out("sh", &CommandLine::parse(b"sh\0-M\0mem-merge=off")), None);
    }

    #[test]
    fn other_guests_with_an_id_are_not_of_proxmox() {
        for other in [
            LINE.replace("qemu-server/8006.qmp", "qemu-server/8007.qmp"),
            LINE.replace("-id 8006", "-id 8007"),
            LINE.replace("8006", "web"),
        ] {
            let identity = found(&other).identity;
            assert_eq!(
                (identity.manager, identity.number, identity.name.as_str()),
                (None, None, "simple"),
                "{other}"
            );
        }
    }
}
