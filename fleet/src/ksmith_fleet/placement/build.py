"""Makes the placement problem of a fleet from its sketches and the operator's rules."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ksmith_fleet.estimate import Alone, zero_saved
from ksmith_fleet.incidence import Incidence
from ksmith_fleet.model import Fleet, Guest, Host, LeftOut
from ksmith_fleet.placement.allowed import AllowedBins
from ksmith_fleet.placement.goal import without
from ksmith_fleet.placement.groups import Now, join_groups
from ksmith_fleet.placement.named import Names, guest_rules
from ksmith_fleet.placement.problem import CONFIGURED, CPU, Floats, Ints, Problem
from ksmith_fleet.placement.state import ALONE, ANY
from ksmith_fleet.rules import BadRulesError, GuestRule, HostRule, Rules

MOVABLE = ("qemu",)
"""Kinds of guests that the platforms of `apply` move while they run."""


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
    reserved_bytes: list[int]
    """For each host the memory that stays free."""
    is_closed: tuple[bool, ...]
    """For each bin True if the plan is to empty it."""

    def bin_of(self, bins: Ints) -> Ints:
        """Gives the bin of each guest from those of the items."""
        of_guest = np.full(sum(map(len, self.items)), -1, dtype=np.int64)
        for item, where in zip(self.items, bins.tolist(), strict=True):
            of_guest[item] = where
        return of_guest

    def may_be_emptied(self, fleet: Fleet) -> tuple[bool, ...]:
        """Says for each bin whether nothing but its known guests runs on its host."""
        return tuple(not fleet.hosts[where.host].skipped for where in self.bins)

    def drained(self, fleet: Fleet, hosts: Sequence[str]) -> "Built":
        """Closes hosts: their guests have to go, and no other may come."""
        if strange := set(hosts) - {host.name for host in fleet.hosts}:
            raise BadRulesError(f"no sketch is of the host {', '.join(sorted(strange))}")
        is_closed = tuple(fleet.hosts[where.host].name in hosts for where in self.bins)
        return replace(self, problem=without(self.problem, [at for at, one in enumerate(is_closed) if one]), is_closed=is_closed)


def build(fleet: Fleet, incidence: Incidence, alone: Alone, rules: Rules, is_admission: bool = False) -> Built:
    """Makes the problem. Guests that must stay together become one item.

    For an admission each guest stands for a new one like it. So no guest may be where only those that are there already may stay.
    """
    left_out: list[LeftOut] = []
    names = Names(fleet)
    said = guest_rules(names, rules)
    bins, capacity = _bins(fleet, rules)
    kept = 1.0 - rules.divergence
    hosts = {host.name: host for host in fleet.hosts}
    own = np.array([_own(guest, fleet, alone.saved[at], kept, hosts[guest.host]) for at, guest in enumerate(fleet.guests)])
    now = _now(fleet, rules, said, bins, left_out, is_admission)
    items = join_groups(names, rules, now)
    joined = _join(incidence, items)
    single = np.array([own[item].sum() for item in items])
    inner = np.array([sum(len(incidence.of(g)) for g in item) for item in items]) - np.diff(joined.starts)
    current = np.array([now.current[item[0]] for item in items], dtype=np.int64)
    movable = np.array([now.movable[item].all() for item in items], dtype=bool)
    domain = _domains(fleet, items)
    # A guest without a sketch may be of any domain. No guest is sent to its host.
    is_strange = np.array([bool(fleet.hosts[where.host].skipped) for where in bins], dtype=bool) & (domain != ANY).any()

    def rows() -> Iterator[npt.NDArray[np.bool_]]:
        for item, here, may_move in zip(items, current.tolist(), movable.tolist(), strict=True):
            if not may_move:
                row = now.only(here)
                row &= ~is_strange if is_admission else True
            else:
                row = now.row(item[0]) if len(item) == 1 else np.logical_and.reduce([now.row(g) for g in item])
                if is_strange.any():
                    row = row & (~is_strange | (now.only(here) & (not is_admission)))
            yield row

    allowed = AllowedBins.from_rows(rows(), len(bins))
    demand = np.array([_demand(fleet, hosts, said, item) for item in items], dtype=np.float64).reshape(len(items), 2)
    problem = Problem(
        own=single - kept * incidence.weight * inner,
        arrival=np.array([now.arrival[item].sum() for item in items]),
        toll=np.array([sum(now.arrival[g] * said[g].move_price for g in item) for item in items], dtype=np.float64),
        incidence=joined,
        kept=kept,
        capacity=capacity,
        demand=demand,
        limit=_limits(fleet, rules, bins, demand, current),
        domain=domain,
        apart=_apart(names, rules, items),
        allowed=None if allowed.is_everything else allowed,
        movable=movable,
        current=current,
    )
    reserved = [int(_reserved_bytes(host, rules)) for host in fleet.hosts]
    return Built(problem, items, bins, left_out, reserved, (False,) * len(bins))


def _now(fleet: Fleet, rules: Rules, said: list[GuestRule], bins: list[Bin], left_out: list[LeftOut], is_admission: bool) -> Now:
    """Says where guests are and may be, and names those that stay although no rule says so."""
    host_number = {host.name: at for at, host in enumerate(fleet.hosts)}
    at_host: dict[int, list[int]] = {}
    for number, where in enumerate(bins):
        at_host.setdefault(where.host, []).append(number)
    current = np.zeros(len(fleet.guests), dtype=np.int64)
    movable = np.ones(len(fleet.guests), dtype=bool)
    for at, (guest, rule) in enumerate(zip(fleet.guests, said, strict=True)):
        here = at_host[host_number[guest.host]]
        of_node = [number for number in here if len(here) == 1 or bins[number].node == rule.node]
        current[at] = (of_node or here)[0]
        why = None if is_admission else _why_it_stays(guest, rules, bool(of_node))
        movable[at] = why is None and not rule.fixed
        if why is not None and not rule.fixed:
            left_out.append(LeftOut(f"{guest.host}: {guest.name}", f"{why}: it stays"))
    arrival = np.array([guest.pages + guest.rest_pages(fleet.page_size) for guest in fleet.guests])
    return Now(current, movable, _allowed(fleet, rules, said, bins, is_admission), np.array([where.host for where in bins], dtype=np.int64), arrival)


def _why_it_stays(guest: Guest, rules: Rules, node_is_known: bool) -> str | None:
    if guest.kind not in MOVABLE:
        return f"no platform moves a {guest.kind} while it runs"
    if not (guest.verified or rules.trust_unverified):
        return "only its user says which guest it is"
    if not node_is_known:
        return "the rules do not say on which NUMA node it is"
    return None


def _domains(fleet: Fleet, items: list[list[int]]) -> np.ndarray:
    """Numbers the trust domains of items. Where no guest has a domain, none is in force."""
    names = {domain: at for at, domain in enumerate(sorted({g.domain for g in fleet.guests if g.domain is not None}))}
    domain = np.full(len(items), ANY, dtype=np.int64)
    for number, item in enumerate(items):
        found = {fleet.guests[g].domain for g in item}
        if len(found) > 1:
            raise BadRulesError(f"{', '.join(fleet.guests[g].name for g in item)} must be together and have different trust domains")
        if names:
            one = found.pop()
            domain[number] = ALONE if one is None else names[one]
    return domain


def _own(guest: Guest, fleet: Fleet, saved: float, kept: float, host: Host) -> float:
    zeros = zero_saved(guest.zero_pages, host.use_zero_pages, host.max_page_sharing)
    return guest.pages + guest.rest_pages(fleet.page_size) - kept * (saved + zeros)


def _used_now(guest: Guest, fleet: Fleet) -> float:
    """Gives the frames that the guest takes now, after what KSM saves already. What is in swap takes none."""
    return max(0.0, max(guest.pages, (guest.rss_bytes or 0) / fleet.page_size) - (guest.saved_bytes or 0) / fleet.page_size)


def _demand(fleet: Fleet, hosts: dict[str, Host], said: list[GuestRule], item: list[int]) -> tuple[float, float]:
    """Gives virtual CPUs and configured pages. A guest of which nothing says its virtual CPUs has one."""
    cpus, memory = 0.0, 0
    for g in item:
        guest, rule = fleet.guests[g], said[g]
        vcpus, most = guest.vcpus or 1, guest.most_bytes()
        if not guest.verified:
            # Its user wrote the command line, and could keep all other guests from its host by it.
            host = hosts[guest.host]
            vcpus, most = min(vcpus, host.cpus or vcpus), min(most, host.memory_bytes)
        cpus += rule.cpus if rule.cpus is not None else vcpus
        memory += most
    return cpus, memory / fleet.page_size


def _limits(fleet: Fleet, rules: Rules, bins: list[Bin], demand: Floats, current: Ints) -> Floats:
    """Gives the most virtual CPUs and configured pages of each bin. Without a rule for the host a bin that has more now may keep them."""
    limit = np.full((len(bins), 2), np.inf)
    used = np.zeros((len(bins), 2))
    np.add.at(used, current, demand)
    for number, where in enumerate(bins):
        host = fleet.hosts[where.host]
        rule = rules.hosts.get(host.name, HostRule())
        part = 1.0 if where.node is None else host.numa_bytes[where.node] / sum(host.numa_bytes)
        memory = (rule.memory_bytes or host.memory_bytes) * rules.memory_overcommit / fleet.page_size
        limit[number, CONFIGURED] = max(used[number, CONFIGURED], part * memory)
        if rule.cpus is not None:
            limit[number, CPU] = part * rule.cpus
        elif host.cpus is not None:
            limit[number, CPU] = max(used[number, CPU], part * host.cpus * rules.cpu_overcommit)
    return limit


def _reserved_bytes(host: Host, rules: Rules) -> float:
    """Gives the memory that stays free on a host."""
    memory = rules.hosts.get(host.name, HostRule()).memory_bytes or host.memory_bytes
    return host.reserved_bytes or rules.headroom * memory


def _bins(fleet: Fleet, rules: Rules) -> tuple[list[Bin], np.ndarray]:
    bins: list[Bin] = []
    capacity: list[float] = []
    used: dict[str, float] = {}
    for guest in fleet.guests:
        used[guest.host] = used.get(guest.host, 0.0) + _used_now(guest, fleet)
    for at, host in enumerate(fleet.hosts):
        rule = rules.hosts.get(host.name, HostRule())
        reserved = _reserved_bytes(host, rules)
        room = float(rule.memory_bytes or host.memory_bytes)
        if host.available_bytes is not None and rule.memory_bytes is None:
            room = min(room, host.available_bytes + used.get(host.name, 0.0) * fleet.page_size)
        room = max(0.0, room - reserved) / fleet.page_size
        nodes = len(host.numa_bytes)
        if host.merge_across_nodes or nodes < 2:
            bins.append(Bin(at, None))
            capacity.append(room)
        else:
            for node, size in enumerate(host.numa_bytes):
                part = size / sum(host.numa_bytes)
                bins.append(Bin(at, node))
                capacity.append(room * part)
    return bins, np.array(capacity)


def _join(incidence: Incidence, items: list[list[int]]) -> Incidence:
    sets = [np.unique(np.concatenate([incidence.of(g) for g in item])) if len(item) > 1 else incidence.of(item[0]) for item in items]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64)
    contents = np.concatenate(sets) if sets else np.zeros(0, dtype=np.int32)
    return Incidence(starts, contents.astype(np.int32), incidence.number, incidence.weight)


def _apart(names: Names, rules: Rules, items: list[list[int]]) -> tuple[np.ndarray, ...]:
    item_of = {g: number for number, item in enumerate(items) for g in item}
    groups = []
    for group in rules.apart:
        numbers = [item_of[g] for g in names.group(group)]
        if len(set(numbers)) != len(numbers):
            raise BadRulesError(f"{', '.join(group)} must be both together and apart")
        groups.append(np.array(sorted(numbers), dtype=np.int64))
    return tuple(groups)


def _allowed(fleet: Fleet, rules: Rules, said: list[GuestRule], bins: list[Bin], is_admission: bool) -> AllowedBins:
    """Gives the bins on which pins, classes and closed hosts let each guest be."""
    hosts = [fleet.hosts[where.host].name for where in bins]
    of_bin = [rules.hosts.get(name, HostRule()) for name in hosts]
    is_closed = np.array([rule.exclude for rule in of_bin], dtype=bool)
    host_of = np.array(hosts)
    alike: dict[tuple[str | None, tuple[str, ...] | None, str, str], npt.NDArray[np.bool_]] = {}

    def row_of(guest: Guest, rule: GuestRule) -> npt.NDArray[np.bool_]:
        may_stay = "" if is_admission or not rules.hosts.get(guest.host, HostRule()).exclude else guest.host
        key = (rule.host, rule.hosts, guest.klass, may_stay)
        if key not in alike:
            fits = [
                rule.host in (None, host) and (rule.hosts is None or host in rule.hosts) and (one.classes is None or guest.klass in one.classes)
                for host, one in zip(hosts, of_bin, strict=True)
            ]
            alike[key] = np.array(fits, dtype=bool) & (~is_closed | (host_of == may_stay))
        return alike[key]

    return AllowedBins.from_rows((row_of(guest, rule) for guest, rule in zip(fleet.guests, said, strict=True)), len(bins))
