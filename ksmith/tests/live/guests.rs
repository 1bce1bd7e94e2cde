//! Guests on the running kernel: real QEMU, libvirt and user-mode Linux, found, counted and switched.

use crate::support;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::spoof::{OTHER_USER, SpoofedProcess};
use crate::support::vm::{
    FILLED_PAGES, LibvirtDaemons, PAGE, QemuProcess, RunningDomain, UmlKit, content, has, is_offered, mapped_file,
    virsh,
};
use crate::support::{KernelLock, clean_passes, copy_program, guest, hold_off_others, passes_until, wait_until};
use ksmith_core::account::HostTotals;
use ksmith_core::kernel::ProcessMapping;
use ksmith_core::sample::Sample;
use ksmith_host::guests::{Guest, GuestKind, GuestTracker, LibvirtUri, find};
use ksmith_host::observe::{HostObserver, ProcessEvent, ProcessEvents};
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;
use serde_json::Value;

/// The host as ksmith sees it.
struct ObservedHost {
    observer: HostObserver,
    guests: GuestTracker,
}

impl ObservedHost {
    fn new() -> Self {
        Self {
            observer: HostObserver::new(Root::host()),
            guests: GuestTracker::new(Root::host(), LibvirtUri::default()),
        }
    }

    fn list_guests(&mut self) -> (Sample, Vec<Guest>, u64) {
        self.observer.refresh();
        let sample = self.observer.sample();
        let list = self.guests.list_within(&sample, Duration::from_secs(10));
        (sample, list.guests, list.unattributed_bytes)
    }

    fn find(&mut self, wanted: &str) -> Option<Guest> {
        let (_, guests, _) = self.list_guests();
        find(&guests, wanted).ok().cloned()
    }

    fn merged_pages(&mut self, pid: u32) -> u64 {
        self.find(&pid.to_string()).expect("the guest").figures.merged_bytes / PAGE as u64
    }
}

/// ksmith without a daemon.
fn ksmith(directory: &Path, arguments: &[&str]) -> Output {
    let config = directory.join("ksmith.toml");
    std::fs::write(&config, format!("[daemon]\ncontrol_socket = \"{}/none\"\n", directory.display())).unwrap();
    Command::new(env!("CARGO_BIN_EXE_ksmith")).arg("--config").arg(&config).args(arguments).output().unwrap()
}

fn ok(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(directory: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(ksmith(directory, arguments))).unwrap()
}

/// The row of a `guests --json` with this first PID.
fn row(report: &Value, pid: u32) -> Option<Value> {
    let rows = report["guests"].as_array().unwrap();
    rows.iter().find(|row| row["pids"][0] == pid).cloned()
}

#[test]
fn qemu_is_found_with_all_its_facts_and_gone_when_it_exits() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let uuid = "5f1b9f14-0001-4000-8000-00000000a001";
    let qemu = QemuProcess::start(directory.path(), "facts", None, &["-uuid", uuid]);
    let mut before = Value::Null;
    let mut row = Value::Null;
    wait_until("it has taken the memory that it starts with", || {
        before = std::mem::take(&mut row);
        row = self::row(&json(directory.path(), &["guests", "--json", "--pss"]), qemu.pid()).expect("the guest");
        row["rss_bytes"] == before["rss_bytes"] && row["errors"] == serde_json::json!([])
    });
    assert_eq!((row["name"].as_str(), row["uuid"].as_str()), (Some("facts"), Some(uuid)));
    assert_eq!((row["kind"].as_str(), row["memory_bytes"].as_u64()), (Some("qemu"), Some(64 << 20)));
    assert_eq!((row["mergeable"].as_bool(), row["user"].as_str()), (Some(true), Some("root")));
    let bytes = |key: &str| row[key].as_u64().unwrap();
    assert_eq!(bytes("private_bytes") + bytes("shared_bytes"), bytes("pss_bytes"));
    assert!(bytes("pss_bytes") <= bytes("rss_bytes") + PAGE as u64 && bytes("pss_bytes") > 1 << 20);
    let pid = qemu.pid();
    drop(qemu);
    assert!(self::row(&json(directory.path(), &["guests", "--json"]), pid).is_none());
}

#[test]
fn two_guests_of_one_name_are_told_apart() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let one = QemuProcess::start(directory.path(), "twin", None, &[]);
    let two = QemuProcess::start(directory.path(), "twin", None, &[]);
    let output = ksmith(directory.path(), &["merge", "off", "twin"]);
    assert_eq!(output.status.code(), Some(4));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    for pid in [one.pid(), two.pid()] {
        assert!(error.contains(&format!("pid {pid}")), "{error}");
    }
    let switched = json(directory.path(), &["merge", "off", &two.pid().to_string(), "--json"]);
    assert_eq!((switched["pid"].as_u64(), &switched["backends"][0]), (Some(two.pid().into()), &"pc.ram".into()));
    let report = json(directory.path(), &["guests", "--json"]);
    assert_eq!(row(&report, one.pid()).unwrap()["mergeable"], true);
    assert_eq!(row(&report, two.pid()).unwrap()["mergeable"], false);
    // From 6.14 on the kernel says that QEMU still offers something: its firmware.
    let stat = std::fs::read_to_string(format!("/proc/{}/ksm_stat", two.pid())).unwrap_or_default();
    if stat.contains("ksm_mergeable: yes") {
        let remaining = |pid| row(&report, pid).unwrap()["has_remaining_mergeable"].as_bool();
        assert_eq!((remaining(one.pid()), remaining(two.pid())), (Some(false), Some(true)));
        let said = ok(ksmith(directory.path(), &["guests"]));
        assert!(said.contains(&format!("the RAM of twin (pid {}) is not offered", two.pid())), "{said}");
    }
}

#[test]
fn a_qmp_socket_that_hangs_or_is_another_programs_costs_the_guest_nothing() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let busy = QemuProcess::start(directory.path(), "busy", None, &[]);
    let mut holders = Vec::new();
    while let Ok(stream) = connect_now(&busy.socket) {
        holders.push(stream);
    }
    let stopped = QemuProcess::start(directory.path(), "stopped", None, &[]);
    kill(stopped.pid(), "STOP");
    // A shell under QEMU's name, with a socket of ours in its command line: nothing may be said to that.
    let (sender, heard) = std::sync::mpsc::channel();
    let foreign = directory.path().join("foreign");
    let listener = UnixListener::bind(&foreign).unwrap();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = listener.accept().unwrap().0.read_to_string(&mut text);
        let _ = sender.send(text);
    });
    let program = directory.path().join("qemu-system-x86_64");
    copy_program(Path::new("/bin/sh"), &program);
    let mut liar = Command::new(&program)
        .args(["-c", "read line", "-qmp", &format!("unix:{},server=on", foreign.display())])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();

    let started = Instant::now();
    let report = json(directory.path(), &["guests", "--json"]);
    // Each costs half a second, and all are asked at once: this bounds a hang and no more.
    assert!(started.elapsed() < Duration::from_secs(20), "the listing waited: {:?}", started.elapsed());
    let errors = |pid: u32| row(&report, pid).expect("listed by its process")["errors"].to_string();
    let of_busy = errors(busy.pid());
    assert!(of_busy.contains("is connected") || of_busy.contains("in time"), "{of_busy}");
    assert!(errors(stopped.pid()).contains("does not answer in time"), "{}", errors(stopped.pid()));
    assert!(errors(liar.id()).contains("and not to the guest: it was left alone"), "{}", errors(liar.id()));
    assert_eq!(heard.recv().unwrap(), "");
    kill(stopped.pid(), "CONT");
    liar.kill().unwrap();
    liar.wait().unwrap();
}

/// A process under QEMU's name that serves its own socket, as a QEMU would that is broken or another program.
#[test]
fn a_qmp_socket_that_closes_or_sends_garbage_costs_the_guest_nothing() {
    if !has("perl") {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("qemu-system-x86_64");
    let path = std::env::var_os("PATH").unwrap();
    let perl = std::env::split_paths(&path).map(|path| path.join("perl")).find(|path| path.exists()).unwrap();
    copy_program(&perl, &program);
    let broken = |name: &str, says: &str| {
        let socket = directory.path().join(name);
        let serve = "use IO::Socket::UNIX; $SIG{PIPE} = 'IGNORE'; my ($path, $says) = ($ENV{SOCKET}, $ENV{SAYS}); \
                     my $all = IO::Socket::UNIX->new(Local => $path, Listen => 9) or die; \
                     while (my $one = $all->accept) { print $one $says; close $one }";
        let child = Command::new(&program)
            .args(["-e", serve, "--", "-name", name, "-qmp", &format!("unix:{},server=on", socket.display())])
            .env("SOCKET", &socket)
            .env("SAYS", says)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the socket is served", || socket.exists());
        BrokenGuest(child)
    };
    let closes = broken("closes", "");
    let garbage = broken("garbage", "HTTP/1.1 400 Bad Request\r\n");
    let ends_early = broken("early", r#"{"QMP": {"version"#);
    let started = Instant::now();
    let report = json(directory.path(), &["guests", "--json"]);
    assert!(started.elapsed() < Duration::from_secs(20), "the listing waited: {:?}", started.elapsed());
    for (guest, expected) in [
        (&closes, "closed the connection"),
        (&garbage, "sends no QMP: HTTP/1.1"),
        (&ends_early, "closed the connection"),
    ] {
        let row = row(&report, guest.0.id()).expect("listed by its process");
        assert_eq!(row["kind"], "qemu");
        assert!(row["errors"].to_string().contains(expected), "{row}");
    }
    let output = ksmith(directory.path(), &["merge", "off", "garbage"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

struct BrokenGuest(std::process::Child);

impl Drop for BrokenGuest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn starts_and_exits_are_told_as_they_happen() {
    let (sender, receiver) = crossbeam_channel::unbounded::<Vec<ProcessEvent>>();
    let Ok(_events) = ProcessEvents::listen(sender) else {
        return support::skipped("there are no process events here");
    };
    let told = |wanted: ProcessEvent, since: Instant| {
        let deadline = since + Duration::from_secs(60);
        while !receiver.recv_deadline(deadline).expect("the event is told").contains(&wanted) {}
        since.elapsed()
    };
    let (mut starts, mut exits) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let started = Instant::now();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        starts.push(told(ProcessEvent::Started(child.id()), started));
        let ended = Instant::now();
        child.kill().unwrap();
        exits.push(told(ProcessEvent::Exited(child.id()), ended));
        child.wait().unwrap();
    }
    // Not judged: a figure for the log.
    starts.sort_unstable();
    exits.sort_unstable();
    eprintln!(
        "told of a start after {:?} (longest {:?}), of an exit after {:?} (longest {:?})",
        starts[25], starts[49], exits[25], exits[49]
    );
}

fn connect_now(path: &Path) -> std::io::Result<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap().success());
}

#[test]
fn user_mode_linux_is_found_named_and_gone_again() {
    let directory = tempfile::tempdir_in("/tmp").unwrap(); // A socket's path has at most 107 bytes.
    let Some(kit) = UmlKit::make(directory.path()) else { return };
    // A listing of all guests asks their monitors, and those serve one program at a time.
    let _others_wait = hold_off_others();
    let name = format!("ku-{}", std::process::id());
    let uml = kit.start(&name);
    let mut host = ObservedHost::new();
    wait_until("it has helpers", || host.find(&name).is_some_and(|guest| guest.processes.len() > 1));
    let mut row = Value::Null;
    wait_until("its console answers", || {
        row = self::row(&json(directory.path(), &["guests", "--json", "--pss"]), uml.pid()).expect("the guest");
        row["errors"] == serde_json::json!([])
    });
    assert_eq!((row["name"].as_str(), row["kind"].as_str()), (Some(name.as_str()), Some("uml")));
    assert_eq!((row["memory_bytes"].as_u64(), row["obstacle"].as_str()), (Some(64 << 20), Some("shared")));
    // Its helpers have the same memory: it counts once.
    assert!(row["pss_bytes"].as_u64().unwrap() < 64 << 20, "{row}");
    let output = ksmith(directory.path(), &["merge", "off", &name]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("shared file"));
    drop(uml);
    wait_until("it is gone", || host.find(&name).is_none());
}

#[test]
fn a_file_that_two_guests_share_keeps_neither_from_merging() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let [content, other] = [6, 7].map(|seed| content(directory.path(), seed));
    let file = directory.path().join("window.mem");
    let object = format!("memory-backend-file,id=shared,share=on,prealloc=on,size=1M,mem-path={}", file.display());
    let window = ["-object", &object, "-device", "ivshmem-plain,memdev=shared"];
    let backend = |options: &str| format!("memory-backend-memfd,id=ram0,size=64M{options}");
    let (private, shared) = (backend(",share=off"), backend(""));
    let start = |name: &str, content: &Path, options: &[&str]| {
        QemuProcess::start(directory.path(), name, Some(content), options)
    };
    let memfd = |object| ["-object", object, "-machine", "pc,memory-backend=ram0"];
    // The windows have one content and the others another: each can merge only with its like.
    let windows = ["one", "two"].map(|name| start(name, &content, &window));
    let memfds = ["three", "four"].map(|name| start(name, &other, &memfd(&private)));
    let lone = start("lone", &content, &memfd(&shared));
    let mut host = ObservedHost::new();
    let filled = FILLED_PAGES as u64;
    passes_until("the private memory is merged", || {
        windows.iter().chain(&memfds).all(|guest| host.merged_pages(guest.pid()) >= filled)
    });
    let obstacles =
        ["one", "two", "three", "four", "lone"].map(|name| host.find(name).expect("the guest").obstacle);
    assert_eq!(obstacles, [None, None, None, None, Some("shared".to_owned())]);
    assert!(host.merged_pages(lone.pid()) < filled);
    // One page stands for two. Of the file, which both map, nothing is merged.
    let saved: u64 =
        ["one", "two"].map(|name| host.find(name).expect("the guest").figures.saved_bytes).iter().sum();
    assert!(saved >= filled * PAGE as u64, "{saved}");
    for guest in &windows {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps", guest.pid())).unwrap();
        let mappings = ProcessMapping::parse_all(&text).unwrap();
        let mapping = mappings.iter().find(|mapping| mapping.path.ends_with("window.mem")).expect("the window");
        assert_eq!((mapping.is_shared, mapping.end - mapping.start), (true, 1 << 20));
        assert_eq!(mapped_file(guest.pid(), "window.mem", ["Rss", "KSM"]), [1 << 10, 0]);
        let said = ok(ksmith(directory.path(), &["doctor", &guest.pid().to_string()]));
        assert!(said.contains("is in shared mappings, which KSM never merges"), "{said}");
    }
}

#[test]
fn off_takes_one_of_three_equal_guests_out_and_on_brings_it_back() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let content = content(directory.path(), 5);
    // Nothing but the RAM is offered: QEMU's firmware would stay merged, see the test through libvirt.
    let ram_alone = ["-machine", "pc,mem-merge=off,memory-backend=ram0"];
    let backend = ["-object", "memory-backend-ram,id=ram0,size=64M,merge=on"];
    let options = [ram_alone, backend].concat();
    let guests: Vec<QemuProcess> = (0..3)
        .map(|n| QemuProcess::start(directory.path(), &format!("equal{n}"), Some(&content), &options))
        .collect();
    let pids: Vec<u32> = guests.iter().map(QemuProcess::pid).collect();
    let mut host = ObservedHost::new();
    host.list_guests();
    let merged = |host: &mut ObservedHost| pids.iter().map(|pid| host.merged_pages(*pid)).collect::<Vec<u64>>();
    let are_merged = |pages: &[u64]| pages.iter().all(|pages| *pages >= FILLED_PAGES as u64);
    passes_until("they are merged", || are_merged(&merged(&mut host)));
    let before = merged(&mut host);

    let said = ok(ksmith(directory.path(), &["merge", "off", "equal0"]));
    assert!(said.contains("merging is off: ram0 (64.0 MiB)"), "{said}");
    assert_eq!(ksm_kib(pids[0]), 0, "at once, whatever ksmd does");
    clean_passes(2);
    let after = merged(&mut host);
    assert_eq!(after[0], 0, "{after:?}");
    assert!(are_merged(&after[1..]), "{before:?} -> {after:?}");

    ok(ksmith(directory.path(), &["merge", "on", "equal0"]));
    passes_until("it is merged again", || are_merged(&merged(&mut host)));
    let again = merged(&mut host);
    eprintln!("merged pages: {before:?}, off {after:?}, on {again:?}");
    let said = ok(ksmith(directory.path(), &["merge", "on", "equal0"]));
    assert!(said.contains("was on already"), "{said}");
}

#[test]
fn the_same_through_libvirt() {
    // First the lock: two of these tests would start and end one libvirt.
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(_libvirt) = LibvirtDaemons::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let content = content(directory.path(), 6);
    let id = std::process::id();
    let domains: Vec<RunningDomain> =
        (0..3).map(|n| RunningDomain::start(directory.path(), &format!("ksmith-{id}-{n}"), &content)).collect();
    let mut host = ObservedHost::new();
    let found = host.find(&domains[0].uuid()).expect("by its UUID");
    assert_eq!((found.name, found.kind), (format!("ksmith-{id}-0"), GuestKind::new("qemu")));
    assert!(found.metadata.unwrap().contains("blue"));
    let merged =
        |host: &mut ObservedHost| domains.iter().map(|domain| host.merged_pages(domain.pid)).collect::<Vec<_>>();
    let are_merged = |pages: &[u64]| pages.iter().all(|pages| *pages >= FILLED_PAGES as u64);
    passes_until("they are merged", || are_merged(&merged(&mut host)));
    let before = merged(&mut host);
    let said = ok(ksmith(directory.path(), &["merge", "off", &format!("ksmith-{id}-1")]));
    // 256 KiB of firmware, which QEMU offers apart from the RAM and for good.
    let firmware_kib = ksm_kib(domains[1].pid);
    assert!(firmware_kib <= 512, "{firmware_kib} KiB");
    assert!(firmware_kib == 0 || said.contains("stay merged: firmware"), "{said}");
    clean_passes(2);
    let after = merged(&mut host);
    assert_eq!(after[1] * 4, firmware_kib, "of the RAM nothing");
    assert!(after[0] >= FILLED_PAGES as u64 && after[2] >= FILLED_PAGES as u64, "{before:?} -> {after:?}");
    ok(ksmith(directory.path(), &["merge", "on", &format!("ksmith-{id}-1")]));
    passes_until("it is merged again", || are_merged(&merged(&mut host)));
    let again = merged(&mut host);
    eprintln!("merged pages: {before:?}, off {after:?}, on {again:?}");
    let gone: Vec<u32> = domains.iter().map(|domain| domain.pid).collect();
    drop(domains);
    let report = json(directory.path(), &["guests", "--json"]);
    assert!(gone.iter().all(|pid| row(&report, *pid).is_none()), "an ended guest is listed: {report}");
}

#[test]
fn libvirt_starts_a_guest_without_merging_once_it_is_off_for_good() {
    // First the lock: two of these tests would start and end one libvirt.
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(_libvirt) = LibvirtDaemons::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let content = content(directory.path(), 7);
    let name = format!("ksmith-{}-lasting", std::process::id());
    let mut domain = RunningDomain::define(directory.path(), &name, &content);
    let says_off = || virsh(&["dumpxml", "--inactive", &name]).unwrap().contains("nosharepages");
    assert!(!says_off() && is_offered(domain.pid, 64 << 20));
    // A process of another user that claims to be this domain has neither it nor its definition changed.
    let spoof = SpoofedProcess::of_libvirt(OTHER_USER, &name, &domain.uuid());
    let report = json(directory.path(), &["guests", "--json"]);
    let is_verified = |pid: u32| row(&report, pid).expect("it is listed")["is_verified"].as_bool();
    assert_eq!([domain.pid, spoof.pid()].map(is_verified), [Some(true), Some(false)]);
    let pid = spoof.pid().to_string();
    for arguments in [&["merge", "off", &pid][..], &["merge", "off", &pid, "--permanent"][..]] {
        let refused = ksmith(directory.path(), arguments);
        assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));
        assert!(!says_off() && is_offered(domain.pid, 64 << 20));
    }
    // Its claim does not stand in the way of the name either.
    let said = ok(ksmith(directory.path(), &["merge", "off", &name, "--permanent", "--dry-run"]));
    assert!(said.contains("would be changed") && !says_off() && is_offered(domain.pid, 64 << 20), "{said}");
    let said = ok(ksmith(directory.path(), &["merge", "off", &name, "--permanent"]));
    assert!(said.contains("libvirt starts it with merging off from now on") && says_off(), "{said}");
    assert!(!is_offered(domain.pid, 64 << 20), "and it is off at once");
    let said = ok(ksmith(directory.path(), &["merge", "off", &name, "--permanent"]));
    assert!(said.contains("was off already") && said.contains("says so already"), "{said}");
    domain.start_again();
    let offers_anything = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap().contains(" mg");
    assert!(!offers_anything(domain.pid), "not even its firmware");
    let said = ok(ksmith(directory.path(), &["merge", "on", &name, "--permanent"]));
    assert!(said.contains("from now on") && !says_off() && is_offered(domain.pid, 64 << 20), "{said}");
}

/// `KSM:` of a process: what is merged right now.
fn ksm_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("KSM:")).expect("Linux 6.7");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn the_saved_column_adds_up_while_guests_come_and_go() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let equal = || {
        guest(&[
            MemoryPart::Equal { seed: 77, pages: 512 },
            MemoryPart::Zero { pages: 64 },
            MemoryPart::Unique { pages: 64 },
        ])
    };
    let mut guests: Vec<_> = (0..4).map(|_| equal()).collect();
    support::write("use_zero_pages", "1");
    support::write("smart_scan", "0");
    support::write("pages_to_scan", "2000");
    support::write("sleep_millisecs", "1");
    support::write("run", "1");
    let mut host = ObservedHost::new();
    let (mut looks, mut most) = (0, 0);
    for round in 0..40 {
        if round % 4 == 3 {
            guests.remove(0);
            guests.push(equal());
        }
        let (sample, found, rest) = host.list_guests();
        let saved: u64 = found.iter().map(|guest| guest.figures.saved_bytes).sum();
        assert_eq!(saved + rest, HostTotals::from_sample(&sample).saved_bytes);
        assert_eq!(saved % PAGE as u64, 0);
        most = most.max(saved);
        looks += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(looks == 40 && most >= 3 * 512 * PAGE as u64, "nothing was merged meanwhile: {most}");
}

#[test]
fn a_process_that_offered_its_memory_itself_is_refused_with_what_does_work() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let memory = guest(&[MemoryPart::Unique { pages: 16 }]);
    let output = ksmith(directory.path(), &["merge", "off", &memory.pid().to_string()]);
    assert_eq!(output.status.code(), Some(3));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("offered its memory itself") || error.contains("MemoryKSM"), "{error}");
    let output = ksmith(directory.path(), &["merge", "off", "no-such-guest"]);
    assert_eq!(output.status.code(), Some(4));
}
