"""The operator's rules, from a TOML file: what sketches do not say."""

import json
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from ksmith_fleet.declared import CLOSED, Part, Whole, parse_json
from ksmith_fleet.text import reason

MOST_BYTES = 16 << 20
"""The largest file of rules. It has room for a rule for each of 100,000 guests."""
Factor = Annotated[float, Field(ge=0, le=1e6)]
"""A factor, or a number of CPUs."""


class BadRulesError(Exception):
    """The file of rules has a fault; the text says which."""


@dataclass(frozen=True)
class HostRule:
    """What an operator says of a host."""

    memory_bytes: Whole | None = None
    cpus: Factor | None = None
    classes: tuple[str, ...] | None = None
    exclude: bool = False


@dataclass(frozen=True)
class GuestRule:
    """What an operator says of a guest."""

    host: str | None = None
    hosts: tuple[str, ...] | None = None
    """The hosts that it may be on."""
    node: Whole | None = None
    cpus: Factor | None = None
    """Its virtual CPUs, if they are others than its sketch says."""
    fixed: bool = False
    move_price: Annotated[float, Field(ge=1, le=1e6)] = 1.0
    """Factor on its memory in what a move of it counts as: over 1 for a guest that bears a migration's pause ill."""


@dataclass(frozen=True)
class Rules:
    """All rules. Guests are named by name or id."""

    __pydantic_config__ = CLOSED

    divergence: Part = 0.2
    """The part of the savings that hosts must be able to lose at once."""
    headroom: Part = 0.05
    """The part of a host's memory that stays free, if the host reserves none itself."""
    cpu_overcommit: Factor = 4.0
    """Virtual CPUs that a host takes for each of its CPUs. 4 is the default of OpenStack's placement."""
    memory_overcommit: Factor = 1.5
    """Configured memory that a host takes, as a multiple of its memory."""
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


_RULES_FORMAT = TypeAdapter(Rules)


def read_rules(path: str | None) -> Rules:
    """Reads the file, or gives the defaults without one."""
    if path is None:
        return Rules()
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise BadRulesError(f"it has more than {MOST_BYTES >> 20} MiB")
        return parse_json(_RULES_FORMAT, json.dumps(tomllib.loads(data.decode())))
    except RecursionError as error:
        raise BadRulesError(f"{path}: its values are nested too deeply") from error
    except (OSError, TypeError, ValueError, BadRulesError) as error:
        raise BadRulesError(f"{path}: {reason(error)}") from error
