//! Processes of other users that call themselves what they are not.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ksmith_core::sample::{ProcessSample, Sample};

use super::process_id;

/// A user that owns nothing here, and has no name.
pub const OTHER_USER: u32 = 64_999;

/// A shell that waits under another name. Ended on drop. One of root is believed by each ksmith on the host, so no other test
/// with a lock runs beside it: a test that starts one holds none.
pub struct SpoofedProcess {
    child: Child,
    _directory: tempfile::TempDir,
    _others_wait: Option<File>,
}

impl SpoofedProcess {
    /// Starts it as this user, with this command line after the shell's own two arguments.
    pub fn start(uid: u32, name: &str, arguments: &[&str]) -> Self {
        let others_wait = if uid == 0 { super::hold_off_others() } else { None };
        // The kernel's own name of a process is that of its file.
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join(name.rsplit('/').next().unwrap());
        super::copy_program(Path::new("/bin/sh"), &program);
        let mut command = Command::new(program);
        command.arg0(name).args(["-c", "read line"]).args(arguments);
        let child = command.uid(uid).gid(uid).stdin(Stdio::piped()).spawn().unwrap();
        Self { child, _directory: directory, _others_wait: others_wait }
    }

    /// Starts a process that claims to be this guest of libvirt's.
    pub fn of_libvirt(uid: u32, name: &str, uuid: &str) -> Self {
        let monitor =
            ["-chardev", "socket,id=charmonitor,fd=33,server=on", "-mon", "chardev=charmonitor,mode=control"];
        let claims = ["-name", &format!("guest={name},debug-threads=on"), "-uuid", uuid].map(str::to_owned);
        let arguments: Vec<&str> = claims.iter().map(String::as_str).chain(monitor).collect();
        Self::start(uid, "/usr/bin/qemu-system-x86_64", &arguments)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A sample that has this process alone.
    pub fn sample(&self) -> Sample {
        let process = ProcessSample::new(process_id(self.pid()), "spoof".into(), true);
        Sample { page_size: 4096, processes: vec![process], ..Sample::default() }
    }
}

impl Drop for SpoofedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
