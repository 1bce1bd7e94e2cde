//! Guests that the operator wants left alone, on disk for daemons that start later.

use std::fs;
use std::io;
use std::path::PathBuf;

use ksmith_host::undo::{StateDir, replace};

/// A failure of the file.
#[derive(Debug, thiserror::Error)]
#[error("the list of guests that are held, {path}, can't be used: {source}", path = .path.display())]
pub struct HoldsError {
    path: PathBuf,
    source: io::Error,
}

/// The list, in `holds.json` of the state directory. A reboot empties it, and changes the guests' identities.
#[derive(Debug, Clone)]
pub struct Holds {
    directory: StateDir,
    keys: Vec<String>,
}

impl Holds {
    /// Reads the list. Its absence is no error.
    ///
    /// # Errors
    /// The file can't be read, or is no such list.
    pub fn open(directory: &StateDir) -> Result<Self, HoldsError> {
        let path = directory.path().join("holds.json");
        let keys = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|why| HoldsError { path, source: why.into() })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(HoldsError { path, source }),
        };
        Ok(Self { directory: directory.clone(), keys })
    }

    /// Whether the list has a guest, by any of its names.
    pub fn has(&self, mut names: impl Iterator<Item = String>) -> bool {
        !self.keys.is_empty() && names.any(|name| self.keys.contains(&name))
    }

    /// Holds a guest by the first of its names, or releases it by all of them. Returns whether that is new.
    ///
    /// # Errors
    /// The file can't be written. Then nothing has changed.
    pub fn set(&mut self, names: &[String], is_held: bool) -> Result<bool, HoldsError> {
        if self.has(names.iter().cloned()) == is_held {
            return Ok(false);
        }
        let mut keys = self.keys.clone();
        keys.retain(|held| !names.contains(held));
        if is_held {
            keys.extend(names.first().cloned());
        }
        let path = self.directory.path().join("holds.json");
        let write = || -> io::Result<()> {
            self.directory.make()?;
            replace(&path, &serde_json::to_vec_pretty(&keys)?)
        };
        write().map_err(|source| HoldsError { path: path.clone(), source })?;
        self.keys = keys;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_guest_stays_held_for_the_next_ksmith_until_released() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let mut holds = Holds::open(&directory).unwrap();
        let names = ["uuid", "7:70", "qemu:a:7"].map(str::to_owned);
        let has = |holds: &Holds, name: &str| holds.has([name.to_owned()].into_iter());
        assert!(holds.set(&names, true).unwrap() && !holds.set(&names, true).unwrap());
        let mut next = Holds::open(&directory).unwrap();
        assert!(has(&next, "uuid") && !has(&next, "7:70"));
        next.set(&names, false).unwrap();
        assert!(!has(&Holds::open(&directory).unwrap(), "uuid"));
        // A name of an earlier release counts, and is released as well.
        next.set(&names[2..], true).unwrap();
        assert!(next.has(names.iter().cloned()) && next.set(&names, false).unwrap());
        assert!(!next.has(names.iter().cloned()));
        fs::write(directory.path().join("holds.json"), "{").unwrap();
        assert!(Holds::open(&directory).is_err());
    }
}
