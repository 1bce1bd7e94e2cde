"""The plan as a file: JSON that `apply`, `check` and `report` read."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import TypeAdapter

from ksmith_fleet.declared import CLOSED, Amount, Signed, Whole, parse_json
from ksmith_fleet.estimate import Alone, changing_pages, placed_sums, saved_together
from ksmith_fleet.interval import Estimate, normal_interval, sum_variance
from ksmith_fleet.model import Fleet
from ksmith_fleet.placement.build import Built
from ksmith_fleet.placement.problem import CONFIGURED, CPU
from ksmith_fleet.planner import Outcome
from ksmith_fleet.text import is_host_name, reason
from ksmith_fleet.write import replace_file

FORMAT: Final = 4
MOST_BYTES = 1 << 28
"""The largest plan that is read. One of 100,000 guests has a tenth of that."""


class BadPlanError(Exception):
    """A file is no plan; the text says why."""


@dataclass(frozen=True)
class Step:
    """One live migration."""

    number: int
    guest: str
    guest_id: str
    kind: str
    source: str
    target: str
    bytes: Whole
    gain_bytes: Signed
    """What the move gains by the contents that the plan was made by. Partly by chance it is more than the plan's."""
    temporary: bool
    node: int | None = None

    @property
    def gain_per_gib(self) -> float:
        """Gives the MiB that are saved for each GiB moved."""
        return 1024.0 * self.gain_bytes / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class HostPromise:
    """What a host saves and needs before and after the plan, in bytes."""

    host: str
    time_ms: Whole
    """The time of its sketch."""
    guests_before: Whole
    guests_after: Whole
    saved_before: Estimate
    saved_after: Estimate
    need_after: Signed
    room: Signed
    shmem_bytes: Whole = 0
    """Shared memory that the host counts as page cache."""
    reserved_bytes: Whole = 0
    """Memory that stays free on the host, also while guests arrive."""
    need_before: Signed = 0
    unmerged_after: Whole = 0
    """What its guests take if nothing stays merged."""
    swap_free: Whole = 0
    memory_bytes: Whole = 0
    configured_after: Whole = 0
    """The memory that its guests may come to use."""
    cpus: Whole = 0
    vcpus_after: Amount = 0.0
    changing_bytes: Whole = 0
    """What changed in its guests after the plan while sketches were taken, and may merge or not. No interval covers it."""


@dataclass(frozen=True)
class Plan:
    """A whole plan, and its file's format."""

    __pydantic_config__ = CLOSED

    format: Literal[4]
    key_id: str
    time_ms: Whole
    steps: list[Step]
    hosts: list[HostPromise]
    gain_bytes: Signed
    """What all hosts save more than now, in bytes: the difference of `saved_after` and `saved_before`."""
    gain_low_bytes: Signed
    """The lower end of the gain's interval. Both figures have errors in common, so it is narrower than theirs."""
    gain_high_bytes: Signed
    bound_bytes: Signed
    """The most that any placement of these guests shares across guests."""
    shared_bytes: Signed
    """What this placement shares across guests."""
    left_out: list[str]
    saved_before: Estimate
    """What all hosts save now. They have contents in common, so its interval is not theirs added up."""
    saved_after: Estimate
    placement: dict[str, str] = field(default_factory=dict)
    """The host of each guest after the plan, by id."""
    goal: str = "save"
    closed: list[str] = field(default_factory=list)
    """Hosts that the plan is to empty."""
    faults: list[str] = field(default_factory=list)
    """Constraints that hosts break now and that no order of moves repairs."""

    @property
    def gain(self) -> Estimate:
        """Gives the gain with its interval, in bytes. It may be below 0."""
        return Estimate(self.gain_bytes, self.gain_low_bytes, self.gain_high_bytes)

    @property
    def moved_bytes(self) -> int:
        """Sums what all moves transfer."""
        return sum(step.bytes for step in self.steps)

    @property
    def distance(self) -> float:
        """Gives the part of the bound that this placement does not reach."""
        return max(0.0, 1.0 - self.shared_bytes / self.bound_bytes) if self.bound_bytes else 0.0


_PLAN_FORMAT = TypeAdapter(Plan)


def make_plan(fleet: Fleet, built: Built, alone: Alone, outcome: Outcome, goal: str = "save") -> Plan:
    """Turns an outcome of the planner into a plan with names and bytes."""
    page = fleet.page_size
    kept = max(built.problem.kept, 1e-9)
    steps: list[Step] = []
    for move in outcome.moves:
        for g in built.items[move.item]:
            guest = fleet.guests[g]
            source, target = built.bins[move.source], built.bins[move.target]
            part = 1.0 / len(built.items[move.item])
            moved = int(built.problem.arrival[move.item] * part * page)
            gain = int(move.gain * part * page / kept)
            steps.append(
                Step(
                    number=len(steps) + 1,
                    guest=guest.name,
                    guest_id=guest.id,
                    kind=guest.kind,
                    source=fleet.hosts[source.host].name,
                    target=fleet.hosts[target.host].name,
                    bytes=moved,
                    gain_bytes=gain,
                    temporary=move.temporary,
                    node=target.node,
                )
            )
    was, now = (built.bin_of(state.bin_of) for state in (outcome.before, outcome.after))
    host_of = np.array([where.host for where in built.bins], dtype=np.int64)
    before, after = (_saved(fleet, alone, was, bin_of, host_of) for bin_of in (was, now))
    (all_before,), (all_after,) = (_saved(fleet, alone, was, bin_of, np.zeros_like(host_of)) for bin_of in (was, now))
    gained = normal_interval(all_after.saved.expected - all_before.saved.expected, all_after.change_variance, least=-np.inf)
    placement = {
        fleet.guests[g].id: fleet.hosts[built.bins[int(outcome.after.bin_of[number])].host].name
        for number, item in enumerate(built.items)
        for g in item
    }
    return Plan(
        format=FORMAT,
        key_id=fleet.hosts[0].key_id,
        time_ms=max(host.time_ms for host in fleet.hosts),
        steps=steps,
        hosts=_promises(fleet, before, after, built, outcome),
        gain_bytes=int(gained.expected),
        gain_low_bytes=int(gained.low),
        gain_high_bytes=int(gained.high),
        bound_bytes=int(outcome.most_shared * page / kept),
        shared_bytes=int(outcome.after.shared() * page / kept),
        left_out=[str(left) for left in (*fleet.left_out, *built.left_out)],
        saved_before=all_before.saved,
        saved_after=all_after.saved,
        placement=placement,
        goal=goal,
        closed=sorted({fleet.hosts[where.host].name for where, is_closed in zip(built.bins, built.is_closed, strict=True) if is_closed}),
        faults=outcome.after.faults(
            [", ".join(fleet.guests[g].name for g in item) for item in built.items],
            [fleet.hosts[where.host].name + ("" if where.node is None else f" (node {where.node})") for where in built.bins],
        ),
    )


@dataclass(frozen=True)
class _Saving:
    """What KSM saves on a host, in bytes, with its guests."""

    saved: Estimate
    guests: int
    changing: float
    change_variance: float
    """The variance of the difference to what the host saved before the plan, in squared bytes."""


def _promises(fleet: Fleet, before: list[_Saving], after: list[_Saving], built: Built, outcome: Outcome) -> list[HostPromise]:
    result = []
    state = outcome.after
    placed = state.bin_of >= 0
    unmerged = np.bincount(state.bin_of[placed], weights=built.problem.arrival[placed], minlength=len(built.bins))
    bins_of: list[list[int]] = [[] for _ in fleet.hosts]
    for number, where in enumerate(built.bins):
        bins_of[where.host].append(number)
    for at, (host, bins) in enumerate(zip(fleet.hosts, bins_of, strict=True)):
        used = state.used[bins].sum(axis=0)
        result.append(
            HostPromise(
                host=host.name,
                time_ms=host.time_ms,
                guests_before=before[at].guests,
                guests_after=after[at].guests,
                saved_before=before[at].saved,
                saved_after=after[at].saved,
                need_after=int(state.need[bins].sum() * fleet.page_size),
                room=int(built.problem.capacity[bins].sum() * fleet.page_size),
                shmem_bytes=host.shmem_bytes,
                reserved_bytes=built.reserved_bytes[at],
                need_before=int(outcome.before.need[bins].sum() * fleet.page_size),
                unmerged_after=int(unmerged[bins].sum() * fleet.page_size),
                swap_free=host.swap_free_bytes,
                memory_bytes=host.memory_bytes,
                configured_after=int(used[CONFIGURED] * fleet.page_size),
                cpus=host.cpus or 0,
                vcpus_after=float(used[CPU]),
                changing_bytes=int(after[at].changing),
            )
        )
    return result


def _saved(fleet: Fleet, alone: Alone, before: np.ndarray, after: np.ndarray, host_of: np.ndarray) -> list[_Saving]:
    """Estimates what KSM saves on each host once guests have gone to the bins `after`: copies within guests, and contents across guests.

    Zero pages are left out. They are freed on whichever host a guest is, and from Linux 6.12 on KSM's account lacks those
    that lie in a huge page which KSM splits.
    """
    sums = placed_sums(alone.incidence, before, after, host_of, fleet.rate, alone.max_sharing)
    guests_of: list[list[int]] = [[] for _ in range(int(host_of.max()) + 1)]
    for guest, where in enumerate(after):
        if where >= 0:
            guests_of[host_of[where]].append(guest)
    result = []
    for at, guests in enumerate(guests_of):
        here = [fleet.guests[g] for g in guests]
        squares = max(0.0, float(alone.squares[guests].sum() + sums.squares[at]))
        joined, of_squares = float(sums.shared[at]) * fleet.rate, float(sums.shared_by_all[at]) * fleet.rate
        saved = saved_together(here, alone.unbiased[guests], alone.counted[guests], joined, squares, fleet.rate, of_squares)
        variance = sum_variance(float(sums.change_squares[at]), fleet.rate) * fleet.page_size**2
        result.append(_Saving(saved.times(fleet.page_size), len(guests), changing_pages(here) * fleet.page_size, variance))
    return result


def plan_json(plan: Plan) -> dict[str, Any]:
    """Gives the plan as its file has it."""
    return asdict(plan)


def write_plan(plan: Plan, path: str) -> None:
    """Writes the plan."""
    replace_file(Path(path), json.dumps(plan_json(plan), indent=1) + "\n")


def read_plan(path: str) -> Plan:
    """Reads a plan, or says why the file is none."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise BadPlanError(f"{path} has more than {MOST_BYTES >> 20} MiB, and is no plan")
        plan = parse_json(_PLAN_FORMAT, data)
        _check(plan)
    except (OSError, ValueError) as error:
        raise BadPlanError(f"{path} cannot be read as a plan: {reason(error)}; make it anew with `ksmith-fleet plan --out`") from error
    return plan


def _check(plan: Plan) -> None:
    """Refuses what cannot be, and words that are not fit for a command."""
    for number, step in enumerate(plan.steps, 1):
        if not all(word.isprintable() for word in (step.guest, step.guest_id, step.kind)) or not _are_hosts(step.source, step.target):
            raise ValueError(f"move {number} has names that no command takes")
        if step.number != number:
            raise ValueError(f"move {number} has numbers that cannot be")
    if not plan.hosts or not _are_hosts(*(host.host for host in plan.hosts), *plan.placement.values(), *plan.closed):
        raise ValueError("it has no hosts, or names that no host has")
    if not all(word.isprintable() for word in (*plan.placement, plan.key_id)):
        raise ValueError("it has names that are not printable")
    for host in plan.hosts:
        if not _are_intervals(host.saved_before, host.saved_after):
            raise ValueError(f"what it promises of {host.host} cannot be")
    if not _are_intervals(plan.saved_before, plan.saved_after):
        raise ValueError("what it promises of all hosts cannot be")
    if not plan.gain_low_bytes <= plan.gain_bytes <= plan.gain_high_bytes:
        raise ValueError("what it gains cannot be")


def _are_intervals(*found: Estimate) -> bool:
    return all(0 <= one.low <= one.expected <= one.high for one in found)


def _are_hosts(*names: str) -> bool:
    return all(map(is_host_name, names))
