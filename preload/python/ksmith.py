"""KSM (kernel samepage merging) from within Python, by libksmith.so.

Works on anything that has the buffer protocol or NumPy's array interface. Nothing but ctypes is needed:

    import ksmith, numpy
    table = numpy.zeros((4096, 4096))
    ksmith.mark(table)              # its whole pages
    ksmith.scan(passes=2)           # asks the daemon, and waits
    print(ksmith.saves().saved_bytes)

The library is searched for in KSMITH_LIBRARY, else where the loader searches, else where packages put it. A failure raises KsmithError, an OSError
with the errno of ksmith.h.
"""

import ctypes
import os
from typing import NamedTuple

__all__ = ["Folded", "Guided", "KsmithError", "Savings", "fold", "guided", "mark", "method", "saves", "scan", "unmark"]


class KsmithError(OSError):
    """What the library could not do; errno as in ksmith.h."""


class Savings(NamedTuple):
    """What merging does for this process, in bytes. See struct ksmith_savings."""

    source: str  # "daemon" or "kernel"; by the kernel saved_bytes is the most that it can be
    rss_bytes: int
    merged_bytes: int
    saved_bytes: int
    profit_bytes: int
    zero_bytes: int


class Guided(NamedTuple):
    """What is marked now."""

    ranges: int
    bytes: int


class Folded(NamedTuple):
    """What was folded, and what was left alone and why, in bytes. See struct ksmith_folded."""

    folded_bytes: int
    looked_bytes: int
    shared_bytes: int
    locked_bytes: int
    huge_bytes: int
    other_bytes: int
    nanoseconds: int
    threads: int


class _Savings(ctypes.Structure):
    _fields_ = [
        ("source", ctypes.c_uint64),
        ("rss_bytes", ctypes.c_uint64),
        ("merged_bytes", ctypes.c_uint64),
        ("saved_bytes", ctypes.c_uint64),
        ("profit_bytes", ctypes.c_int64),
        ("zero_bytes", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 2),
    ]


class _Guided(ctypes.Structure):
    _fields_ = [("ranges", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class _Folded(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Folded._fields]


def _open():
    named = os.environ.get("KSMITH_LIBRARY")
    # By its name first: it may be loaded already.
    places = [named] if named else ["libksmith.so", "/usr/lib/ksmith/libksmith.so", "/usr/local/lib/ksmith/libksmith.so"]
    reasons = []
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError as error:
            reasons.append(str(error))
    reason = "; ".join(reasons)
    raise OSError(f"libksmith.so can't be loaded ({reason}): install the package libksmith, or name the file in KSMITH_LIBRARY")


def _load():
    library = _open()
    size, number, pointer = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    for name, result, arguments in (
        ("ksmith_version", number, []),
        ("ksmith_method", ctypes.c_char_p, []),
        ("ksmith_mark", number, [pointer, size]),
        ("ksmith_unmark", number, [pointer, size]),
        ("ksmith_scan", number, [ctypes.c_uint, number]),
        ("ksmith_saves", number, [ctypes.POINTER(_Savings)]),
        ("ksmith_guided", number, [number, ctypes.POINTER(_Guided)]),
        ("ksmith_fold", number, [pointer, size, ctypes.c_uint, ctypes.POINTER(_Folded)]),
        ("ksmith_strerror", ctypes.c_char_p, [number]),
        ("ksmith_reason", size, [ctypes.c_char_p, size]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_library = _load()


def _check(code):
    if code != 0:
        text = _library.ksmith_strerror(code).decode()
        reason = ctypes.create_string_buffer(256)
        if _library.ksmith_reason(reason, len(reason)):
            text = f"{text} ({reason.value.decode(errors='replace')})"
        raise KsmithError(-code, text)


def _range(memory):
    """The address and the length in bytes of an array or buffer, which must lie in one piece."""
    interface = getattr(memory, "__array_interface__", None)
    if interface is not None:
        if not memory.flags.forc:
            raise ValueError("the array does not lie in one piece: mark the array that it is a view of")
        return interface["data"][0], memory.nbytes
    view = memoryview(memory)
    if not view.contiguous:
        raise ValueError("the buffer does not lie in one piece")
    if view.readonly:
        raise ValueError("the buffer can't be written, so its address can't be asked for")
    return ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(view)), view.nbytes


def mark(memory):
    """Offers the whole pages of an array or buffer to KSM."""
    _check(_library.ksmith_mark(*_range(memory)))


def unmark(memory):
    """Takes back every page that has a byte of it. What was merged has been copied when this returns."""
    _check(_library.ksmith_unmark(*_range(memory)))


def scan(passes=2, timeout=-1.0):
    """Asks the daemon for clean passes and waits for them, at most so many seconds (below 0: as long as it takes)."""
    _check(_library.ksmith_scan(passes, int(timeout * 1000) if timeout >= 0 else -1))


def saves():
    """What this process saves."""
    found = _Savings()
    _check(_library.ksmith_saves(ctypes.byref(found)))
    source = "daemon" if found.source == 1 else "kernel"
    return Savings(source, *(getattr(found, name) for name in Savings._fields[1:]))


def guided(timeout=-1.0):
    """Marks what the daemon finds worth merging in this process, and nothing else but what `mark` has marked."""
    found = _Guided()
    _check(_library.ksmith_guided(int(timeout * 1000) if timeout >= 0 else -1, ctypes.byref(found)))
    return Guided(found.ranges, found.bytes)


def fold(memory, threads=1):
    """Gives the zero pages of an array or buffer back to the system; its contents stay as they are.

    Nothing may write to it until this returns: see ksmith_fold in ksmith.h.
    """
    found = _Folded()
    _check(_library.ksmith_fold(*_range(memory), threads & 0xFF, ctypes.byref(found)))
    return Folded._make(getattr(found, name) for name in Folded._fields)


def method():
    """What the library does by itself: "none", "prctl", "madvise", "guided" or "quiet"."""
    return _library.ksmith_method().decode()
