//! Processes of another user that claim to be other users' guests, or programs of root.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::spoof::{OTHER_USER, SpoofedProcess};
use crate::support::vm::has;
use crate::support::{copy_program, hold_off_others, skipped, wait_until};
use ksmith_core::decide::domains::DomainsConfig;
use ksmith_core::guest::Guest;
use ksmith_host::guests::{GuestTracker, LibvirtUri, SwitchError};
use ksmith_host::other_controllers::find;
use ksmith_host::root::Root;

const VICTIM: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

/// A libvirt that only tells whether it is connected to.
fn libvirt() -> (tempfile::TempDir, LibvirtUri, UnixListener) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libvirt");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let uri = LibvirtUri::try_from(format!("qemu:///system?socket={}", path.display())).unwrap();
    (directory, uri, listener)
}

/// The guest that a process is taken for.
fn guest_of(spoof: &SpoofedProcess, guests: &mut GuestTracker) -> Guest {
    guests.list_unasked(&spoof.sample()).guests.remove(0)
}

#[test]
fn a_process_that_claims_another_users_domain_has_libvirt_told_nothing() {
    let (_directory, uri, listener) = libvirt();
    let mut guests = GuestTracker::new(Root::host(), uri);
    let spoof = SpoofedProcess::of_libvirt(OTHER_USER, "victim", VICTIM);
    let guest = guest_of(&spoof, &mut guests);
    // What it claims is shown, as a claim.
    assert_eq!((guest.name.as_str(), guest.uuid.as_deref(), guest.is_verified), ("victim", Some(VICTIM), false));
    assert!(guest.title().starts_with("victim [") && guest.uid == Some(OTHER_USER), "{}", guest.title());
    let target = guests.target(&guest).unwrap();
    for on in [false, true] {
        let refused = target.switch(&Root::host(), on, false).unwrap_err();
        assert!(matches!(refused, SwitchError::NoSwitch { .. }), "{refused}");
        assert!(refused.to_string().contains("libvirt has no record of this process"), "{refused}");
        assert!(target.make_permanent(on, false).is_err());
    }
    // The balloon and its statistics go by the same connection.
    assert!(target.monitor(&Root::host()).is_err());
    let heard = listener.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(heard, Err(std::io::ErrorKind::WouldBlock), "libvirt was asked about another user's domain");
}

#[test]
fn a_process_of_another_user_gets_into_no_domain_by_what_it_calls_itself() {
    let config: DomainsConfig = toml::from_str(&format!(
        "default = \"rest\"\n[[rule]]\ndomain = \"a\"\nuuid = \"{VICTIM}\"\n[[rule]]\ndomain = \"a\"\nname = \"victim\"\n\
         [[rule]]\ndomain = \"b\"\nuser = \"{OTHER_USER}\"\n"
    ))
    .unwrap();
    let by_name = DomainsConfig { rule: config.rule[..2].to_vec(), ..config.clone() };
    let domain = |uid: u32, config: &DomainsConfig| {
        let spoof = SpoofedProcess::of_libvirt(uid, "victim", VICTIM);
        let mut guests = GuestTracker::new(Root::host(), LibvirtUri::default());
        config.domain_of(&guest_of(&spoof, &mut guests)).map(str::to_owned)
    };
    assert_eq!(domain(OTHER_USER, &by_name), None, "neither the victim's domain nor the default one");
    assert_eq!(domain(OTHER_USER, &config).as_deref(), Some("b"), "its user is the kernel's word");
    assert_eq!(domain(0, &by_name).as_deref(), Some("a"), "root's word is believed");
}

#[test]
fn a_process_of_another_user_does_not_keep_ksmith_from_starting_by_its_name() {
    for name in ["ksmtuned", "/usr/sbin/ksmtuned", "/usr/sbin/momd"] {
        let spoof = SpoofedProcess::start(OTHER_USER, name, &[]);
        let found: Vec<u32> = find(&Root::host()).iter().map(|holder| holder.id.pid).collect();
        assert!(!found.contains(&spoof.pid()), "{name}");
    }
    // That of root is found, or the above shows nothing.
    let real = SpoofedProcess::start(0, "ksmtuned", &[]);
    assert!(find(&Root::host()).iter().any(|holder| holder.id.pid == real.pid()));
}

/// A set-user-ID program has arguments that any user chooses. `sudo`, for one, has all rights of root before it asks for a
/// password.
#[test]
fn a_set_user_id_program_is_not_roots_word() {
    if !has("python3") {
        return;
    }
    let directory = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let program = directory.path().join("python");
    copy_program(Path::new("/usr/bin/python3"), &program);
    // A ksmtuned of root keeps the daemons of other tests from starting.
    let _others_wait = hold_off_others();
    let code = "import os,sys; os.setuid(0); print(flush=True); sys.stdin.read()";
    let run = |mode: u32, uid: u32| {
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        command.arg0("ksmtuned").args(["-c", code]).uid(uid).gid(uid);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let is_root = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap() == 1;
        let found = find(&Root::host()).iter().any(|holder| holder.id.pid == child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        (is_root, found)
    };
    let (is_root, found) = run(0o4755, OTHER_USER);
    if !is_root {
        return skipped("set-user-ID programs do not work in the directory for temporary files");
    }
    assert!(!found, "it is root's by its rights, and another user's by its arguments");
    assert_eq!(run(0o755, 0), (true, true), "the same program of root is believed");
}

/// Serves QMP, and answers everything with an error that would clear a terminal and write a line of its own.
const HOSTILE_MONITOR: &str = r#"
use IO::Socket::UNIX;
$SIG{PIPE} = 'IGNORE';
my $all = IO::Socket::UNIX->new(Local => $ENV{SOCKET}, Listen => 9) or die;
my $why = 'no\\u001b[2J\\u009b2J\\u202e\\r\\nKSM is running; all is well';
while (my $one = $all->accept) {
    print $one qq({"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 8}, "package": ""}, "capabilities": []}}\r\n);
    while (<$one>) { print $one qq({"error": {"class": "GenericError", "desc": "$why"}, "id": 1}\r\n) }
}
"#;

#[test]
fn an_error_of_another_users_monitor_is_shown_as_text() {
    if !has("perl") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let (program, socket) = (directory.path().join("qemu-system-x86_64"), directory.path().join("qmp"));
    copy_program(Path::new("/usr/bin/perl"), &program);
    let option = format!("unix:{},server=on", socket.display());
    let mut command = Command::new(&program);
    command.args(["-e", HOSTILE_MONITOR, "--", "-name", "web\u{1b}[2J", "-qmp", &option]).env("SOCKET", &socket);
    let mut guest = command.uid(OTHER_USER).gid(OTHER_USER).stdin(Stdio::null()).spawn().unwrap();
    wait_until("the socket is served", || UnixStream::connect(&socket).is_ok());
    let pid = guest.id().to_string();
    let say = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ksmith")).args(arguments).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    // On a busy host the monitor may be too slow for its half second.
    let said = [&["guests"][..], &["guests", "--json"], &["merge", "off", &pid, "--force"]].map(|arguments| {
        let mut text = String::new();
        wait_until("the error is shown", || {
            text = say(arguments);
            text.contains("KSM is running; all is well")
        });
        text
    });
    guest.kill().unwrap();
    guest.wait().unwrap();
    for text in said {
        assert!(!text.lines().any(|line| line.trim_start().starts_with("KSM is running")), "{text}");
        assert!(!text.contains(|c: char| c != '\n' && c.is_control() || c == '\u{202e}'), "{text:?}");
    }
}
