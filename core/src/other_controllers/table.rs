//! The table itself: a row for each controller that is known.

use super::{ControllerConflict, HandOver, OtherController, name};

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
        does: "this patch of the kernel merges pages by itself, in the place of KSM",
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
        does: "advisor_mode=scan-time: the kernel corrects pages_to_scan once per pass, and scans an idle host for ever",
        settings: &["pages_to_scan"],
        programs: &[],
        services: &[],
        package: None,
        conflict: ControllerConflict::None,
        can_be_paused: false,
        hand_over: HandOver::Nothing,
    },
];
