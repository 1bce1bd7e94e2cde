//! A replacement for SQLite's fchown(2) call.

use std::ffi::{c_int, c_uint};
use std::mem::transmute;
use std::ptr;
use std::sync::Once;

use rusqlite::ffi::{self, sqlite3_syscall_ptr};

/// A no-op replacement for fchown(2).
extern "C" fn keep_owner(_file: c_int, _user: c_uint, _group: c_uint) -> c_int {
    0
}

/// Keeps SQLite from changing the owner of a file. As root it would give the write-ahead log the owner of its file, and
/// the daemon's unit denies that call (`SystemCallFilter=~@privileged`). The directory is set-group-id, which sets the
/// group.
#[allow(unsafe_code, reason = "SQLite's table of system calls has no safe interface")]
pub(crate) fn keep_owners() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the default VFS lives as long as the program. Its method takes the name of a system call, and a function
        // with that call's parameters, which SQLite casts back before it calls it. No connection for writing is open yet.
        unsafe {
            ffi::sqlite3_initialize();
            let vfs = ffi::sqlite3_vfs_find(ptr::null());
            let set = vfs.as_ref().and_then(|vfs| vfs.xSetSystemCall);
            if let Some(set) = set {
                let call: extern "C" fn(c_int, c_uint, c_uint) -> c_int = keep_owner;
                let call: sqlite3_syscall_ptr =
                    Some(transmute::<extern "C" fn(c_int, c_uint, c_uint) -> c_int, unsafe extern "C" fn()>(call));
                set(vfs, c"fchown".as_ptr(), call);
            }
        }
    });
}
