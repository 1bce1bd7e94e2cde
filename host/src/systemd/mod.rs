//! Files of systemd: drop-ins with `MemoryKSM=yes` that opt a service in, and the state of units. This module only
//! reads and writes files; the administrator makes systemd read them.

mod state;
mod triggers;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ksmith_core::field::KernelVersion;

use crate::root::Root;
pub use state::{at_boot, enabling_links, exists, is_active, is_running};
pub use triggers::{instances, triggers};

/// The first systemd with a working `MemoryKSM=`. Older ones call the prctl with arguments that the kernel
/// refuses, so that the service never starts (systemd pull request 31683).
const WORKS: u32 = 256;

/// The first systemd that knows `MemoryKSM=`.
const HAS: u32 = 254;

/// The first kernel that keeps the opt-in when the service's program is executed.
const SURVIVES_EXEC: KernelVersion = KernelVersion::new(6, 7);

/// Name of the file in the unit's drop-in directory.
const NAME: &str = "50-ksmith-memory-ksm.conf";

const TEXT: &str = "# Written by `ksmith optin`; removed by `ksmith optin --remove`.\n[Service]\nMemoryKSM=yes\n";

/// Directories of units below the root, in systemd's order of precedence: a unit's first file counts (systemd.unit(5)).
pub const UNIT_DIRECTORIES: [&str; 9] = [
    "etc/systemd/system.control",
    "run/systemd/transient",
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/generator.late",
];

/// The reason why a unit can't be opted in.
#[derive(Debug, thiserror::Error)]
pub enum OptInError {
    /// The name is not that of a service.
    #[error("{0:?} is not a service: MemoryKSM= is for units such as redis.service or postgresql@15-main.service")]
    NoService(String),
    /// No directory has this unit.
    #[error(
        "there is no unit {0} in systemd's directories: see `systemctl list-unit-files`; --force writes the \
        drop-in anyway"
    )]
    NoUnit(String),
    /// The version of systemd is too old.
    #[error("systemd {version} {}: the service would {}. Upgrade to {WORKS}, or put `ksmith run --scan never --` \
        before its ExecStart=; --force writes the drop-in anyway",
        if *.version < HAS { "does not know MemoryKSM= (254 does, 256 makes it work)" } else { "calls the kernel wrongly for MemoryKSM= (256 does not)" },
        if *.version < HAS { "start without it" } else { "fail to start" })]
    Systemd {
        /// Version of systemd.
        version: u32,
    },
    /// The version of systemd is not known.
    #[error(
        "systemd's version can't be found out (no libsystemd-shared in its directory): --force writes the \
        drop-in anyway"
    )]
    UnknownSystemd,
    /// The kernel is too old.
    #[error(
        "Linux {0} forgets the opt-in when systemd starts the service's program (6.7 keeps it): use `ksmith run \
        --preload --` in ExecStart=; --force writes the drop-in anyway"
    )]
    Kernel(String),
    /// A file can't be written or removed.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A service unit of this host or of a captured tree.
#[derive(Debug)]
pub struct ServiceUnit<'a> {
    root: &'a Root,
    /// Name of the unit, with its suffix.
    pub unit: String,
}

impl<'a> ServiceUnit<'a> {
    /// Creates a service from its name. The suffix `.service` may be left out.
    ///
    /// # Errors
    /// The name is empty or that of another kind of unit.
    pub fn named(root: &'a Root, name: &str) -> Result<Self, OptInError> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || ":_.\\@-".contains(c);
        let refused = || OptInError::NoService(name.to_owned());
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_name) || name.len() > 200 {
            return Err(refused());
        }
        const OTHERS: [&str; 10] = [
            ".socket",
            ".target",
            ".timer",
            ".slice",
            ".scope",
            ".mount",
            ".swap",
            ".path",
            ".device",
            ".automount",
        ];
        if OTHERS.iter().any(|suffix| name.ends_with(suffix)) {
            return Err(refused());
        }
        let unit = if name.ends_with(".service") { name.to_owned() } else { format!("{name}.service") };
        Ok(Self { root, unit })
    }

    /// Checks that the drop-in would have an effect.
    ///
    /// # Errors
    /// The drop-in would have no effect, or stop the service from starting.
    pub fn check(&self) -> Result<(), OptInError> {
        if !exists(self.root, &self.unit) {
            return Err(OptInError::NoUnit(self.unit.clone()));
        }
        match version(self.root) {
            None => return Err(OptInError::UnknownSystemd),
            Some(version) if version < WORKS => return Err(OptInError::Systemd { version }),
            Some(_) => {}
        }
        let release = self.root.text("proc/sys/kernel/osrelease").value().cloned().unwrap_or_default();
        match KernelVersion::parse(&release) {
            Some(version) if version < SURVIVES_EXEC => Err(OptInError::Kernel(release.trim().to_owned())),
            _ => Ok(()),
        }
    }

    /// Returns the path of the drop-in.
    pub fn drop_in(&self) -> PathBuf {
        self.root.path(format!("etc/systemd/system/{}.d", self.unit)).join(NAME)
    }

    /// Returns the content of the drop-in.
    pub fn text(&self) -> &'static str {
        TEXT
    }

    /// Writes the drop-in. Returns whether the file changed.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn opt_in(&self) -> Result<bool, OptInError> {
        let path = self.drop_in();
        if fs::read_to_string(&path).is_ok_and(|text| text == TEXT) {
            return Ok(false);
        }
        let directory = path.parent().unwrap_or(Path::new("/"));
        let failed = |source| OptInError::File { path: path.clone(), source };
        fs::create_dir_all(directory).map_err(failed)?;
        fs::write(&path, TEXT).map_err(failed)?;
        Ok(true)
    }

    /// Removes the drop-in, and its directory if that is empty then. Returns whether the drop-in existed.
    ///
    /// # Errors
    /// The file can't be removed.
    pub fn remove(&self) -> Result<bool, OptInError> {
        let path = self.drop_in();
        match fs::remove_file(&path) {
            Ok(()) => {
                // The directory stays if it holds other drop-ins.
                let _ = path.parent().map(fs::remove_dir);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(false)
            }
            Err(source) => Err(OptInError::File { path, source }),
        }
    }
}

/// Returns the version of systemd, from the name of its own library, so that no program is started.
fn version(root: &Root) -> Option<u32> {
    let places = ["usr/lib", "usr/lib64", "lib", "lib64"].map(|place| root.path(place));
    let mut directories: Vec<PathBuf> = places.iter().map(|place| place.join("systemd")).collect();
    // Debian keeps the library in the directory of the architecture.
    for place in &places {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        directories.extend(
            entries
                .filter(|entry| entry.file_name().to_string_lossy().contains("-linux-"))
                .map(|entry| entry.path().join("systemd")),
        );
    }
    let names =
        directories.into_iter().flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten());
    let of = |name: &str| {
        let rest = name.strip_prefix("libsystemd-shared-")?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    // After an upgrade the old library may still be running, so the older version counts.
    names.filter_map(|entry| of(&entry.file_name().to_string_lossy())).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a tree with a systemd of this version, a kernel, redis.service and a template.
    fn host(version: &str, kernel: &str) -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        let put = |relative: &str, text: &str| {
            let path = tree.path().join(relative);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(&format!("usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-{version}.so"), "");
        put("proc/sys/kernel/osrelease", kernel);
        put("usr/lib/systemd/system/redis.service", "[Service]\n");
        put("usr/lib/systemd/system/postgresql@.service", "[Service]\n");
        let root = Root::at(tree.path());
        (tree, root)
    }

    #[test]
    fn a_service_is_opted_in_and_out_again_without_a_trace() {
        let (tree, root) = host("256.7-1.fc41", "6.18.0");
        let service = ServiceUnit::named(&root, "redis").unwrap();
        service.check().unwrap();
        assert!(service.opt_in().unwrap() && !service.opt_in().unwrap());
        let path = tree.path().join("etc/systemd/system/redis.service.d/50-ksmith-memory-ksm.conf");
        assert!(fs::read_to_string(&path).unwrap().ends_with("[Service]\nMemoryKSM=yes\n"));
        assert!(service.remove().unwrap() && !service.remove().unwrap());
        assert!(!path.parent().unwrap().exists());
    }

    #[test]
    fn others_drop_ins_stay() {
        let (tree, root) = host("257", "6.18.0");
        let service = ServiceUnit::named(&root, "postgresql@15-main").unwrap();
        service.check().unwrap();
        service.opt_in().unwrap();
        let other = tree.path().join("etc/systemd/system/postgresql@15-main.service.d/own.conf");
        fs::write(&other, "").unwrap();
        service.remove().unwrap();
        assert!(other.exists());
    }

    #[test]
    fn each_obstacle_is_named_with_the_way_around_it() {
        for (version, kernel, unit, says) in [
            ("252", "6.18.0", "redis", "does not know MemoryKSM="),
            ("255", "6.18.0", "redis", "fail to start"),
            ("256", "6.6.1", "redis", "ksmith run --preload"),
            ("256", "6.18.0", "nosuch", "systemctl list-unit-files"),
        ] {
            let (_tree, root) = host(version, kernel);
            let error = ServiceUnit::named(&root, unit).unwrap().check().unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("--force"), "{version} {kernel} {unit}: {error}");
        }
    }

    #[test]
    fn what_is_no_service_is_refused() {
        let root = Root::host();
        for bad in ["", "a.socket", "../etc", "a/b", "user.slice", ".service", "a b"] {
            assert!(ServiceUnit::named(&root, bad).is_err(), "{bad}");
        }
        assert_eq!(ServiceUnit::named(&root, "redis").unwrap().unit, "redis.service");
    }
}
