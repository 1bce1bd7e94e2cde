"""Guests that must be together: one item if they share a host now, and else guests that go to one host."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ksmith_fleet.model import Fleet
from ksmith_fleet.placement.allowed import AllowedBins
from ksmith_fleet.placement.named import Names
from ksmith_fleet.rules import BadRulesError, Rules


@dataclass(frozen=True)
class Now:
    """Where guests are, and where they may be."""

    current: npt.NDArray[np.int64]
    """The bin of each guest."""
    movable: npt.NDArray[np.bool_]
    allowed: AllowedBins
    """The bins that rules let each guest be on."""
    host_of: npt.NDArray[np.int64]
    """The host of each bin."""
    arrival: npt.NDArray[np.float64]
    narrowed: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """The bins of guests that have to come together."""

    def row(self, guest: int) -> npt.NDArray[np.bool_]:
        """Gives the bins that a guest may be on."""
        return self.narrowed.get(guest, self.allowed.of(guest))

    def only(self, bin_: int) -> npt.NDArray[np.bool_]:
        """Gives the bins of what stays on one."""
        row: npt.NDArray[np.bool_] = np.arange(len(self.host_of)) == bin_
        return row


def join_groups(names: Names, rules: Rules, now: Now) -> list[list[int]]:
    """Gives the items. `now.narrowed` and `now.movable` are set for guests that first have to come together.

    Such guests stay items of their own, since each moves from another host. All may go only to the host where most of their
    memory is, or where one of them must stay. Once they are there, the next plan moves them as one.
    """
    items: list[list[int]] = []
    for group in _components(names, rules):
        if len({int(now.current[g]) for g in group}) == 1:
            items.append(group)
            continue
        host = _meeting_host(names.fleet, now, group)
        for g in group:
            now.narrowed[g] = now.row(g) & (now.host_of == host)
            if now.host_of[now.current[g]] == host:
                now.movable[g] = False
                now.narrowed[g] = now.only(int(now.current[g]))
        items += [[g] for g in group]
    return items


def _components(names: Names, rules: Rules) -> list[list[int]]:
    """Joins groups with a guest in common, and gives each guest's group once, in the order of the fleet."""
    above = list(range(len(names.fleet.guests)))

    def first(guest: int) -> int:
        while above[guest] != guest:
            above[guest] = above[above[guest]]
            guest = above[guest]
        return guest

    for together in rules.together:
        numbers = [first(guest) for guest in names.group(together)]
        for number in numbers:
            above[first(number)] = first(min(numbers))
    found: dict[int, list[int]] = {}
    for guest in range(len(above)):
        found.setdefault(first(guest), []).append(guest)
    return list(found.values())


def _meeting_host(fleet: Fleet, now: Now, group: list[int]) -> int:
    names = ", ".join(fleet.guests[g].name for g in group)
    fixed = {int(now.host_of[now.current[g]]) for g in group if not now.movable[g]}
    if len(fixed) > 1:
        raise BadRulesError(f"{names} must be together, and stay on different hosts")
    memory: dict[int, float] = {}
    for g in group:
        here = int(now.host_of[now.current[g]])
        memory[here] = memory.get(here, 0.0) + float(now.arrival[g])
    open_to_all = fixed or {int(host) for host in now.host_of}
    for g in group:
        open_to_all &= {int(host) for host in now.host_of[now.row(g)]}
    if not open_to_all:
        raise BadRulesError(f"{names} must be together, and no host may have them all")
    return max(open_to_all, key=lambda host: (memory.get(host, 0.0), -host))
