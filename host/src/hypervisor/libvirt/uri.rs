//! The URI of the libvirt to connect to.

use std::fmt;
use std::path::PathBuf;

use rustix::process::Uid;
use serde::{Deserialize, Serialize};

/// A connection URI: `qemu:///system`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LibvirtUri {
    /// The operator's text, with the socket.
    whole: String,
    text: String,
    driver: String,
    is_session: bool,
    socket: Option<PathBuf>,
}

/// A URI that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a libvirt URI that ksmith can use: it takes DRIVER:///system or DRIVER:///session on this \
         host, with ?socket=PATH where the socket is elsewhere"
)]
pub struct BadUri(String);

impl Default for LibvirtUri {
    fn default() -> Self {
        Self {
            whole: "qemu:///system".to_owned(),
            text: "qemu:///system".to_owned(),
            driver: "qemu".to_owned(),
            is_session: false,
            socket: None,
        }
    }
}

impl TryFrom<String> for LibvirtUri {
    type Error = BadUri;

    fn try_from(text: String) -> Result<Self, BadUri> {
        let bad = || BadUri(text.clone());
        let (scheme, rest) = text.split_once("://").ok_or_else(bad)?;
        let driver = scheme.strip_suffix("+unix").unwrap_or(scheme);
        let is_word = !driver.is_empty() && driver.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let socket = query.split('&').find_map(|option| option.strip_prefix("socket=")).map(PathBuf::from);
        if !is_word || !path.starts_with('/') {
            return Err(bad());
        }
        let (driver, is_session) = (driver.to_owned(), path == "/session");
        // The URI that libvirt is told has no socket in it: only the client needs that.
        let named = format!("{driver}://{path}");
        Ok(Self { whole: text, text: named, driver, is_session, socket })
    }
}

impl From<LibvirtUri> for String {
    fn from(uri: LibvirtUri) -> Self {
        uri.whole
    }
}

impl LibvirtUri {
    /// Returns the sockets to try, in this order: the driver's own daemon, then the one for all drivers.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        if let Some(socket) = &self.socket {
            return vec![socket.clone()];
        }
        let directory = match self.session_user(rustix::process::geteuid()) {
            Some(user) => PathBuf::from(format!("/run/user/{}/libvirt", user.as_raw())),
            None => PathBuf::from("/run/libvirt"),
        };
        vec![directory.join(format!("virt{}d-sock", self.driver)), directory.join("libvirt-sock")]
    }

    /// Returns the directory of the status files of running domains, below the root. A session's libvirt is that of our
    /// own user.
    pub(super) fn states(&self) -> PathBuf {
        match self.session_user(rustix::process::geteuid()) {
            Some(user) => PathBuf::from(format!("run/user/{}/libvirt/{}/run", user.as_raw(), self.driver)),
            None => PathBuf::from(format!("run/libvirt/{}", self.driver)),
        }
    }

    /// Returns the user of the session's libvirt; `None` for the system's, which is root's too, whatever it is called
    /// (`virConnectValidateURIPath` of libvirt).
    fn session_user(&self, own: Uid) -> Option<Uid> {
        Some(own).filter(|own| self.is_session && !own.is_root())
    }

    /// Returns the driver: `qemu`.
    pub(in crate::hypervisor) fn driver(&self) -> &str {
        &self.driver
    }
}

impl fmt::Display for LibvirtUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Result<LibvirtUri, BadUri> {
        LibvirtUri::try_from(text.to_owned())
    }

    #[test]
    fn local_uris_of_any_driver_are_taken() {
        let system = uri("qemu:///system").unwrap();
        assert_eq!(system, LibvirtUri::default());
        assert_eq!(system.sockets()[1], PathBuf::from("/run/libvirt/libvirt-sock"));
        let session = uri("qemu:///session").unwrap();
        assert!(session.sockets()[0].ends_with("libvirt/virtqemud-sock"));
        let user = Uid::from_raw(1000);
        assert_eq!([session.session_user(user), session.session_user(Uid::ROOT)], [Some(user), None]);
        assert_eq!(system.session_user(user), None);
        let other = uri("xen+unix:///system?socket=/tmp/s").unwrap();
        assert_eq!((other.to_string().as_str(), other.sockets()), ("xen:///system", vec!["/tmp/s".into()]));
        assert_eq!(uri(&String::from(other.clone())).unwrap(), other, "what is kept of it reads back");
    }

    #[test]
    fn remote_hosts_and_nonsense_are_refused() {
        for bad in ["qemu+ssh://host/system", "qemu://host/system", "qemu", "", ":///system", "a b:///x"] {
            assert!(uri(bad).is_err(), "{bad}");
        }
    }
}
