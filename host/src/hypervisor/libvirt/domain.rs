//! The record of a running domain, from libvirt's own status files.
//!
//! A command line names a domain and proves nothing. The proof has two parts. libvirt's status file has the PID. And
//! the process is the one that libvirt started with this PID, and no later one: it holds the lock on its PID file,
//! which it got from libvirt, or it is in the cgroup that the system's manager of machines made for the domain.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use roxmltree::Document;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::LibvirtUri;
use crate::hypervisor::ManagerRecord;
use crate::hypervisor::cgroup::CgroupPath;
use crate::hypervisor::escape::unescape;
use crate::root::Root;

/// The largest accepted status file, in bytes; usual ones have some ten kilobytes.
const LONGEST: u64 = 4 << 20;

/// Returns libvirt's record of the domain `name`, if the process `pid` is that domain.
pub(super) fn record(root: &Root, uri: &LibvirtUri, name: &str, pid: u32) -> Option<ManagerRecord> {
    // libvirt refuses such names; a command line may hold anything.
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = File::from(openat(CWD, root.path(uri.states()), flags, Mode::empty()).ok()?);
    is_ours(&directory)?;
    let open = |file: String| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&directory, Path::new(&file), flags, Mode::empty()).ok()?);
        is_ours(&file)?;
        file.metadata().ok()?.is_file().then_some(file)
    };
    let mut text = String::new();
    open(format!("{name}.xml"))?.take(LONGEST).read_to_string(&mut text).ok()?;
    let status = parse(&text, name, pid)?;
    let holds_lock = || open(format!("{name}.pid")).is_some_and(|file| is_locked_by(&file, pid));
    (holds_lock() || is_in_machine(root, uri.driver(), &status.id, pid)).then_some(status.managed)
}

/// Returns `Some` if no other user can write to a file, or create one in a directory.
fn is_ours(file: &File) -> Option<()> {
    let found = file.metadata().ok()?;
    let is_trusted = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
    (is_trusted && found.mode() & 0o022 == 0).then_some(())
}

/// Returns true if a process has locked a file for writing. Others may lock it for reading only, which does not count.
fn is_locked_by(file: impl AsFd, pid: u32) -> bool {
    let lock = fcntl_getlk(file, &Flock::from(FlockType::ReadLock)).ok().flatten();
    lock.and_then(|lock| lock.pid).is_some_and(|holder| holder.as_raw_nonzero().get().unsigned_abs() == pid)
}

/// Returns true if a process is in the scope of the domain with this number: systemd makes it for libvirt, at the top.
fn is_in_machine(root: &Root, driver: &str, id: &str, pid: u32) -> bool {
    let text = root.text(format!("proc/{pid}/cgroup"));
    let Some(cgroup) = text.value().and_then(|text| CgroupPath::parse(text)) else { return false };
    let scope = cgroup.path().strip_prefix("/machine.slice/").and_then(|rest| rest.split('/').next());
    scope.map(unescape).is_some_and(|scope| scope.starts_with(&format!("machine-{driver}-{id}-")))
}

/// The fields of a status file that are used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DomainStatus {
    /// Number of the running domain.
    id: String,
    managed: ManagerRecord,
}

pub(super) fn parse(text: &str, name: &str, pid: u32) -> Option<DomainStatus> {
    let document = Document::parse(text).ok()?;
    let root = document.root_element();
    if !root.has_tag_name("domstatus") || root.attribute("pid")?.parse::<u32>() != Ok(pid) {
        return None;
    }
    let domain = root.children().find(|node| node.has_tag_name("domain"))?;
    let child = |name: &str| domain.children().find(|node| node.has_tag_name(name));
    let metadata = child("metadata").and_then(|node| {
        let (first, last) = (node.first_child()?, node.last_child()?);
        Some(text.get(first.range().start..last.range().end)?.trim().to_owned())
    });
    if child("name").and_then(|node| node.text()) != Some(name) {
        return None;
    }
    let managed = ManagerRecord { uuid: child("uuid").and_then(|node| node.text()).map(str::to_owned), metadata };
    Some(DomainStatus { id: domain.attribute("id").unwrap_or_default().to_owned(), managed })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::*;

    const TEXT: &str = "<domstatus state='running' reason='booted' pid='812'>
  <monitor path='/var/lib/libvirt/qemu/domain-1-web/monitor.sock' type='unix'/>
  <domain type='qemu' id='1'>
    <name>web</name>
    <uuid>00000000-1111-2222-3333-444444444444</uuid>
    <metadata>
      <app:customer xmlns:app='http://example.org/app'>blue</app:customer>
    </metadata>
  </domain>
</domstatus>";

    #[test]
    fn uuid_and_metadata_come_from_the_file_of_this_very_process() {
        let parse = |text: &str, pid| Some(parse(text, "web", pid)?.managed);
        let status = parse(TEXT, 812).unwrap();
        assert_eq!(status.uuid.as_deref(), Some("00000000-1111-2222-3333-444444444444"));
        assert_eq!(
            status.metadata.as_deref(),
            Some("<app:customer xmlns:app='http://example.org/app'>blue</app:customer>")
        );
        assert_eq!(parse(TEXT, 813), None);
        for bad in ["", "<domain/>", "<domstatus pid='812'/>", "<domstatus"] {
            assert_eq!(parse(bad, 812), None, "{bad}");
        }
    }

    /// Builds a tree with the record of the domain `web`, which names this PID.
    fn tree(pid: u32) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("run/libvirt/qemu")).unwrap();
        let text = TEXT.replace("812", &pid.to_string());
        for file in ["run/libvirt/web.xml", "run/libvirt/qemu/web.xml"] {
            write(tree.path(), file, &text);
        }
        write(tree.path(), "run/libvirt/qemu/web.pid", &pid.to_string());
        tree
    }

    fn write(tree: &Path, file: &str, text: &str) {
        let path = tree.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn uuid(tree: &tempfile::TempDir, name: &str, pid: u32) -> Option<String> {
        record(&Root::at(tree.path()), &LibvirtUri::default(), name, pid)?.uuid
    }

    #[test]
    fn the_scope_of_the_machine_proves_a_process_and_a_users_scope_of_that_name_does_not() {
        let tree = tree(812);
        assert_eq!(uuid(&tree, "web", 812), None, "the PID alone: it may be a later process's");
        for (path, expected) in [
            (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator", true),
            (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope", true),
            (r"/machine.slice/machine-qemu\x2d12\x2dweb.scope", false),
            (r"/user.slice/user@1.service/machine.slice/machine-qemu\x2d1\x2dweb.scope", false),
            ("/machine.slice", false),
        ] {
            write(tree.path(), "proc/812/cgroup", &format!("0::{path}\n"));
            assert_eq!(uuid(&tree, "web", 812).is_some(), expected, "{path}");
        }
    }

    #[test]
    fn the_lock_on_its_pid_file_proves_a_process_and_no_other() {
        let lock = |how: &str, path: &Path| {
            let code = format!(
                "import fcntl,sys; f=open(sys.argv[1],'{how}'); fcntl.lockf(f, fcntl.LOCK_{}); print(flush=True); \
                 sys.stdin.read()",
                if how == "r" { "SH" } else { "EX" }
            );
            let mut child = Command::new("python3")
                .args(["-c", &code])
                .arg(path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut byte = [0];
            child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            child
        };
        let path = tempfile::NamedTempFile::new().unwrap();
        for (how, expected) in [("r+", true), ("r", false)] {
            let mut child = lock(how, path.path());
            let tree = tree(child.id());
            let its = tree.path().join("run/libvirt/qemu/web.pid");
            std::fs::remove_file(&its).unwrap();
            std::fs::hard_link(path.path(), &its).unwrap();
            assert_eq!(uuid(&tree, "web", child.id()).is_some(), expected, "{how}");
            assert_eq!(uuid(&tree, "web", 1), None, "another process");
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(uuid(&tree, "web", child.id()), None, "it has ended, and the PID may be another's");
        }
    }

    #[test]
    fn a_record_that_another_user_may_have_written_is_none() {
        let tree = tree(812);
        write(tree.path(), "proc/812/cgroup", "0::/machine.slice/machine-qemu\\x2d1\\x2dweb.scope\n");
        assert!(uuid(&tree, "web", 812).is_some());
        let mode = |file: &str, mode| {
            std::fs::set_permissions(tree.path().join(file), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (file, loose, tight) in [("run/libvirt/qemu/web.xml", 0o622, 0o600), ("run/libvirt/qemu", 0o777, 0o755)]
        {
            mode(file, loose);
            assert_eq!(uuid(&tree, "web", 812), None, "{file}");
            mode(file, tight);
        }
        if rustix::process::geteuid().is_root() {
            let file = tree.path().join("run/libvirt/qemu/web.xml");
            std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
            assert_eq!(uuid(&tree, "web", 812), None, "it belongs to another user");
            std::os::unix::fs::chown(&file, Some(0), None).unwrap();
        }
        let link = tree.path().join("run/libvirt/qemu/web.xml");
        std::fs::rename(&link, tree.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(tree.path().join("elsewhere"), &link).unwrap();
        assert_eq!(uuid(&tree, "web", 812), None, "a link");
    }

    #[test]
    fn a_name_never_leads_out_of_the_directory_nor_to_another_domain() {
        let tree = tree(812);
        write(tree.path(), "proc/812/cgroup", "0::/machine.slice/machine-qemu\\x2d1\\x2dweb.scope\n");
        assert!(uuid(&tree, "web", 812).is_some());
        assert_eq!(uuid(&tree, "../web", 812), None);
        let other = TEXT.replace("<name>web</name>", "<name>other</name>");
        write(tree.path(), "run/libvirt/qemu/web.xml", &other);
        assert_eq!(uuid(&tree, "web", 812), None);
    }
}
