"""Locks of hosts: two plans that share a host would each give its room away."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ksmith_fleet.apply.backend import ApplyError


def lock_directory() -> Path:
    """Gives the directory of this user's locks."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "ksmith-fleet" / "hosts"


@contextmanager
def locked_hosts(hosts: Iterable[str], directory: Path) -> Iterator[None]:
    """Holds the locks of hosts. Raises `ApplyError` if another process has one of them. The kernel frees those of a process that ended."""
    directory.mkdir(parents=True, exist_ok=True)
    held: list[int] = []
    try:
        for host in sorted({host.lower() for host in hosts}):
            held.append(os.open(directory / host, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            try:
                fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ApplyError(f"another plan is being applied to {host}: wait for its end") from error
        yield
    finally:
        for handle in held:
            os.close(handle)
