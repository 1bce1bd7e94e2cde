"""Text that others chose: hosts and users of guests write names that end on terminals, in shells and in URIs."""

import re

_PASSWORD = re.compile(r"(?<=://)[^/?#@\s:]*:[^/?#@\s]*(?=@)")
"""A user with a password, before a host."""
_SIGNED = re.compile(r"([?&][^?&#\s=]*(?:signature|credential|token|password|secret|key)[^?&#\s=]*=)[^&#\s]+", re.IGNORECASE)
"""What the query of a signed URL has."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def clean(name: str) -> str:
    """Escapes all that is not printable, and the backslash, so that no two names become one."""
    return "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in name)


def shown(message: str) -> str:
    """Escapes control characters of a message for a terminal, and leaves out secrets of URLs. Lines stay lines."""
    known = _SIGNED.sub(r"\1***", _PASSWORD.sub("***", message))
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in known)


def reason(error: BaseException) -> str:
    """Gives the reason of an error, without the number and the file that the system's errors have beside it."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def duration(seconds: float) -> str:
    """Writes a time in the largest unit of which there are two."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def is_host_name(name: str) -> bool:
    """Says whether a name is one of a host, and so has no meaning in a URI, a shell or a list of options."""
    return _HOST.fullmatch(name) is not None
