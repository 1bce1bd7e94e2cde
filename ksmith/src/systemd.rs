//! Services that systemd opts in: a drop-in with `MemoryKSM=yes`. Only files are read and written; that systemd reads
//! them is the administrator's call.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ksmith_core::field::KernelVersion;

use crate::root::Root;

/// The first systemd whose `MemoryKSM=` works: before, it calls the prctl with arguments that the kernel refuses, and
/// the service fails to start for ever (systemd pull request 31683).
const WORKS: u32 = 256;

/// The first systemd that has it.
const HAS: u32 = 254;

/// The first kernel that keeps the opt-in over the exec of the service.
const SURVIVES_EXEC: KernelVersion = KernelVersion::new(6, 7);

/// The file in the unit's drop-in directory.
const NAME: &str = "50-ksmith-memory-ksm.conf";

const TEXT: &str =
    "# Written by `ksmith optin`; taken away by `ksmith optin --remove`.\n[Service]\nMemoryKSM=yes\n";

/// Where units are, in the order in which systemd looks.
const UNITS: [&str; 9] = [
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

/// Why a unit is not opted in.
#[derive(Debug, thiserror::Error)]
pub enum OptInError {
    /// That is no service's name.
    #[error("{0:?} is no service: MemoryKSM= is for units such as redis.service or postgresql@15-main.service")]
    NoService(String),
    /// There is no such unit.
    #[error(
        "there is no unit {0} in systemd's directories: see `systemctl list-unit-files`; --force writes the drop-in all the same"
    )]
    NoUnit(String),
    /// systemd's version is too old.
    #[error("systemd {version} {}: the service would {}. Upgrade to {WORKS}, or put `ksmith run --scan never --` before its ExecStart=; --force writes the drop-in all the same",
        if *.version < HAS { "does not know MemoryKSM= (254 does, 256 makes it work)" } else { "calls the kernel wrongly for MemoryKSM= (256 does not)" },
        if *.version < HAS { "start without it" } else { "fail to start" })]
    Systemd {
        /// The version.
        version: u32,
    },
    /// It can't be found out.
    #[error(
        "systemd's version can't be found out (no libsystemd-shared in its directory): --force writes the drop-in all the same"
    )]
    UnknownSystemd,
    /// The kernel is too old.
    #[error(
        "Linux {0} forgets the opt-in when systemd starts the service's program (6.7 keeps it): use `ksmith run --preload --` in ExecStart=; --force writes the drop-in all the same"
    )]
    Kernel(String),
    /// A file can't be written or removed.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A service of this host or of a tree that looks like one.
#[derive(Debug)]
pub struct Service<'a> {
    root: &'a Root,
    /// With its suffix.
    pub unit: String,
}

impl<'a> Service<'a> {
    /// The service of this name; `.service` may be left out.
    ///
    /// # Errors
    /// It is another kind of unit, or no name at all.
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

    /// Whether the drop-in would do what it says.
    ///
    /// # Errors
    /// It would not; says why.
    pub fn check(&self) -> Result<(), OptInError> {
        if !self.exists() {
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

    /// The drop-in.
    pub fn drop_in(&self) -> PathBuf {
        self.root.path(format!("etc/systemd/system/{}.d", self.unit)).join(NAME)
    }

    /// What is in it.
    pub fn text(&self) -> &'static str {
        TEXT
    }

    /// Writes it. Returns whether anything changed.
    ///
    /// # Errors
    /// It can't be written.
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

    /// Removes it, and its directory if nothing else is there. Returns whether it was there.
    ///
    /// # Errors
    /// It can't be removed.
    pub fn remove(&self) -> Result<bool, OptInError> {
        let path = self.drop_in();
        match fs::remove_file(&path) {
            Ok(()) => {
                // Others' drop-ins keep it.
                let _ = path.parent().map(fs::remove_dir);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(false)
            }
            Err(source) => Err(OptInError::File { path, source }),
        }
    }

    fn exists(&self) -> bool {
        // An instance's unit is its template's.
        let template = self.unit.split_once('@').map(|(name, _)| format!("{name}@.service"));
        UNITS.iter().any(|directory| {
            let has = |name: &str| self.root.path(directory).join(name).symlink_metadata().is_ok();
            has(&self.unit) || template.as_deref().is_some_and(has)
        })
    }
}

/// systemd's version, from the name of its own library: no program need be started to ask.
fn version(root: &Root) -> Option<u32> {
    let places = ["usr/lib", "usr/lib64", "lib", "lib64"].map(|place| root.path(place));
    let mut directories: Vec<PathBuf> = places.iter().map(|place| place.join("systemd")).collect();
    // Debian keeps it in the directory of the architecture.
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
    // An upgrade may leave the old one until the next start: the older counts.
    names.filter_map(|entry| of(&entry.file_name().to_string_lossy())).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with a systemd of this version, a kernel, redis.service and a template.
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
        let service = Service::named(&root, "redis").unwrap();
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
        let service = Service::named(&root, "postgresql@15-main").unwrap();
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
            let error = Service::named(&root, unit).unwrap().check().unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("--force"), "{version} {kernel} {unit}: {error}");
        }
    }

    #[test]
    fn what_is_no_service_is_refused() {
        let root = Root::host();
        for bad in ["", "a.socket", "../etc", "a/b", "user.slice", ".service", "a b"] {
            assert!(Service::named(&root, bad).is_err(), "{bad}");
        }
        assert_eq!(Service::named(&root, "redis").unwrap().unit, "redis.service");
    }
}
