//! A survey of all KSM controllers of a host.

use ksmith_core::kernel::number;
use ksmith_core::other_controllers::{FoundController, OTHER_CONTROLLERS, OtherController, name};

use super::processes::{ControllerProcess, find};
use super::{boot_files, is_installed, services, tuned};
use crate::root::Root;

/// Returns each controller that runs here, starts at boot or is installed as a service, in the order of the table.
pub fn survey(root: &Root) -> Vec<FoundController> {
    let holders = find(root);
    let mut found: Vec<FoundController> = Vec::new();
    for row in OTHER_CONTROLLERS.iter().filter(|row| is_installed(root, row)) {
        // Of two rows with the same services the first one counts.
        let is_taken =
            |other: &FoundController| !row.services.is_empty() && other.controller.services == row.services;
        if !found.iter().any(is_taken) {
            found.extend(found_by(root, row, &holders));
        }
    }
    found
}

fn found_by(root: &Root, row: &'static OtherController, holders: &[ControllerProcess]) -> Option<FoundController> {
    let own: Vec<&ControllerProcess> = holders.iter().filter(|holder| holder.controller == row).collect();
    let profile = match row.name {
        // Without a profile that touches KSM it is no controller of KSM.
        name::TUNED => Some(tuned::profile_with_ksm(root)?),
        _ => None,
    };
    let states = services::states(root, row);
    let found = FoundController {
        controller: row,
        pids: own.iter().map(|holder| holder.id.pid).collect(),
        profile,
        files: boot_files::of(root, row),
        is_on: is_on(root, row),
        states,
    };
    (found.runs() || !found.states.is_empty() || !found.files.is_empty()).then_some(found)
}

/// Returns true if a controller inside the kernel is switched on.
fn is_on(root: &Root, row: &OtherController) -> bool {
    let is_value = |file: &str, wanted: u64| root.text(file).and_then(|text| number(&text)).get() == Some(wanted);
    match row.name {
        name::UKSM => is_value("sys/kernel/mm/uksm/run", 1),
        // The mode that is on stands in brackets.
        name::ADVISOR => {
            let text = root.text("sys/kernel/mm/ksm/advisor_mode");
            text.value().is_some_and(|text| text.contains("[scan-time]"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use ksmith_core::other_controllers::BootState;

    use super::*;
    use crate::root::put_file as put;

    fn link(tree: &Path, path: &str, to: &str) {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    fn names(tree: &Path) -> Vec<&'static str> {
        survey(&Root::at(tree)).iter().map(|found| found.controller.name).collect()
    }

    #[test]
    fn a_host_without_any_has_none() {
        let tree = tempfile::tempdir().unwrap();
        put(tree.path(), "sys/kernel/mm/ksm/advisor_mode", "[none] scan-time\n");
        put(tree.path(), "sys/kernel/mm/uksm/run", "0\n");
        put(tree.path(), "lib/systemd/system/tuned.service", "");
        put(tree.path(), "etc/tuned/active_profile", "virtual-host\n");
        assert!(names(tree.path()).is_empty(), "{:?}", names(tree.path()));
    }

    #[test]
    fn services_are_told_by_systemds_files() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        put(tree.path(), "lib/systemd/system/ksmtuned.service", "[Service]\n");
        put(tree.path(), "lib/systemd/system/ksm.service", "[Service]\n");
        let wants = "etc/systemd/system/multi-user.target.wants";
        link(tree.path(), &format!("{wants}/ksmtuned.service"), "/lib/systemd/system/ksmtuned.service");
        link(tree.path(), "etc/systemd/system/ksm.service", "/dev/null");
        link(tree.path(), "run/systemd/units/invocation:ksmtuned.service", "0123");
        let found = survey(&root);
        let told: Vec<_> = found.iter().map(|f| (f.controller.name, f.runs(), f.states[0].at_boot)).collect();
        assert_eq!(told, [("ksmtuned", true, BootState::Enabled), ("ksm.service", false, BootState::Masked)]);
        assert!(found[0].matters() && !found[1].matters());
        put(tree.path(), "usr/share/doc/ksm-control-daemon/copyright", "");
        assert_eq!(names(tree.path()), ["ksmtuned of Proxmox VE", "ksm.service"]);
    }

    #[test]
    fn whatever_writes_to_ksm_at_boot_is_found_and_what_does_not_is_not() {
        let tree = tempfile::tempdir().unwrap();
        let tree = tree.path();
        put(
            tree,
            "usr/lib/systemd/system/qemu-kvm.service",
            "[Service]\nExecStart=/usr/share/qemu/init/qemu-kvm-init start\n",
        );
        let wants = "etc/systemd/system/multi-user.target.wants";
        link(tree, &format!("{wants}/qemu-kvm.service"), "/usr/lib/systemd/system/qemu-kvm.service");
        put(
            tree,
            "etc/tmpfiles.d/ksm.conf",
            "# w /sys/kernel/mm/ksm/run - - - - 0\nw /sys/kernel/mm/ksm/run - - - - 1\n",
        );
        put(tree, "usr/lib/tmpfiles.d/tmp.conf", "q /tmp 1777 root root 10d\nd /srv/sys/kernel/mm/ksm 0755\n");
        put(tree, "etc/sysfs.conf", "; kernel/mm/ksm/run = 1\n");
        put(tree, "etc/sysfs.d/ksm.conf", "kernel/mm/ksm/run = 1\nmode kernel/mm/ksm/run = 0600\n");
        put(tree, "etc/rc.local", "#!/bin/sh\necho 1 > /sys/kernel/mm/ksm/run\n");
        put(
            tree,
            "etc/systemd/system/mine.service",
            "[Service]\nExecStart=sh -c 'echo 1 > /sys/kernel/mm/ksm/run'\n",
        );
        put(
            tree,
            "etc/systemd/system/off.service",
            "[Service]\nExecStart=sh -c 'echo 1 > /sys/kernel/mm/ksm/run'\n",
        );
        link(tree, &format!("{wants}/mine.service"), "../mine.service");
        let found = survey(&Root::at(tree));
        let seen: Vec<_> = found.iter().map(|found| (found.controller.name, found.files.join(" "))).collect();
        assert_eq!(
            seen,
            [
                ("qemu-kvm.service", String::new()),
                (name::TMPFILES, "/etc/tmpfiles.d/ksm.conf".to_owned()),
                (name::SYSFS, "/etc/sysfs.d/ksm.conf".to_owned()),
                (name::BOOT_SCRIPTS, "/etc/rc.local".to_owned()),
                (name::OTHER_UNITS, "/etc/systemd/system/mine.service".to_owned()),
            ]
        );
        assert!(found.iter().all(|found| found.matters() && !found.runs()));
    }

    #[test]
    fn commands_that_write_to_ksm_when_an_event_comes_are_found_and_those_that_read_are_not() {
        let tree = tempfile::tempdir().unwrap();
        let tree = tree.path();
        let wants = "etc/systemd/system/multi-user.target.wants";
        for (path, text) in [
            ("etc/crontab", "@reboot root echo 1 > /sys/kernel/mm/ksm/run\n"),
            ("etc/cron.d/watch", "* * * * * root cat /sys/kernel/mm/ksm/pages_sharing >> /var/log/ksm\n"),
            ("etc/cron.d/write", "@reboot root echo 1 | tee -a \"/sys/kernel/mm/ksm/run\"\n"),
            ("var/spool/cron/crontabs/root", "#@reboot echo 1 >/sys/kernel/mm/ksm/run\n"),
            ("etc/udev/rules.d/99-ksm.rules", "RUN+=\"/bin/sh -c 'echo 1 >/sys/kernel/mm/ksm/run'\"\n"),
            ("etc/libvirt/hooks/qemu", "#!/bin/sh\necho 1 > '/sys/kernel/mm/ksm/run'\n"),
            ("boot/config/go", "#!/bin/bash\necho 1 > /sys/kernel/mm/ksm/run\n"),
            ("usr/local/sbin/ksm-on", "#!/bin/sh\necho 1 > /sys/kernel/mm/ksm/run\n"),
            ("usr/local/sbin/ksm-read", "#!/bin/sh\ncat /sys/kernel/mm/ksm/run\n"),
            ("etc/systemd/system/on.service", "[Service]\nExecStart=-/bin/sh /usr/local/sbin/ksm-on start\n"),
            ("etc/systemd/system/read.service", "[Service]\nExecStart=/usr/local/sbin/ksm-read\n"),
            ("etc/systemd/system/later.service", "[Service]\nExecStart=sh -c 'echo 1 >/sys/kernel/mm/ksm/run'\n"),
            ("etc/systemd/system/check.service", "[Service]\nExecCondition=test -e /sys/kernel/mm/ksm/run\n"),
            ("etc/systemd/system/vms.service.d/ksm.conf", "[Service]\nExecStartPre=/usr/local/sbin/ksm-on\n"),
            ("etc/systemd/system/off.service.d/ksm.conf", "[Service]\nExecStartPre=/usr/local/sbin/ksm-on\n"),
        ] {
            put(tree, path, text);
        }
        for unit in ["on.service", "read.service", "check.service", "vms.service", "later.timer"] {
            link(tree, &format!("{wants}/{unit}"), &format!("../{unit}"));
        }
        let found = survey(&Root::at(tree));
        let seen: Vec<_> = found.iter().map(|found| (found.controller.name, found.files.join(" "))).collect();
        let scripts = "/boot/config/go /etc/crontab /etc/libvirt/hooks/qemu /etc/cron.d/write \
                       /etc/udev/rules.d/99-ksm.rules /etc/systemd/system/vms.service.d/ksm.conf";
        let units = "/etc/systemd/system/later.service /etc/systemd/system/on.service";
        assert_eq!(seen, [(name::BOOT_SCRIPTS, scripts.to_owned()), (name::OTHER_UNITS, units.to_owned())]);
    }

    #[test]
    fn units_that_others_start_and_commands_of_modprobe_and_cloud_init_are_found() {
        let tree = tempfile::tempdir().unwrap();
        let tree = tree.path();
        let wants = "etc/systemd/system/multi-user.target.wants";
        let unit = "[Service]\nExecStart=sh -c 'echo 1 >/sys/kernel/mm/ksm/run'\n";
        for (path, text) in [
            ("etc/systemd/system/watch.path", "[Path]\nPathExists=/run/x\nUnit=by-path.service\n"),
            ("etc/systemd/system/by-path.service", unit),
            ("etc/systemd/system/by-socket.socket", "[Socket]\nListenStream=/run/s\n"),
            ("etc/systemd/system/by-socket.service", unit),
            ("etc/systemd/system/idle.path", "[Path]\nPathExists=/run/x\nUnit=idle.service\n"),
            ("etc/systemd/system/idle.service", unit),
            ("etc/systemd/system/k@.service", "[Service]\nExecStart=sh -c 'echo 1 >/sys/kernel/mm/ksm/%i'\n"),
            ("etc/systemd/system/never@.service", unit),
            ("etc/modprobe.d/kvm.conf", "install kvm modprobe -i kvm; echo 1 > /sys/kernel/mm/ksm/run\n"),
            ("etc/modprobe.d/script.conf", "install kvm_amd /usr/local/sbin/ksm-on\n"),
            ("etc/modprobe.d/options.conf", "options kvm nested=1 # > /sys/kernel/mm/ksm/run\n"),
            ("usr/local/sbin/ksm-on", "#!/bin/sh\necho 1 > /sys/kernel/mm/ksm/run\n"),
            ("etc/cloud/cloud.cfg.d/50.cfg", "bootcmd:\n - [ sh, -c, \"echo 1 > /sys/kernel/mm/ksm/run\" ]\n"),
            ("etc/cloud/cloud.cfg.d/60.cfg", "runcmd:\n - cat /sys/kernel/mm/ksm/run > /var/tmp/ksm\n"),
            ("var/lib/cloud/instances/i-1/user-data.txt", "runcmd:\n - echo 1 | tee /sys/kernel/mm/ksm/run\n"),
            ("var/lib/cloud/instances/i-0/user-data.txt", "runcmd:\n - echo 1 | tee /sys/kernel/mm/ksm/run\n"),
            (
                "var/lib/cloud/instances/i-1/cloud-config.txt",
                "write_files:\n - path: /sys/kernel/mm/ksm/run\n   content: 1\n",
            ),
        ] {
            put(tree, path, text);
        }
        link(tree, "var/lib/cloud/instance", "/var/lib/cloud/instances/i-1");
        for unit in ["watch.path", "by-socket.socket", "k@run.service"] {
            link(tree, &format!("{wants}/{unit}"), &format!("../{unit}"));
        }
        let found = survey(&Root::at(tree));
        let seen: Vec<_> = found.iter().map(|found| (found.controller.name, found.files.join(" "))).collect();
        let scripts = "/etc/modprobe.d/kvm.conf /etc/modprobe.d/script.conf /etc/cloud/cloud.cfg.d/50.cfg \
                       /var/lib/cloud/instances/i-1/user-data.txt /var/lib/cloud/instances/i-1/cloud-config.txt";
        let units = "/etc/systemd/system/by-path.service /etc/systemd/system/by-socket.service \
                     /etc/systemd/system/k@.service";
        assert_eq!(seen, [(name::BOOT_SCRIPTS, scripts.to_owned()), (name::OTHER_UNITS, units.to_owned())]);
    }

    #[test]
    fn ubuntus_service_switches_ksm_off_if_its_file_says_so() {
        let tree = tempfile::tempdir().unwrap();
        put(tree.path(), "usr/lib/systemd/system/qemu-kvm.service", "[Service]\n");
        let target = "/usr/lib/systemd/system/qemu-kvm.service";
        link(tree.path(), "etc/systemd/system/multi-user.target.wants/qemu-kvm.service", target);
        for (text, expected) in [
            ("KSM_ENABLED=AUTO\n", name::QEMU_KVM),
            ("KSM_ENABLED=1\n#KSM_ENABLED=0\n", name::QEMU_KVM),
            ("KSM_ENABLED=0\n", name::QEMU_KVM_OFF),
            ("KSM_ENABLED=1\n export KSM_ENABLED='0' # off\n", name::QEMU_KVM_OFF),
        ] {
            put(tree.path(), "etc/default/qemu-kvm", text);
            let found = survey(&Root::at(tree.path()));
            let seen: Vec<_> = found.iter().map(|found| found.controller.name).collect();
            assert_eq!(seen, [expected], "{text}");
            assert_eq!(found[0].controller.does.contains("switches KSM off"), expected == name::QEMU_KVM_OFF);
        }
    }

    #[test]
    fn a_file_of_tmpfiles_that_is_overridden_does_not_count() {
        let tree = tempfile::tempdir().unwrap();
        let line = "w! /sys/kernel/mm/ksm/run - - - - 1\n";
        put(tree.path(), "usr/lib/tmpfiles.d/ksm.conf", line);
        assert_eq!(names(tree.path()), [name::TMPFILES]);
        link(tree.path(), "etc/tmpfiles.d/ksm.conf", "/dev/null");
        assert!(names(tree.path()).is_empty());
    }

    #[test]
    fn what_is_inside_the_kernel_is_told_by_its_switch() {
        let tree = tempfile::tempdir().unwrap();
        put(tree.path(), "sys/kernel/mm/ksm/advisor_mode", "none [scan-time]\n");
        put(tree.path(), "sys/kernel/mm/uksm/run", "1\n");
        assert_eq!(names(tree.path()), [name::UKSM, name::ADVISOR]);
    }

    #[test]
    fn tuned_is_one_only_with_a_profile_that_sets_ksm() {
        let tree = tempfile::tempdir().unwrap();
        put(tree.path(), "lib/systemd/system/tuned.service", "");
        put(tree.path(), "etc/tuned/active_profile", "rt\n");
        put(tree.path(), "usr/lib/tuned/rt/tuned.conf", "[sysfs]\n/sys/kernel/mm/ksm/run = 2\n");
        let found = survey(&Root::at(tree.path()));
        assert_eq!(found[0].profile.as_ref().map(|profile| profile.names()), Some("rt".to_owned()));
        assert!(!found[0].runs() && !found[0].starts_at_boot());
    }
}
