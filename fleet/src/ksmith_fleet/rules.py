"""The operator's rules, from a TOML file: what sketches do not say."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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


def read_rules(path: str | None) -> Rules:
    """Reads the file, or gives the defaults without one."""
    if path is None:
        return Rules()
    try:
        said = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRulesError(f"{path}: {error}") from error
    _known(path, "", said, {"divergence", "headroom", "trust_unverified", "hosts", "guests", "apart", "together"})
    rules = Rules(
        divergence=_part(path, said, "divergence", 0.2),
        headroom=_part(path, said, "headroom", 0.05),
        trust_unverified=bool(said.get("trust_unverified", False)),
        hosts={name: _host(path, name, host) for name, host in said.get("hosts", {}).items()},
        guests={name: _guest(path, name, guest) for name, guest in said.get("guests", {}).items()},
        apart=_groups(path, said, "apart"),
        together=_groups(path, said, "together"),
    )
    return rules


def _known(path: str, where: str, said: dict[str, Any], keys: set[str]) -> None:
    for key in said:
        if key not in keys:
            raise BadRulesError(f"{path}: {where}{key} is no rule; there are {', '.join(sorted(keys))}")


def _part(path: str, said: dict[str, Any], key: str, default: float) -> float:
    value = said.get(key, default)
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadRulesError(f"{path}: {key} is {value!r}; give a number from 0 to 1")
    return float(value)


def _host(path: str, name: str, said: dict[str, Any]) -> HostRule:
    _known(path, f"hosts.{name}.", said, {"memory_bytes", "cpus", "classes", "exclude"})
    classes = said.get("classes")
    return HostRule(
        said.get("memory_bytes"),
        said.get("cpus"),
        None if classes is None else tuple(classes),
        bool(said.get("exclude")),
    )


def _guest(path: str, name: str, said: dict[str, Any]) -> GuestRule:
    _known(path, f"guests.{name}.", said, {"host", "node", "cpus", "fixed"})
    return GuestRule(said.get("host"), said.get("node"), float(said.get("cpus", 0.0)), bool(said.get("fixed")))


def _groups(path: str, said: dict[str, Any], key: str) -> tuple[tuple[str, ...], ...]:
    groups = said.get(key, [])
    if not all(isinstance(group, list) and all(isinstance(name, str) for name in group) for group in groups):
        raise BadRulesError(f"{path}: {key} is a list of lists of guests")
    return tuple(tuple(group) for group in groups)
