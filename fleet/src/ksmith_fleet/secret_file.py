"""Secrets in files."""

import os
import stat
from pathlib import Path

_LONGEST = 4096


def read_secret(path: str) -> str:
    """Reads a secret from a file of which others can read nothing. Raises `ValueError` if they can, and `OSError`."""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(f"{path} can be read by other users: chmod 600 {path}")
        return file.read(_LONGEST).strip()
