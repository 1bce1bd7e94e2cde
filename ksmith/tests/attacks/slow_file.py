"""A file of a file system of the user's own (FUSE). Its pages never come."""

import os
import struct
import threading

from attacker import PAGE, call

CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
FUSE_LOOKUP, FUSE_FORGET, FUSE_GETATTR, FUSE_OPEN, FUSE_READ = 1, 2, 3, 14, 15
FUSE_FLUSH, FUSE_INIT, FUSE_INTERRUPT, FUSE_BATCH_FORGET = 25, 26, 36, 42
ENOSYS = 38


def enter_namespace():
    """Makes a namespace in which the user may mount."""
    uid, gid = os.getuid(), os.getgid()
    call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
    for name, text in [("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")]:
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def serve(fuse, closes):
    """Answers all requests but those for pages, and but those to close the file if `closes` is false."""
    attributes = struct.pack("<6Q10I", 1, 1 << 20, 2048, 0, 0, 0, 0, 0, 0, 0o100666, 1, 0, 0, 0, PAGE, 0)
    while True:
        try:
            request = os.read(fuse, 1 << 18)
        except OSError:
            return
        _, operation, unique = struct.unpack_from("<IIQ", request)
        if operation in (FUSE_READ, FUSE_FORGET, FUSE_INTERRUPT, FUSE_BATCH_FORGET):
            continue
        body, error = b"", 0
        if operation == FUSE_INIT:
            body = struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 12, 9, PAGE, 1, 0, 0, 0, *([0] * 7))[:64]
        elif operation == FUSE_GETATTR:
            body = struct.pack("<QII", 3600, 0, 0) + attributes
        elif operation == FUSE_FLUSH:
            if not closes:
                continue
            # The kernel sends no other then: closing the file never waits for this server.
            error = -ENOSYS
        elif operation == FUSE_OPEN:
            body = struct.pack("<QII", 1, 0, 0)
        os.write(fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


def mount_as_administrator(place, device, user):
    """Mounts as fusermount3 (set-user-id) does for a user, in a mount namespace of its own. To be called as root. Unlike in a
    namespace of the user's, root's reads of a page are passed to the server, too."""
    call("unshare", CLONE_NEWNS)
    call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    return mount(place, device, user)


def mount_in_namespace(place, device):
    """Mounts as any user may, in a user namespace of its own."""
    enter_namespace()
    return mount(place, device, 0)


def mount(place, device, user):
    path = os.path.join(place, f"slow-{os.getpid()}")
    open(path, "w").close()
    fuse = os.open(device, os.O_RDWR)
    options = f"fd={fuse},rootmode=100000,user_id={user},group_id={user}"
    call("mount", b"slow", path.encode(), b"fuse", 6, options.encode())
    return fuse, path


def open_slow_file(fuse, path, closes=True):
    """Begins to serve the file, and opens it. A process that has the server's descriptor open keeps the file system from
    ending."""
    threading.Thread(target=serve, args=(fuse, closes), daemon=True).start()
    file = os.open(path, os.O_RDONLY)
    # The kernel asks for the length by this. Beyond it no page is asked for.
    os.fstat(file)
    if closes:
        os.close(os.dup(file))
    return file
