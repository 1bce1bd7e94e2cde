use std::io::{Read, Write};
use std::process::{Command, Stdio};

use super::*;
use crate::hypervisor::{MemoryBackend, MonitorReply};

/// Builds a tree with processes: PID, command line, cgroup.
fn tree(processes: &[(u32, &str, &str)]) -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    for (pid, line, cgroup) in processes {
        let directory = tree.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        let comm: String = line.split(' ').next().unwrap().rsplit('/').next().unwrap().chars().take(15).collect();
        let stat = format!("{pid} ({comm}) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 10 0\n");
        fs::write(directory.join("stat"), stat).unwrap();
        fs::write(directory.join("cmdline"), line.replace(' ', "\0")).unwrap();
        fs::write(directory.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        fs::write(directory.join("status"), "Uid:\t0\t0\t0\t0\n").unwrap();
    }
    fs::create_dir_all(tree.path().join("etc")).unwrap();
    fs::write(tree.path().join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
    tree
}

fn sample(processes: &[(u32, &str)]) -> Sample {
    let process = |&(pid, name): &(u32, &str)| ProcessSample {
        rss_bytes: Some(1 << 20),
        ..ProcessSample::new(ProcessId { pid, start_ticks: 7 }, name.into(), false)
    };
    Sample { page_size: 4096, processes: processes.iter().map(process).collect(), ..Sample::default() }
}

#[test]
fn processes_are_named_by_their_files() {
    let tree = tree(&[
        (10, "/usr/bin/qemu-system-x86_64 -name web -m 256 -uuid 00000000-1111-2222-3333-444444444444", "/a"),
        (11, "redis", "/system.slice/redis.service"),
        (12, "redis", "/system.slice/redis.service"),
    ]);
    let mut guests = GuestTracker::new(Root::at(tree.path()), LibvirtUri::default());
    let list = guests.list(&sample(&[(10, "web"), (11, "redis"), (12, "redis"), (13, "gone")]));
    let found: Vec<_> =
        list.guests.iter().map(|guest| (guest.name.as_str(), guest.kind.word(), guest.processes.len())).collect();
    assert_eq!(found, [("web", "qemu", 1), ("redis", "service", 2), ("gone", "process", 1)]);
    let web = find(&list.guests, "00000000-1111-2222-3333-444444444444").unwrap();
    assert_eq!((web.memory_bytes, web.user.as_deref()), (Some(256 << 20), Some("root")));
    assert_eq!(find(&list.guests, "12").unwrap().name, "redis");
}

#[test]
fn a_process_that_executes_another_program_is_named_anew_and_one_that_left_is_forgotten() {
    let before = tree(&[(10, "sh", "/")]);
    let mut guests = GuestTracker::new(Root::at(before.path()), LibvirtUri::default());
    assert_eq!(guests.list(&sample(&[(10, "sh")])).guests[0].program, "sh");
    let after = tree(&[(10, "qemu-system-x86_64 -name late", "/")]);
    guests.root = Root::at(after.path());
    assert_eq!(guests.list(&sample(&[(10, "sh")])).guests[0].program, "sh", "its files are read once");
    assert_eq!(guests.list(&sample(&[(10, "late")])).guests[0].name, "late");
    guests.list(&sample(&[]));
    assert!(guests.names.known.is_empty());
}

#[test]
fn a_snapshot_names_later_samples_and_never_changes() {
    let before = tree(&[(10, "qemu-system-x86_64 -name web", "/"), (11, "sh", "/")]);
    let mut guests = GuestTracker::new(Root::at(before.path()), LibvirtUri::default());
    let snapshot = guests.snapshot(&sample(&[(10, "web"), (11, "sh")]));
    let later = sample(&[(10, "web"), (11, "late"), (12, "new")]);
    let known: Vec<bool> = later.processes.iter().map(|process| snapshot.knows(process)).collect();
    assert_eq!(known, [true, false, false], "another program, and another process");
    let list = snapshot.name(&later).guests;
    let named: Vec<_> = list.iter().map(|guest| (guest.name.as_str(), guest.kind.word())).collect();
    assert_eq!(named, [("web", "qemu"), ("late", "process"), ("new", "process")]);
    assert!(snapshot.target(&list[0]).is_some() && snapshot.target(&list[2]).is_none());
    guests.list(&sample(&[]));
    assert!(snapshot.knows(&later.processes[0]) && snapshot.list.guests.len() == 2);
}

/// A query starts, then the guest is switched, and only then the reply arrives.
#[test]
fn an_answer_from_before_a_switch_is_ignored() {
    let root = Root::at("/nonexistent");
    let mut guests = GuestTracker::new(root, LibvirtUri::default());
    let id = ProcessId { pid: 7, start_ticks: 1 };
    let told = |merge| {
        let backend = MemoryBackend { id: None, size: 1, merge, share: false };
        HypervisorReply {
            told: Some(MonitorReply { backends: vec![backend], ..MonitorReply::default() }),
            ..HypervisorReply::default()
        }
    };
    let mut known = guests.read(id, &"q".into(), Duration::ZERO);
    (known.answer, known.question) = (told(true), QueryState::UnderWay);
    guests.names.known.insert(id, known.into());
    let offers =
        |guests: &GuestTracker| guests.names.known[&id].answer.told.as_ref().map(|told| told.backends[0].merge);
    assert_eq!(guests.was_switched(8, false), None);
    assert_eq!(guests.was_switched(7, false), Some(id.into()));
    assert_eq!(offers(&guests), Some(false), "at once");
    guests.record_reply(id.into(), told(true));
    assert_eq!(offers(&guests), Some(false));
    assert_eq!(guests.names.known[&id].due, Duration::ZERO, "it is asked again");
    guests.record_reply(id.into(), told(true));
    assert_eq!(offers(&guests), Some(true), "it was switched again since");
}

/// Root's programs become other users' without a new name: `cron` executes a user's program that is called so, too.
#[test]
fn a_process_that_changes_its_user_is_not_the_one_that_was_verified() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let code = "import os,sys; print(flush=True); sys.stdin.readline(); os.setuid(64999); print(flush=True); sys.stdin.read()";
    let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
    let Ok(mut child) = Command::new("python3").args(["-c", code]).stdin(stdin).stdout(stdout).spawn() else {
        return;
    };
    let mut wait = || child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    wait();
    let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let stat = ksmith_core::kernel::PidStat::parse(&text).unwrap();
    let mut sample = sample(&[(child.id(), "python3")]);
    sample.processes[0].id.start_ticks = stat.start_ticks;
    let id = sample.processes[0].id;
    let root = Root::host();
    let mut guests = GuestTracker::new(root.clone(), LibvirtUri::default());
    let snapshot = guests.snapshot(&sample);
    assert!(snapshot.list.guests[0].is_verified && snapshot.has_its_user(&root, id), "{:?}", snapshot.list.guests);
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let mut wait = || child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    wait();
    assert!(!snapshot.has_its_user(&root, id), "the snapshot is outdated");
    let guest = guests.snapshot(&sample).list.guests.remove(0);
    assert!(!guest.is_verified && guest.uid == Some(64999), "{guest:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A pod's container and a machine of KubeVirt, as seen from the host and from a container that has a cgroup namespace
/// of its own.
#[test]
fn a_machine_of_kubevirt_is_verified_by_the_kubelet() {
    let uid = "0d8f3d1e-3c4b-4c1e-9a52-6a1d0e5b7f10";
    let ids = [format!("{:064x}", 1), format!("{:064x}", 2)];
    let line = "/usr/libexec/qemu-kvm -name guest=shop_db,debug-threads=on -smbios type=1,manufacturer=KubeVirt \
                -chardev socket,id=charmonitor,fd=19,server=on -mon chardev=charmonitor,mode=control";
    for above in ["/kubepods.slice/kubepods-burstable.slice", "/../.."] {
        let slice = format!("{above}/kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
        let groups = ids.clone().map(|id| format!("{slice}/cri-containerd-{id}.scope"));
        let tree = tree(&[(10, line, &groups[0]), (11, "nginx", &groups[1])]);
        fs::create_dir_all(tree.path().join(format!("var/log/pods/shop_virt-launcher-db-x2k9q_{uid}"))).unwrap();
        let mut guests = GuestTracker::new(Root::at(tree.path()), LibvirtUri::default());
        let list = guests.list(&sample(&[(10, "qemu-kvm"), (11, "nginx")])).guests;
        let found: Vec<_> = list.iter().map(|it| (it.name.as_str(), it.manager.as_deref())).collect();
        let container = format!("shop/virt-launcher-db-x2k9q/{}", &ids[1][..12]);
        assert_eq!(found, [("shop/db", Some("kubevirt")), (container.as_str(), Some("kubernetes"))]);
        assert!(list.iter().all(|guest| guest.is_verified), "{above}: {list:?}");
        let refused = guests.target(&list[0]).unwrap().check(false).unwrap_err().to_string();
        assert!(refused.contains("node without KSM"), "{refused}");
    }
}

#[test]
fn a_microvm_without_a_name_has_that_of_its_container() {
    let id = "0123456789abcdef".repeat(4);
    let tree = tree(&[(10, "[libcrun:krun] sleep", &format!("/machine.slice/libpod-{id}.scope/container"))]);
    let storage = tree.path().join("var/lib/containers/storage/overlay-containers");
    fs::create_dir_all(&storage).unwrap();
    fs::write(storage.join("containers.json"), format!(r#"[{{"id":"{id}","names":["web"]}}]"#)).unwrap();
    let list = GuestTracker::new(Root::at(tree.path()), LibvirtUri::default()).list(&sample(&[(10, "libkrun VM")]));
    let guest = &list.guests[0];
    assert_eq!(
        (guest.name.as_str(), guest.kind.word(), guest.manager.as_deref()),
        ("web", "libkrun", Some("podman"))
    );
    assert!(!guest.is_verified, "the process chose its kind itself");
}

#[test]
fn a_pod_vouches_for_no_uuid_on_a_command_line() {
    let (id, uid) = ("0123456789abcdef".repeat(4), "0d8f3d1e-3c4b-4c1e-9a52-6a1d0e5b7f10");
    let victim = "00000000-1111-2222-3333-444444444444";
    let group = format!("/kubepods/burstable/pod{uid}/{id}");
    let tree = tree(&[(10, &format!("qemu-system-x86_64 -uuid {victim}"), &group), (11, "nginx", &group)]);
    fs::create_dir_all(tree.path().join(format!("var/log/pods/shop_web-0_{uid}"))).unwrap();
    let mut guests = GuestTracker::new(Root::at(tree.path()), LibvirtUri::default());
    let list = guests.list(&sample(&[(10, "qemu-system-x86"), (11, "nginx")])).guests;
    let found: Vec<_> = list.iter().map(|guest| (guest.uuid.as_deref(), guest.is_verified)).collect();
    assert_eq!(found, [(Some(victim), false), (None, true)], "{list:?}");
}

#[test]
fn a_process_that_is_moved_to_another_cgroup_is_seen_to_move() {
    let tree = tree(&[(10, "a", "/system.slice/one.service"), (11, "b", "/system.slice/one.service")]);
    let root = Root::at(tree.path());
    let mut guests = GuestTracker::new(root.clone(), LibvirtUri::default());
    let sample = sample(&[(10, "a"), (11, "b")]);
    let before = guests.snapshot(&sample);
    assert!(sample.processes.iter().all(|process| !before.was_moved(&root, process.id)));
    fs::write(tree.path().join("proc/11/cgroup"), "0::/system.slice/two.service\n").unwrap();
    let moved: Vec<bool> = sample.processes.iter().map(|process| before.was_moved(&root, process.id)).collect();
    assert_eq!(moved, [false, true]);
    // A cgroup that can't be told is another one. A process that has ended is in none.
    fs::write(tree.path().join("proc/11/cgroup"), "").unwrap();
    assert!(before.was_moved(&root, sample.processes[1].id));
    fs::remove_file(tree.path().join("proc/11/cgroup")).unwrap();
    assert!(!before.was_moved(&root, sample.processes[1].id));
    fs::write(tree.path().join("proc/11/cgroup"), "0::/system.slice/two.service\n").unwrap();
    let names = |list: GuestList| list.guests.into_iter().map(|guest| guest.name).collect::<Vec<_>>();
    assert_eq!(names(before.list), ["one"]);
    assert_eq!(names(guests.list(&sample)), ["one", "two"]);
}

#[test]
fn a_process_that_moves_in_one_hierarchy_is_seen_to_move() {
    let tree = tree(&[(10, "a", "/"), (11, "b", "/")]);
    let put = |pid: u32, memory: &str, systemd: &str| {
        let text = format!("4:memory:{memory}\n1:name=systemd:{systemd}\n");
        fs::write(tree.path().join(format!("proc/{pid}/cgroup")), text).unwrap();
    };
    let (service, long) = ("/system.slice/newd.service", format!("/system.slice/{}.service", "x".repeat(100)));
    put(10, service, service);
    put(11, &long, &long);
    let root = Root::at(tree.path());
    let sample = sample(&[(10, "a"), (11, "b")]);
    let before = GuestTracker::new(root.clone(), LibvirtUri::default()).snapshot(&sample);
    put(10, "/newd/tenant1", service);
    put(11, &long.replace(".service", "y.service"), &long.replace(".service", "y.service"));
    assert!(sample.processes.iter().all(|process| before.was_moved(&root, process.id)));
}
