"""Makes the placement problem of a fleet from its sketches and the operator's rules."""

from dataclasses import dataclass

import numpy as np

from ksmith_fleet.estimate import Alone, zero_saved
from ksmith_fleet.incidence import Incidence
from ksmith_fleet.model import Fleet, Guest, Host, LeftOut
from ksmith_fleet.placement.problem import Problem
from ksmith_fleet.placement.state import ALONE, ANY
from ksmith_fleet.rules import BadRulesError, GuestRule, HostRule, Rules


@dataclass(frozen=True)
class Bin:
    """A host, or one NUMA node of a host with a KSM that merges within nodes only."""

    host: int
    node: int | None


@dataclass(frozen=True)
class Built:
    """The problem, and what its items and bins stand for."""

    problem: Problem
    items: list[list[int]]
    bins: list[Bin]
    left_out: list[LeftOut]


def build(fleet: Fleet, incidence: Incidence, alone: Alone, rules: Rules) -> Built:
    """Makes the problem. Guests that must stay together become one item."""
    left_out: list[LeftOut] = []
    guest_rules = [_rule(rules, guest) for guest in fleet.guests]
    _check_names(fleet, rules)
    bins, capacity, cpu_capacity = _bins(fleet, rules)
    items = _items(fleet, rules)
    kept = 1.0 - rules.divergence
    host_number = {host.name: at for at, host in enumerate(fleet.hosts)}
    own = np.array([_own(guest, fleet, alone.saved[at], kept, fleet.host(guest.host)) for at, guest in enumerate(fleet.guests)])
    arrival = np.array([guest.pages + _rest(guest, fleet) for guest in fleet.guests])
    joined = _join(incidence, items)
    single = np.array([own[item].sum() for item in items])
    inner = np.array([sum(len(incidence.of(g)) for g in item) for item in items]) - np.diff(joined.starts)
    in_force = any(guest.domain is not None for guest in fleet.guests)
    names = {domain: at for at, domain in enumerate(sorted({g.domain for g in fleet.guests if g.domain is not None}))}
    domain = np.full(len(items), ANY, dtype=np.int64)
    allowed = np.ones((len(items), len(bins)), dtype=bool)
    movable = np.ones(len(items), dtype=bool)
    current = np.full(len(items), -1, dtype=np.int64)
    at_host: dict[int, list[int]] = {}
    for number, where in enumerate(bins):
        at_host.setdefault(where.host, []).append(number)
    for number, item in enumerate(items):
        found = {fleet.guests[g].domain for g in item}
        if len(found) > 1:
            raise BadRulesError(f"{_names(fleet, item)} must be together and have different trust domains")
        if in_force:
            one = found.pop()
            domain[number] = ALONE if one is None else names[one]
        here = {_current(fleet.guests[g], guest_rules[g], host_number, at_host, bins) for g in item}
        where_now = here.pop() if len(here) == 1 else -1
        current[number] = where_now
        for g in item:
            guest, rule = fleet.guests[g], guest_rules[g]
            allowed[number] &= _allowed(guest, rule, fleet, rules, bins)
            if rule.fixed or not (guest.verified or rules.trust_unverified):
                movable[number] = False
                if not rule.fixed:
                    left_out.append(LeftOut(f"{guest.host}: {guest.name}", "only its user says which guest it is: it stays"))
        if where_now < 0:
            movable[number] = False
            left_out.append(LeftOut(_names(fleet, item), "the rules do not say on which NUMA node it is: it stays"))
            current[number] = at_host[host_number[fleet.guests[item[0]].host]][0]
            where_now = int(current[number])
        if not movable[number]:
            allowed[number] = False
            allowed[number, where_now] = True
    if in_force:
        # A guest without a sketch may be of any domain. No guest is sent to its host.
        for number, where in enumerate(bins):
            if fleet.hosts[where.host].skipped:
                allowed[current != number, number] = False
    problem = Problem(
        own=single - kept * incidence.weight * inner,
        arrival=np.array([arrival[item].sum() for item in items]),
        incidence=joined,
        kept=kept,
        capacity=capacity,
        cpu=np.array([sum(guest_rules[g].cpus for g in item) for item in items], dtype=np.float64),
        cpu_capacity=cpu_capacity,
        domain=domain,
        apart=_apart(fleet, rules, items),
        allowed=None if allowed.all() else allowed,
        movable=movable,
        current=current,
    )
    return Built(problem, items, bins, left_out)


def _rule(rules: Rules, guest: Guest) -> GuestRule:
    return rules.guests.get(guest.id) or rules.guests.get(guest.name) or GuestRule()


def _check_names(fleet: Fleet, rules: Rules) -> None:
    known = {guest.name for guest in fleet.guests} | {guest.id for guest in fleet.guests}
    named = set(rules.guests) | {name for group in (*rules.apart, *rules.together) for name in group}
    if named - known:
        raise BadRulesError(f"the rules name guests that no sketch has: {', '.join(sorted(named - known))}")
    hosts = {host.name for host in fleet.hosts}
    wanted = set(rules.hosts) | {rule.host for rule in rules.guests.values() if rule.host is not None}
    if wanted - hosts:
        raise BadRulesError(f"the rules name hosts that have no sketch: {', '.join(sorted(wanted - hosts))}")


def _names(fleet: Fleet, item: list[int]) -> str:
    return ", ".join(fleet.guests[g].name for g in item)


def _rest(guest: Guest, fleet: Fleet) -> float:
    """Gives the pages that the guest has beside those that KSM may merge."""
    return max(0.0, (guest.rss_bytes or 0) / fleet.page_size - guest.pages)


def _own(guest: Guest, fleet: Fleet, saved: float, kept: float, host: Host) -> float:
    zeros = zero_saved(guest.zero_pages, host.use_zero_pages, host.max_page_sharing)
    return guest.pages + _rest(guest, fleet) - kept * (saved + zeros)


def _used_now(guest: Guest, fleet: Fleet) -> float:
    """Gives the frames that the guest takes now, after what KSM saves already."""
    return max(0.0, guest.pages + _rest(guest, fleet) - (guest.saved_bytes or 0) / fleet.page_size)


def _bins(fleet: Fleet, rules: Rules) -> tuple[list[Bin], np.ndarray, np.ndarray]:
    bins: list[Bin] = []
    capacity: list[float] = []
    cpus: list[float] = []
    for at, host in enumerate(fleet.hosts):
        rule = rules.hosts.get(host.name, HostRule())
        memory = rule.memory_bytes or host.memory_bytes
        reserved = host.reserved_bytes or rules.headroom * memory
        room = float(memory)
        if host.available_bytes is not None and rule.memory_bytes is None:
            known = sum(_used_now(guest, fleet) for guest in fleet.guests if guest.host == host.name)
            room = min(room, host.available_bytes + known * fleet.page_size)
        room = max(0.0, room - reserved) / fleet.page_size
        cpu = rule.cpus if rule.cpus is not None else np.inf
        nodes = len(host.numa_bytes)
        if host.merge_across_nodes or nodes < 2:
            bins.append(Bin(at, None))
            capacity.append(room)
            cpus.append(cpu)
        else:
            for node, size in enumerate(host.numa_bytes):
                part = size / sum(host.numa_bytes)
                bins.append(Bin(at, node))
                capacity.append(room * part)
                cpus.append(cpu * part)
    return bins, np.array(capacity), np.array(cpus)


def _items(fleet: Fleet, rules: Rules) -> list[list[int]]:
    parent = list(range(len(fleet.guests)))

    def root(at: int) -> int:
        while parent[at] != at:
            at = parent[at]
        return at

    for group in rules.together:
        numbers = _numbers(fleet, group)
        for number in numbers[1:]:
            parent[root(number)] = root(numbers[0])
    items: dict[int, list[int]] = {}
    for at in range(len(fleet.guests)):
        items.setdefault(root(at), []).append(at)
    return list(items.values())


def _numbers(fleet: Fleet, names: tuple[str, ...]) -> list[int]:
    return [at for at, guest in enumerate(fleet.guests) if guest.name in names or guest.id in names]


def _join(incidence: Incidence, items: list[list[int]]) -> Incidence:
    sets = [np.unique(np.concatenate([incidence.of(g) for g in item])) if len(item) > 1 else incidence.of(item[0]) for item in items]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64)
    contents = np.concatenate(sets) if sets else np.zeros(0, dtype=np.int32)
    return Incidence(starts, contents.astype(np.int32), incidence.number, incidence.weight)


def _apart(fleet: Fleet, rules: Rules, items: list[list[int]]) -> tuple[np.ndarray, ...]:
    item_of = {g: number for number, item in enumerate(items) for g in item}
    groups = []
    for group in rules.apart:
        numbers = [item_of[g] for g in _numbers(fleet, group)]
        if len(set(numbers)) != len(numbers):
            raise BadRulesError(f"{', '.join(group)} must be both together and apart")
        groups.append(np.array(sorted(numbers), dtype=np.int64))
    return tuple(groups)


def _current(guest: Guest, rule: GuestRule, host_number: dict[str, int], at_host: dict[int, list[int]], bins: list[Bin]) -> int:
    here = at_host[host_number[guest.host]]
    if len(here) == 1:
        return here[0]
    return next((number for number in here if bins[number].node == rule.node), -1)


def _allowed(guest: Guest, rule: GuestRule, fleet: Fleet, rules: Rules, bins: list[Bin]) -> np.ndarray:
    row = np.ones(len(bins), dtype=bool)
    for number, where in enumerate(bins):
        host = fleet.hosts[where.host]
        said = rules.hosts.get(host.name, HostRule())
        stays = guest.host == host.name
        row[number] = (
            (rule.host is None or rule.host == host.name) and (said.classes is None or guest.klass in said.classes) and (not said.exclude or stays)
        )
    return row
