"""The operator's rules, from a TOML file: what sketches do not say."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
MOST_BYTES = 16 << 20
"""The largest file of rules. It has room for a rule for each of 100,000 guests."""


class BadRulesError(Exception):
    """The file of rules has a fault; the text says which."""


@dataclass(frozen=True)
class HostRule:
    """What an operator says of a host."""

    memory_bytes: int | None = None
    cpus: float | None = None
    classes: tuple[str, ...] | None = None
    exclude: bool = False


@dataclass(frozen=True)
class GuestRule:
    """What an operator says of a guest."""

    host: str | None = None
    node: int | None = None
    cpus: float = 0.0
    fixed: bool = False


@dataclass(frozen=True)
class Rules:
    """All rules. Guests are named by name or id."""

    divergence: float = 0.2
    """The part of the savings that hosts must be able to lose at once."""
    headroom: float = 0.05
    """The part of a host's memory that stays free, if the host reserves none itself."""
    trust_unverified: bool = False
    """Whether guests may be moved although only their user says which guest they are."""
    hosts: dict[str, HostRule] = field(default_factory=dict)
    guests: dict[str, GuestRule] = field(default_factory=dict)
    apart: tuple[tuple[str, ...], ...] = ()
    together: tuple[tuple[str, ...], ...] = ()

    def for_admission(self) -> "Rules":
        """Keeps what holds for one more guest: no rule names it, and its likeness may stay although it goes elsewhere."""
        guests = {name: GuestRule(node=rule.node, cpus=rule.cpus) for name, rule in self.guests.items()}
        return replace(self, guests=guests, apart=(), together=(), trust_unverified=True)


def read_rules(path: str | None) -> Rules:
    """Reads the file, or gives the defaults without one."""
    if path is None:
        return Rules()
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise BadRulesError(f"it has more than {MOST_BYTES >> 20} MiB")
        return _rules(tomllib.loads(data.decode()))
    except RecursionError as error:
        raise BadRulesError(f"{path}: its values are nested too deeply") from error
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, BadRulesError) as error:
        raise BadRulesError(f"{path}: {error}") from error


def _rules(said: dict[str, Any]) -> Rules:
    _known("", said, {"divergence", "headroom", "trust_unverified", "hosts", "guests", "apart", "together"})
    return Rules(
        divergence=_number(said, "", "divergence", 0.2, 1.0),
        headroom=_number(said, "", "headroom", 0.05, 1.0),
        trust_unverified=_flag(said, "", "trust_unverified"),
        hosts={name: _host(f"hosts.{name}.", host) for name, host in _tables(said, "hosts").items()},
        guests={name: _guest(f"guests.{name}.", guest) for name, guest in _tables(said, "guests").items()},
        apart=_groups(said, "apart"),
        together=_groups(said, "together"),
    )


def _known(where: str, said: dict[str, Any], keys: set[str]) -> None:
    for key in said:
        if key not in keys:
            raise BadRulesError(f"{where}{key} is no rule; there are {', '.join(sorted(keys))}")


def _tables(said: dict[str, Any], key: str) -> dict[str, dict[str, Any]]:
    found = said.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(value, dict) for value in found.values()):
        raise BadRulesError(f"{key} takes tables, such as [{key}.NAME]")
    return found


def _number(said: dict[str, Any], where: str, key: str, default: float, most: float) -> float:
    value = said.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise BadRulesError(f"{where}{key} is {value!r}; give a number from 0 to {most:g}")
    return float(value)


def _whole(said: dict[str, Any], where: str, key: str) -> int | None:
    return _of_type(said, where, key, int, "a whole number from 0 on", lambda value: not isinstance(value, bool) and value >= 0)


def _flag(said: dict[str, Any], where: str, key: str) -> bool:
    return bool(_of_type(said, where, key, bool, "true or false"))


def _of_type(said: dict[str, Any], where: str, key: str, kind: type[T], form: str, fits: Callable[[Any], bool] = lambda _: True) -> T | None:
    value = said.get(key)
    if value is not None and not (isinstance(value, kind) and fits(value)):
        raise BadRulesError(f"{where}{key} is {value!r}; give {form}")
    return value


def _host(where: str, said: dict[str, Any]) -> HostRule:
    _known(where, said, {"memory_bytes", "cpus", "classes", "exclude"})
    classes = _of_type(said, where, "classes", list, 'a list of classes, such as ["gold"]', lambda value: all(isinstance(one, str) for one in value))
    return HostRule(
        _whole(said, where, "memory_bytes"),
        _number(said, where, "cpus", 0.0, 1e6) if "cpus" in said else None,
        None if classes is None else tuple(classes),
        _flag(said, where, "exclude"),
    )


def _guest(where: str, said: dict[str, Any]) -> GuestRule:
    _known(where, said, {"host", "node", "cpus", "fixed"})
    return GuestRule(
        _of_type(said, where, "host", str, "the name of a host"),
        _whole(said, where, "node"),
        _number(said, where, "cpus", 0.0, 1e6),
        _flag(said, where, "fixed"),
    )


def _groups(said: dict[str, Any], key: str) -> tuple[tuple[str, ...], ...]:
    groups = said.get(key, [])
    if not isinstance(groups, list) or not all(isinstance(group, list) and all(isinstance(name, str) for name in group) for group in groups):
        raise BadRulesError(f"{key} is a list of lists of guests")
    return tuple(tuple(group) for group in groups)
