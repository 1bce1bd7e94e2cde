"""Secrets in files."""

import os
import stat
from pathlib import Path

_LONGEST = 4096


def read_secret(path: str) -> str:
    """Reads a secret from a file of which others can read nothing. Raises `ValueError` if they can, and `OSError`."""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        # systemd gives a service its credentials by an access list, which the group's bits of the mode show.
        is_credential = Path(path).parent == Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nowhere"))
        others = stat.S_IRWXO | (stat.S_IWGRP if is_credential else stat.S_IRWXG)
        if os.fstat(file.fileno()).st_mode & others:
            raise ValueError(f"{path} can be read by other users: chmod 600 {path}")
        return file.read(_LONGEST).strip()
