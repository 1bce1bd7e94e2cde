//! Guests that a person wants left alone, on disk so that a daemon that starts later knows.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::act::{StateDir, replace};

/// What went wrong with the file.
#[derive(Debug, thiserror::Error)]
#[error("the list of guests that are held, {path}, can't be used: {source}", path = .path.display())]
pub struct HoldsError {
    path: PathBuf,
    source: io::Error,
}

/// The list, in `holds.json` of the state directory. A reboot empties it, and changes who is who.
#[derive(Debug, Clone)]
pub struct Holds {
    directory: StateDir,
    keys: Vec<String>,
}

impl Holds {
    /// Reads the list; that there is none is no error.
    ///
    /// # Errors
    /// It can't be read, or is no such list.
    pub fn open(directory: &StateDir) -> Result<Self, HoldsError> {
        let path = directory.path().join("holds.json");
        let keys = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|why| HoldsError { path, source: why.into() })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(HoldsError { path, source }),
        };
        Ok(Self { directory: directory.clone(), keys })
    }

    /// Whether this guest is held.
    pub fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|held| held == key)
    }

    /// Holds a guest, or lets it go. Returns whether that is new.
    ///
    /// # Errors
    /// The file can't be written; then nothing has changed.
    pub fn set(&mut self, key: &str, is_held: bool) -> Result<bool, HoldsError> {
        if self.has(key) == is_held {
            return Ok(false);
        }
        let mut keys = self.keys.clone();
        keys.retain(|held| held != key);
        if is_held {
            keys.push(key.to_owned());
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
    fn who_is_held_stays_so_for_the_next_ksmith_until_let_go() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let mut holds = Holds::open(&directory).unwrap();
        assert!(holds.set("a", true).unwrap() && !holds.set("a", true).unwrap());
        let mut next = Holds::open(&directory).unwrap();
        assert!(next.has("a") && !next.has("b"));
        next.set("a", false).unwrap();
        assert!(!Holds::open(&directory).unwrap().has("a"));
        fs::write(directory.path().join("holds.json"), "{").unwrap();
        assert!(Holds::open(&directory).is_err());
    }
}
