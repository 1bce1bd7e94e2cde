//! Access control lists: grants access to a file to one more group, without the right to change owners.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{XattrFlags, setxattr};

/// The attribute of the kernel, `POSIX_ACL_XATTR_ACCESS`.
const ATTRIBUTE: &str = "system.posix_acl_access";

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;

/// The tags of `include/uapi/linux/posix_acl.h`.
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// `ACL_UNDEFINED_ID`, for entries without an id.
const NO_ID: u32 = u32::MAX;

/// Lets the owner read and write a file, members of `group` do what `group_rights` says (4 reads, 2 writes, 1
/// executes), and no other user anything. The file may be opened by `O_PATH`.
///
/// # Errors
/// The file is not ours, or its file system has no such lists.
pub fn open_to_group(file: impl AsFd, group: u32, group_rights: u16) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(setxattr(path, ATTRIBUTE, &list(group, group_rights), XattrFlags::empty())?)
}

/// Encodes the list in the kernel's format: a version, then tag, rights and id of each entry, in the order of tags.
fn list(group: u32, rights: u16) -> Vec<u8> {
    let entries = [
        (USER_OBJ, 6, NO_ID),
        (GROUP_OBJ, 0, NO_ID),
        (GROUP, rights, group),
        (MASK, rights, NO_ID),
        (OTHER, 0, NO_ID),
    ];
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_mask_of_the_list_is_the_groups_part_of_the_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        match open_to_group(&file, 54321, 4) {
            Ok(()) => assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640),
            Err(why) => assert_eq!(why.raw_os_error(), Some(libc::EOPNOTSUPP), "{why}"),
        }
    }
}
