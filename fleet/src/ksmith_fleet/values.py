"""Values of metadata that a host wrote: each is of its type and within its bounds, or the sketch is refused."""

from collections.abc import Mapping
from typing import Any

from ksmith_fleet.faults import BadSketchError

LARGEST = 1 << 60
"""The largest number of bytes or milliseconds that is believed."""


def table(value: Any, what: str) -> Mapping[str, Any]:
    """Takes an object of JSON."""
    if not isinstance(value, dict):
        raise BadSketchError(f"its metadata {what} is no object")
    return value


def entries(said: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Takes a list of objects, which may be absent."""
    value = said.get(key) or []
    if not isinstance(value, list):
        raise BadSketchError(f"its metadata {key} is no list")
    return [table(entry, key) for entry in value]


def text(said: Mapping[str, Any], key: str) -> str:
    """Takes a text."""
    value = said.get(key)
    if not isinstance(value, str):
        raise BadSketchError(f"its metadata lack the text {key}")
    return value


def number(said: Mapping[str, Any], key: str, low: int = 0, high: int = LARGEST) -> int | None:
    """Takes a whole number within bounds, which may be absent."""
    value = said.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadSketchError(f"its metadata say {_short(value)} of {key}, which takes {low} to {high}")
    return value


def needed(said: Mapping[str, Any], key: str, low: int = 0, high: int = LARGEST) -> int:
    """Takes a whole number within bounds."""
    value = number(said, key, low, high)
    if value is None:
        raise BadSketchError(f"its metadata lack {key}")
    return value


def flag(said: Mapping[str, Any], key: str, default: bool) -> bool:
    """Takes a truth value, which the kernel's files say as 0 or 1."""
    value = said.get(key)
    if value is None:
        return default
    if value not in (0, 1):
        raise BadSketchError(f"its metadata say {_short(value)} of {key}, which is true or false")
    return bool(value)


def _short(value: Any) -> str:
    try:
        return repr(value)[:40]
    except ValueError:
        # Python writes no integer of over 4300 digits.
        return "a number without end"
