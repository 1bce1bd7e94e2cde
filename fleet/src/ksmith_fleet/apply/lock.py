"""Locks of hosts: two plans that share a host would each give its room away.

The kernel keeps them, and NFS from version 4 on and CephFS keep them across machines.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ksmith_fleet.apply.backend import ApplyError

PRIVATE_LOCKS = frozenset({"9p", "virtiofs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.goofys"})
"""File systems that several machines mount and of which each keeps its own locks."""


def bad_mount(path: Path, mounts: str) -> str | None:
    """Says why a directory's locks do not hold for other machines, by the text of `/proc/self/mountinfo`."""
    found: tuple[int, str, set[str]] = (-1, "", set())
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 6 or len(rest) < 3:
            continue
        point = Path(fields[4].replace("\\040", " "))
        # Of mounts at one place the last one is seen.
        if len(point.parts) >= found[0] and path.is_relative_to(point):
            found = (len(point.parts), rest[0], {*fields[5].split(","), *rest[2].split(",")})
    _, kind, options = found
    if kind in PRIVATE_LOCKS:
        return f"a lock on {kind} is not seen by other machines"
    if kind.startswith("nfs") and options & {"nolock", "local_lock=flock", "local_lock=all"}:
        return "it is mounted with locks of this machine alone (nolock, local_lock)"
    return None


def lock_directory(shared: str | None = None) -> Path:
    """Gives the directory of locks: a shared one that exists, or that of this user on this machine."""
    if shared is not None:
        if not Path(shared).is_dir():
            raise ApplyError(f"{shared} is no directory: mount what all machines that apply plans have in common")
        if why := bad_mount(Path(shared).resolve(), Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")):
            raise ApplyError(f"{shared}: {why}: name a directory of NFS from version 4 on, or of CephFS")
        return Path(shared)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "ksmith-fleet" / "hosts"


@contextmanager
def locked_hosts(hosts: Iterable[str], directory: Path) -> Iterator[None]:
    """Holds the locks of hosts. Raises `ApplyError` if another process has one of them. The kernel frees those of a process that ended."""
    directory.mkdir(parents=True, exist_ok=True)
    held: list[int] = []
    try:
        for host in sorted({host.lower() for host in hosts}):
            held.append(os.open(directory / host, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o660))
            if os.fstat(held[-1]).st_uid == os.geteuid():
                # Others of the group lock it too, whatever this user's mask is.
                os.fchmod(held[-1], 0o660)
            try:
                fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ApplyError(f"another plan is being applied to {host}: wait for its end") from error
        yield
    finally:
        for handle in held:
            os.close(handle)
