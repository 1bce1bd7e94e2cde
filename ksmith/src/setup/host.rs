//! The effects on a real host. This is the only file of the command line that calls programs to change the host.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ksmith_host::root::Root;
use tempfile::NamedTempFile;

use super::effects::{SetupEffects, SetupError};

/// The effects on a host, or on a tree that is an image of one: there programs get the tree as `--root`.
#[derive(Debug)]
pub struct HostEffects {
    root: Root,
}

impl HostEffects {
    /// Returns the effects on this host or tree.
    pub fn new(root: Root) -> Self {
        Self { root }
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.root.path(path.strip_prefix("/").unwrap_or(path))
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> SetupError + '_ {
    move |source| SetupError::File { path: path.to_owned(), source }
}

impl SetupEffects for HostEffects {
    fn text(&self, path: &Path) -> Result<Option<String>, SetupError> {
        match fs::read_to_string(self.path(path)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(at(path)(error)),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    fn write(&mut self, path: &Path, text: &str, mode: u32) -> Result<(), SetupError> {
        let file = self.path(path);
        let directory = file.parent().unwrap_or(Path::new("/"));
        let write = || {
            // Of the mode that the unit's StateDirectoryMode= and systemd's own directories allow.
            let state = mode == 0o600;
            DirBuilder::new().recursive(true).mode(if state { 0o711 } else { 0o755 }).create(directory)?;
            let mut new = NamedTempFile::new_in(directory)?;
            new.write_all(text.as_bytes())?;
            new.as_file().set_permissions(Permissions::from_mode(mode))?;
            new.as_file().sync_all()?;
            new.persist(&file).map_err(|error| error.error)?;
            File::open(directory)?.sync_all()
        };
        write().map_err(at(path))
    }

    fn remove(&mut self, path: &Path) -> Result<(), SetupError> {
        let file = self.path(path);
        match fs::remove_file(&file) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(at(path)(error));
            }
            _ => {}
        }
        // It stays if it holds other files.
        let is_own = |name: &OsStr| name.as_bytes().ends_with(b".d") || name.as_bytes().ends_with(b"-ksmith");
        if let Some(directory) = file.parent().filter(|parent| parent.file_name().is_some_and(is_own)) {
            let _ = fs::remove_dir(directory);
        }
        Ok(())
    }

    fn link(&mut self, path: &Path, target: &Path) -> Result<(), SetupError> {
        let link = self.path(path);
        let make = || {
            fs::create_dir_all(link.parent().unwrap_or(Path::new("/")))?;
            symlink(target, &link)
        };
        make().map_err(at(path))
    }

    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<(), SetupError> {
        let mut command = Command::new(program);
        if !self.root.is_host() {
            command.arg("--root").arg(self.root.path(""));
        }
        let said = command.args(arguments).stdin(Stdio::null()).env("LC_ALL", "C.UTF-8").output();
        let output = said.map_err(|source| SetupError::Start { program: program.to_owned(), source })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(SetupError::Failed {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            status: output.status.to_string(),
            said: said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned(),
        })
    }
}
