//! The table itself: a row for each controller that is known.

use super::{ControllerConflict, HandOver, OtherController, name};

/// The common part of rows for files that are read once at boot, without a program or a service of their own.
const AT_BOOT: OtherController = OtherController {
    name: "",
    does: "",
    settings: &["run"],
    programs: &[],
    services: &[],
    package: None,
    conflict: ControllerConflict::AtStart,
    can_be_paused: false,
    hand_over: HandOver::Lines,
};

/// The table of all controllers. Where two rows fit, the first one counts.
pub const OTHER_CONTROLLERS: &[OtherController] = &[
    OtherController {
        name: "ksmtuned of Proxmox VE",
        does: "each minute it compares the memory of all virtual machines with the free memory, and scans faster or slower",
        settings: &["run", "pages_to_scan", "sleep_millisecs"],
        programs: &["ksmtuned"],
        services: &["ksmtuned.service"],
        package: Some("usr/share/doc/ksm-control-daemon"),
        conflict: ControllerConflict::Certain,
        can_be_paused: true,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: "ksmtuned",
        does: "each minute it compares the memory of all virtual machines with the free memory, and scans faster or slower",
        settings: &["run", "pages_to_scan", "sleep_millisecs"],
        programs: &["ksmtuned"],
        services: &["ksmtuned.service"],
        package: None,
        conflict: ControllerConflict::Certain,
        can_be_paused: true,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: "ksm.service",
        does: "it switches KSM on when it starts, at boot, and off when it stops",
        settings: &["run", "max_kernel_pages"],
        programs: &[],
        services: &["ksm.service"],
        package: None,
        conflict: ControllerConflict::AtStart,
        can_be_paused: false,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: name::QEMU_KVM_OFF,
        does: "Ubuntu's QEMU switches KSM off at boot and when it is upgraded, as /etc/default/qemu-kvm says \
               (KSM_ENABLED=0)",
        settings: &["run"],
        programs: &[],
        services: &["qemu-kvm.service"],
        package: None,
        conflict: ControllerConflict::AtStart,
        can_be_paused: false,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: name::QEMU_KVM,
        does: "Ubuntu's QEMU switches KSM on at boot and when it is upgraded, unless the host is a guest itself, as \
               /etc/default/qemu-kvm says (KSM_ENABLED=AUTO)",
        settings: &["run", "sleep_millisecs"],
        programs: &[],
        services: &["qemu-kvm.service"],
        package: None,
        conflict: ControllerConflict::AtStart,
        can_be_paused: false,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: "enable-ksm.service",
        does: "NixOS switches KSM on when it starts, at boot and after a rebuild (hardware.ksm.enable)",
        settings: &["run", "sleep_millisecs"],
        programs: &[],
        services: &["enable-ksm.service"],
        package: None,
        conflict: ControllerConflict::AtStart,
        can_be_paused: false,
        hand_over: HandOver::Commands {
            over: &["nixos-rebuild switch"],
            back: &["nixos-rebuild switch"],
            note: "with hardware.ksm.enable = false in the configuration, and true to hand back",
        },
    },
    OtherController {
        name: name::TMPFILES,
        does: "it writes the lines of these files at boot, and when a package with such files is installed",
        hand_over: HandOver::Lines,
        ..AT_BOOT
    },
    OtherController {
        name: name::SYSFS,
        does: "it writes the lines of these files when it starts, at boot",
        hand_over: HandOver::Lines,
        ..AT_BOOT
    },
    OtherController {
        name: name::BOOT_SCRIPTS,
        does: "a script, a crontab, a udev rule, a modprobe or cloud-init command, or a drop-in of a unit writes \
            to KSM at boot, or on its event",
        hand_over: HandOver::Commands {
            over: &["editor FILE"],
            back: &["editor FILE"],
            note: "comment out the lines that write to KSM with #, and uncomment them to hand back",
        },
        ..AT_BOOT
    },
    OtherController {
        name: name::OTHER_UNITS,
        does: "a systemd unit that is enabled here, or started by a timer, a path or a socket, has a command or \
            a script that writes to KSM",
        hand_over: HandOver::Commands {
            over: &["systemctl disable --now UNIT"],
            back: &["systemctl enable --now UNIT"],
            note: "UNIT is the name of the file",
        },
        ..AT_BOOT
    },
    OtherController {
        name: "harvester-node-manager",
        does: "Harvester's node manager compares used with free memory and scans faster or slower, on nodes whose \
               ksmtuned object says run",
        settings: &["run", "pages_to_scan", "sleep_millisecs", "merge_across_nodes"],
        programs: &["harvester-node-manager", "node-manager"],
        services: &[],
        package: None,
        conflict: ControllerConflict::Possible,
        // Kubernetes would start it again.
        can_be_paused: false,
        hand_over: HandOver::Commands {
            over: &["kubectl patch ksmtuned NODE --type=merge -p '{\"spec\":{\"run\":\"stop\"}}'"],
            back: &["kubectl patch ksmtuned NODE --type=merge -p '{\"spec\":{\"run\":\"run\"}}'"],
            note: "NODE is the name of this node; with stop, Harvester's default, it leaves KSM alone",
        },
    },
    OtherController {
        name: "momd",
        does: "oVirt's memory overcommitment manager compares used with free memory every ten seconds, scans faster \
               or slower, and moves the guests' balloons",
        settings: &["run", "pages_to_scan", "sleep_millisecs", "merge_across_nodes"],
        programs: &["momd"],
        services: &["mom-vdsm.service", "momd.service"],
        package: None,
        conflict: ControllerConflict::Certain,
        can_be_paused: true,
        // vdsmd has Wants=mom-vdsm.service.
        hand_over: HandOver::Masks {
            note: "it also moves the guests' balloons, which end with it; switching KSM off in the cluster's settings \
                   of oVirt keeps them",
        },
    },
    OtherController {
        name: name::TUNED,
        does: "it writes what its profile says when the profile is applied, at boot, and undoes it when it stops",
        settings: &["run"],
        programs: &["tuned"],
        services: &["tuned.service"],
        package: None,
        conflict: ControllerConflict::Certain,
        // It answers requests over D-Bus, which would hang.
        can_be_paused: false,
        hand_over: HandOver::Profile {
            note: "a profile that switches KSM off in a script, as cpu-partitioning does, means hosts without merging: \
                   choose another profile there",
        },
    },
    OtherController {
        name: "virt-handler",
        does: "KubeVirt's handler switches KSM on while less than a fifth of the memory is available, on nodes that \
               ksmConfiguration selects (label kubevirt.io/ksm-enabled=true)",
        settings: &["run", "pages_to_scan", "sleep_millisecs"],
        programs: &["virt-handler"],
        services: &[],
        package: None,
        conflict: ControllerConflict::Possible,
        // Its probes of liveness would end it.
        can_be_paused: false,
        hand_over: HandOver::Commands {
            over: &[
                "kubectl -n kubevirt get kubevirt kubevirt -o jsonpath='{.spec.configuration.ksmConfiguration}'",
                "kubectl -n kubevirt patch kubevirt kubevirt --type=merge -p '{\"spec\":{\"configuration\":{\"ksmConfiguration\":null}}}'",
            ],
            back: &[
                "kubectl -n kubevirt patch kubevirt kubevirt --type=merge -p '{\"spec\":{\"configuration\":{\"ksmConfiguration\":OLD}}}'",
            ],
            note: "the first command prints OLD, which hands back; if it prints nothing, virt-handler leaves KSM alone",
        },
    },
    OtherController {
        name: "uksmd",
        does: "on a patched kernel it makes all processes mergeable; it switches KSM on when it starts, and unmerges \
               everything when it ends",
        settings: &["run"],
        programs: &["uksmd"],
        services: &["uksmd.service"],
        package: None,
        conflict: ControllerConflict::Certain,
        // systemd's watchdog would end it.
        can_be_paused: false,
        hand_over: HandOver::Services,
    },
    OtherController {
        name: name::UKSM,
        does: "this kernel patch merges pages by itself, in place of KSM",
        settings: &[],
        programs: &[],
        services: &[],
        package: None,
        conflict: ControllerConflict::InPlaceOfKsm,
        can_be_paused: false,
        hand_over: HandOver::Commands {
            over: &["echo 0 > /sys/kernel/mm/uksm/run"],
            back: &["echo 1 > /sys/kernel/mm/uksm/run"],
            note: "ksmith controls KSM only: boot a kernel with CONFIG_KSM and without UKSM",
        },
    },
    OtherController {
        name: name::ADVISOR,
        does: "advisor_mode=scan-time: the kernel corrects pages_to_scan once per pass, and scans an idle host \
            forever",
        settings: &["pages_to_scan"],
        programs: &[],
        services: &[],
        package: None,
        conflict: ControllerConflict::None,
        can_be_paused: false,
        hand_over: HandOver::Nothing,
    },
];
