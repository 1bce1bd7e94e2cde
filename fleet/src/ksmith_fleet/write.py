"""Files that are replaced as a whole, so that no reader sees half of one."""

import os
import tempfile
from pathlib import Path

DEVICES = Path("/dev")
"""Nothing in it is replaced, also no link."""


def check_directory(path: Path) -> None:
    """Raises `ValueError` if the directory of a file to write is not there. Work of minutes should not be lost for that."""
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: {path.parent} is no directory; make it, or name another file")


def replace_file(path: Path, text: str) -> None:
    """Writes a text beside the old file, and puts it into its place, as `replace_bytes` does."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, data: bytes) -> None:
    """Writes a file beside the old one, and puts it into its place.

    A device or a pipe, such as `/dev/stdout`, is written to: one that is replaced is gone for all programs. A link stays, and its file is
    replaced.
    """
    path = path.resolve() if path.is_symlink() and path.parent != DEVICES else path
    if path.parent == DEVICES or (path.exists() and not path.is_file()):
        with path.open("wb") as file:
            file.write(data)
        return
    check_directory(path)
    handle, part = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0o077)
        os.umask(mask)
        Path(part).chmod(0o666 & ~mask)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
