//! Processes of other users that call themselves what they are not.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ksmith_core::kernel::PidStat;
use ksmith_core::sample::{Process, ProcessId, Sample};

/// A user that owns nothing here, and has no name.
pub const OTHER_USER: u32 = 64_999;

/// A shell that waits under another name. Ended on drop.
pub struct Spoof(Child, tempfile::TempDir);

impl Spoof {
    /// Starts it as this user, with this command line after the shell's own two arguments.
    pub fn start(uid: u32, name: &str, arguments: &[&str]) -> Self {
        // The kernel's own name of a process is that of its file.
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join(name.rsplit('/').next().unwrap());
        super::copy_program(Path::new("/bin/sh"), &program);
        let mut command = Command::new(program);
        command.arg0(name).args(["-c", "read line"]).args(arguments);
        Self(command.uid(uid).gid(uid).stdin(Stdio::piped()).spawn().unwrap(), directory)
    }

    /// One that claims to be this guest of libvirt's.
    pub fn of_libvirt(uid: u32, name: &str, uuid: &str) -> Self {
        let monitor =
            ["-chardev", "socket,id=charmonitor,fd=33,server=on", "-mon", "chardev=charmonitor,mode=control"];
        let claims = ["-name", &format!("guest={name},debug-threads=on"), "-uuid", uuid].map(str::to_owned);
        let arguments: Vec<&str> = claims.iter().map(String::as_str).chain(monitor).collect();
        Self::start(uid, "/usr/bin/qemu-system-x86_64", &arguments)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// A sample that has this process alone.
    pub fn sample(&self) -> Sample {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let stat = PidStat::parse(&text).unwrap();
        let process = Process {
            id: ProcessId { pid: self.pid(), start_ticks: stat.start_ticks },
            name: "spoof".into(),
            is_vm: true,
            rss_bytes: 0,
            cpu_ticks: 0,
            minor_faults: 0,
            ksm: Default::default(),
        };
        Sample { page_size: 4096, processes: vec![process], ..Sample::default() }
    }
}

impl Drop for Spoof {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
