"""Locks of hosts: two plans that share a host would each give its room away.

The kernel keeps them, and NFS from version 4 on and CephFS keep them across machines.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ksmith_fleet.apply.backend import ApplyError


def lock_directory(shared: str | None = None) -> Path:
    """Gives the directory of locks: a shared one that exists, or that of this user on this machine."""
    if shared is not None:
        if not Path(shared).is_dir():
            raise ApplyError(f"{shared} is no directory: mount what all machines that apply plans have in common")
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
