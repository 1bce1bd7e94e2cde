"""Directories of locks that other machines would not see are refused."""

from pathlib import Path

import pytest

from ksmith_fleet.apply.lock import bad_mount, lock_directory

MOUNTS = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:50 / /srv/a rw,relatime shared:2 - nfs4 nas:/a rw,vers=4.2,local_lock=none
41 22 0:51 / /srv/b rw,relatime shared:3 - nfs nas:/b rw,vers=3,nolock,local_lock=all
42 22 0:52 / /srv/c rw,relatime - fuse.sshfs nas:/c rw
43 22 0:53 / /srv/d\\040e rw,relatime - virtiofs share rw
44 22 0:54 / /srv/a/low rw - nfs4 nas:/low rw,vers=4.2,local_lock=flock
45 22 0:55 / /srv/f rw - ceph :/ rw
"""


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/srv/locks", None),
        ("/srv/a/locks", None),
        ("/srv/f", None),
        ("/srv/bb", None),
        ("/srv/b", "locks of this machine alone"),
        ("/srv/a/low/x", "locks of this machine alone"),
        ("/srv/c/x", "a lock on fuse.sshfs is not seen by other machines"),
        ("/srv/d e", "a lock on virtiofs is not seen by other machines"),
    ],
)
def test_a_lock_that_others_do_not_see_is_no_lock(path: str, why: str | None) -> None:
    found = bad_mount(Path(path), MOUNTS)
    assert (found is None) if why is None else (why in (found or ""))


def test_a_directory_of_this_machine_is_taken(tmp_path: Path) -> None:
    assert lock_directory(str(tmp_path)) == tmp_path
