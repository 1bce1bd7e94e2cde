//! The group that may connect to a socket.

use std::io;
use std::path::Path;

use ksmith_host::users::group_id;
use tracing::info;

use super::ServedSocket;

/// Lets a group in, by name. Until then only root can connect, and where there is no such group it stays so, which is
/// logged.
///
/// # Errors
/// The kernel refuses.
pub fn allow(socket: &ServedSocket, path: &Path, group: &str) -> io::Result<()> {
    match group_id(group) {
        Some(id) => {
            // Members must get as far as the socket.
            let is_own_directory = path.parent().is_some_and(|directory| directory.ends_with("ksmith"));
            socket.allow(id, is_own_directory)?;
            info!("members of the group {group} may send requests to {}", path.display());
        }
        None => {
            info!(
                "there is no group {group}, so only root may send requests to {}: `groupadd --system {group}`, \
                and restart",
                path.display()
            );
        }
    }
    Ok(())
}
