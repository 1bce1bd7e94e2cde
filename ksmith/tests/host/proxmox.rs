//! A guest as Proxmox VE starts it: a real QEMU with its command line and at its paths.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ksmith_core::balance::BalanceConfig;
use ksmith_core::guest::Guest;
use ksmith_core::sample::{ProcessSample, Sample};
use ksmith_host::act::StateDir;
use ksmith_host::guests::{GuestTarget, GuestTracker, LibvirtUri};
use ksmith_host::peer_credentials::SocketCredentials;
use ksmith_host::root::Root;
use ksmith_service::balance::{Balancer, HoldList, MemoryLedger};
use serde_json::{Value, json};

use crate::support::own::on_own_host;
use crate::support::vm::has;
use crate::support::{hold_off_ksm, process_id};

const SOCKET: &str = "/var/run/qemu-server/100.qmp";
const PATIENCE: Duration = Duration::from_secs(60);

/// The options of qemu-server 9 for a guest of 64 MiB, in their order, but for `-id 100`: only Proxmox VE's own QEMU has that. Its
/// processors never start.
const OPTIONS: &str = "-name web1,debug-threads=on -no-shutdown \
    -chardev socket,id=qmp,path=/var/run/qemu-server/100.qmp,server=on,wait=off -mon chardev=qmp,mode=control \
    -chardev socket,id=qmp-event,path=/var/run/qmeventd.sock,reconnect=5 -mon chardev=qmp-event,mode=control \
    -pidfile /var/run/qemu-server/100.pid -daemonize -smbios type=1,uuid=7b10d7af-b932-4c66-b2c3-3996152ec465 \
    -smp 1,sockets=1,cores=1,maxcpus=1 -nodefaults -boot menu=on,strict=on,reboot-timeout=1000 -vga none \
    -m 64 -device virtio-balloon-pci,id=balloon0,free-page-reporting=on -S -display none -machine accel=tcg,type=pc";

/// Makes /run and /etc that only this test sees.
const DIRECTORIES: &str = "set -eu
mount -t tmpfs own /mnt
mkdir -p /mnt/etc /mnt/work /mnt/run/ksmith /mnt/run/qemu-server
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/etc,workdir=/mnt/work own /etc
mkdir -p /etc/pve/qemu-server
mount --rbind /run/ksmith /mnt/run/ksmith
mount --rbind /mnt/run /run";

/// The guest, and the connections that Proxmox VE's qmeventd has got.
struct ProxmoxHost {
    pid: u32,
    events: UnixListener,
}

impl ProxmoxHost {
    fn start(directory: &Path) -> Self {
        assert!(
            Command::new("sh").args(["-c", DIRECTORIES]).status().unwrap().success(),
            "no directories of its own"
        );
        let events = UnixListener::bind("/var/run/qmeventd.sock").unwrap();
        let program = directory.join("kvm");
        std::os::unix::fs::symlink("/usr/bin/qemu-system-x86_64", &program).unwrap();
        let mut command = Command::new(program);
        command.arg0("/usr/bin/kvm").args(OPTIONS.split_whitespace()).stdin(Stdio::null());
        assert!(command.status().unwrap().success(), "QEMU does not start");
        let pid = fs::read_to_string("/var/run/qemu-server/100.pid").unwrap().trim().parse().unwrap();
        Self { pid, events }
    }

    /// A sample that has the guest alone.
    fn sample(&self) -> Sample {
        let process = ProcessSample::new(process_id(self.pid), "kvm".into(), true);
        Sample { page_size: 4096, processes: vec![process], ..Sample::default() }
    }
}

/// Asks one question as Proxmox VE's client does: it connects, waits for its turn, and closes the connection.
fn ask_as_proxmox(question: &Value) -> Value {
    let stream = UnixStream::connect(SOCKET).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut lines, mut stream) = (BufReader::new(stream.try_clone().unwrap()).lines(), stream);
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert!(next().get("QMP").is_some());
    for command in [&json!({"execute": "qmp_capabilities"}), question] {
        writeln!(stream, "{command}").unwrap();
    }
    std::iter::repeat_with(next).filter_map(|answer| answer.get("return").cloned()).nth(1).unwrap()
}

fn asked(host: &ProxmoxHost) -> (GuestTracker, Guest) {
    let mut guests = GuestTracker::new(Root::host(), LibvirtUri::default());
    let guest = guests.list_within(&host.sample(), PATIENCE).guests.remove(0);
    (guests, guest)
}

/// Returns true if the guest's RAM is offered, according to its monitor.
fn is_offered() -> bool {
    ask_as_proxmox(&json!({"execute": "query-memdev"}))[0]["merge"] == true
}

fn polling_interval() -> u64 {
    let arguments = json!({"path": "/machine/peripheral/balloon0", "property": "guest-stats-polling-interval"});
    ask_as_proxmox(&json!({"execute": "qom-get", "arguments": arguments})).as_u64().unwrap()
}

fn switches_between_the_questions_of_others(host: &ProxmoxHost) {
    let (guests, guest) = asked(host);
    assert_eq!((guest.name.as_str(), guest.number, guest.manager.as_deref()), ("web1", Some(100), Some("proxmox")));
    assert_eq!(guest.uuid.as_deref(), Some("7b10d7af-b932-4c66-b2c3-3996152ec465"));
    assert_eq!((guest.is_verified, guest.shown_name().as_str()), (true, "100 (web1)"));
    assert_eq!((guest.offered, guest.errors.len()), (Some(true), 0), "{:?}", guest.errors);
    let target = guests.target(&guest).unwrap();

    // Proxmox VE asks all the time meanwhile, and gets each answer.
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let proxmox = scope.spawn(|| {
            let mut answers = 0;
            while !is_over.load(Ordering::Acquire) || answers == 0 {
                ask_as_proxmox(&json!({"execute": "query-status"}));
                answers += 1;
            }
        });
        for on in [false, true, false] {
            let switched = std::iter::repeat_with(|| target.switch(&Root::host(), on, false)).take(100);
            assert!(switched.into_iter().any(|outcome| outcome.is_ok()), "100 tries: the socket is never free");
            assert_eq!(is_offered(), on);
        }
        is_over.store(true, Ordering::Release);
        proxmox.join().unwrap();
    });
    let refused = target.make_permanent(false, false).unwrap_err().to_string();
    assert!(refused.contains("`qm set 100 --allow-ksm 0`"), "{refused}");
}

/// While another peer holds the socket, ksmith says so, and takes nothing from it.
fn leaves_a_socket_in_use(host: &ProxmoxHost) {
    let held = UnixStream::connect(SOCKET).unwrap();
    held.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = BufReader::new(held).lines();
    assert!(lines.next().unwrap().unwrap().contains("QMP"));
    let (_, guest) = asked(host);
    assert!(guest.errors[0].contains("/var/run/qemu-server/100.qmp"), "{:?}", guest.errors);
    drop(lines);
    assert_eq!(asked(host).1.errors, [""; 0]);
}

fn view(balancer: &mut Balancer, guests: &[(Guest, GuestTarget)]) -> ksmith_core::balance::GuestView {
    balancer.discover(guests.iter().map(|(guest, target)| (guest, Some(target.clone()))));
    balancer.poll_guests(PATIENCE);
    balancer.view().unwrap().guests.remove(0)
}

/// Balance asks and resizes no guest of Proxmox VE unless it is told to and `pvestatd` does not.
fn leaves_the_balloon_to_proxmox(host: &ProxmoxHost, directory: &Path) {
    let (known, guest) = asked(host);
    let guests = [(guest.clone(), known.target(&guest).unwrap())];
    let state = StateDir::at(directory.join("state"));
    let (ledger, holds) = (MemoryLedger::open(&state).unwrap(), HoldList::open(&state).unwrap());
    let mut balancer = Balancer::new(Root::host(), BalanceConfig::default(), ledger, holds);
    let left = view(&mut balancer, &guests);
    assert!(!left.can_take && !left.can_give, "{left:?}");
    assert!(left.trouble.unwrap().contains("[balance] proxmox = true"));
    let key = guest.id().to_string();
    assert!(balancer.order(&key, false, 1 << 20).unwrap_err().to_string().contains("Proxmox VE"));
    assert_eq!(polling_interval(), 0, "the guest was asked for statistics");

    let config = BalanceConfig { proxmox: true, ..BalanceConfig::default() };
    fs::write("/etc/pve/qemu-server/100.conf", "name: web1\nmemory: 64\nballoon: 32\n").unwrap();
    balancer.configure(config.clone());
    let pvestatds = view(&mut balancer, &guests);
    assert!(pvestatds.trouble.unwrap().contains("`qm set 100 --shares 0`"));
    assert_eq!(polling_interval(), 0, "the guest was asked for statistics");

    fs::write("/etc/pve/qemu-server/100.conf", "name: web1\nmemory: 64\nballoon: 32\nshares: 0\n").unwrap();
    let ours = view(&mut balancer, &guests);
    assert!(ours.can_take && ours.can_give, "{ours:?}");
    balancer.configure(BalanceConfig::default());
    assert!(!view(&mut balancer, &guests).can_take);
}

#[test]
fn a_guest_of_proxmox_is_known_switched_and_left_to_proxmox() {
    if !has("qemu-system-x86_64") {
        return;
    }
    // Its guest offers memory to KSM.
    let _ksm_waits = hold_off_ksm();
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let host = ProxmoxHost::start(directory.path());
        switches_between_the_questions_of_others(&host);
        leaves_a_socket_in_use(&host);
        leaves_the_balloon_to_proxmox(&host, directory.path());

        // QEMU connects to qmeventd, and no other process may: qmeventd takes each peer for a guest.
        host.events.set_nonblocking(true).unwrap();
        let peers: Vec<u32> = host
            .events
            .incoming()
            .map_while(Result::ok)
            .map(|peer| SocketCredentials::from_socket(&peer).unwrap().pid.unwrap())
            .collect();
        assert!(!peers.is_empty() && !peers.contains(&std::process::id()), "{peers:?}");
    });
}
