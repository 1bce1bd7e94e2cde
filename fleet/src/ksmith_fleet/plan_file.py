"""The plan as a file: JSON that `apply`, `check` and `report` read."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from ksmith_fleet.estimate import Alone, drift_pages, moving_variance, zero_saved
from ksmith_fleet.interval import Estimate, normal_interval
from ksmith_fleet.model import Fleet
from ksmith_fleet.placement.build import Built
from ksmith_fleet.placement.state import State
from ksmith_fleet.planner import Outcome
from ksmith_fleet.text import is_host_name
from ksmith_fleet.typed import typed
from ksmith_fleet.write import replace_file

FORMAT = 1
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
    bytes: int
    gain_bytes: int
    gain_per_gib: float
    """MiB that are saved for each GiB moved."""
    temporary: bool
    node: int | None = None


@dataclass(frozen=True)
class HostPromise:
    """What a host saves and needs before and after the plan, in bytes."""

    host: str
    time_ms: int
    """The time of its sketch."""
    guests_before: int
    guests_after: int
    saved_before: Estimate
    saved_after: Estimate
    need_after: int
    room: int
    shmem_bytes: int = 0
    """Shared memory that the host counts as page cache."""


@dataclass(frozen=True)
class Plan:
    """A whole plan."""

    mode: str
    key_id: str
    time_ms: int
    rate: float
    divergence: float
    steps: list[Step]
    hosts: list[HostPromise]
    gain_bytes: int
    """What all hosts save more than now, in bytes."""
    bound_bytes: int
    """The most that any placement of these guests shares across guests."""
    shared_bytes: int
    """What this placement shares across guests."""
    refused: list[str]
    left_out: list[str]
    seconds: float
    placement: dict[str, str] = field(default_factory=dict)
    """The host of each guest after the plan, by id."""
    faults: list[str] = field(default_factory=list)
    """Constraints that hosts break now and that no order of moves repairs."""

    @property
    def distance(self) -> float:
        """Gives the part of the bound that this placement does not reach."""
        return max(0.0, 1.0 - self.shared_bytes / self.bound_bytes) if self.bound_bytes else 0.0


def make_plan(mode: str, fleet: Fleet, built: Built, alone: Alone, outcome: Outcome, divergence: float) -> Plan:
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
                    gain_per_gib=gain / 2**20 / (moved / 2**30) if moved else 0.0,
                    temporary=move.temporary,
                    node=target.node,
                )
            )
    hosts = _promises(fleet, built, alone, outcome)
    placement = {
        fleet.guests[g].id: fleet.hosts[built.bins[int(outcome.after.bin_of[number])].host].name
        for number, item in enumerate(built.items)
        for g in item
    }
    return Plan(
        mode=mode,
        key_id=fleet.hosts[0].key_id,
        time_ms=max(host.time_ms for host in fleet.hosts),
        rate=fleet.rate,
        divergence=divergence,
        steps=steps,
        hosts=hosts,
        gain_bytes=int((outcome.after.shared() - outcome.before.shared()) * page / kept),
        bound_bytes=int(outcome.most_shared * page / kept),
        shared_bytes=int(outcome.after.shared() * page / kept),
        refused=[fleet.guests[g].name for number in outcome.refused for g in built.items[number]],
        left_out=[str(left) for left in (*fleet.left_out, *built.left_out)],
        seconds=outcome.seconds,
        placement=placement,
        faults=outcome.after.faults(
            [", ".join(fleet.guests[g].name for g in item) for item in built.items],
            [fleet.hosts[where.host].name + ("" if where.node is None else f" (node {where.node})") for where in built.bins],
        ),
    )


def _promises(fleet: Fleet, built: Built, alone: Alone, outcome: Outcome) -> list[HostPromise]:
    bins_of: dict[int, list[int]] = {}
    for number, where in enumerate(built.bins):
        bins_of.setdefault(where.host, []).append(number)
    result = []
    for at, host in enumerate(fleet.hosts):
        before, count_before = _saved(fleet, built, alone, outcome.before, bins_of[at])
        after, count_after = _saved(fleet, built, alone, outcome.after, bins_of[at])
        result.append(
            HostPromise(
                host=host.name,
                time_ms=host.time_ms,
                guests_before=count_before,
                guests_after=count_after,
                saved_before=before,
                saved_after=after,
                need_after=int(outcome.after.need[bins_of[at]].sum() * fleet.page_size),
                room=int(built.problem.capacity[bins_of[at]].sum() * fleet.page_size),
                shmem_bytes=host.shmem_bytes,
            )
        )
    return result


def _saved(fleet: Fleet, built: Built, alone: Alone, state: State, bins: list[int]) -> tuple[Estimate, int]:
    """Estimates in bytes what KSM saves on a host: copies within guests, and contents across guests.

    Zero pages are left out. They are freed on whichever host a guest is, and from Linux 6.12 on KSM's account lacks those
    that lie in a huge page which KSM splits. The variance is that of the frames which remain, as if each content that is
    held were one frame.
    """
    items = np.flatnonzero(np.isin(state.bin_of, bins))
    guests = [g for item in items for g in built.items[item]]
    inside = float(alone.saved[guests].sum())
    across = float(built.problem.own[items].sum() - state.need[bins].sum()) / max(built.problem.kept, 1e-9)
    for item in items:
        if len(built.items[item]) > 1:
            across += _inner(built, int(item), fleet, alone)
    rate = 1.0 / built.problem.incidence.weight
    frames = max(0.0, float(alone.contents[guests].sum()) - across) * rate
    here = [fleet.guests[g] for g in guests]
    variance = frames * (1 - rate) / rate**2 + moving_variance(here)
    nonzero = float(sum(guest.pages - guest.zero_pages for guest in here))
    return normal_interval(inside + across, variance, nonzero, drift_pages(here)).times(fleet.page_size), len(guests)


def _inner(built: Built, item: int, fleet: Fleet, alone: Alone) -> float:
    """Gives what the guests of one item share with each other."""
    saved = 0.0
    for g in built.items[item]:
        guest = fleet.guests[g]
        host = fleet.host(guest.host)
        zeros = zero_saved(guest.zero_pages, host.use_zero_pages, host.max_page_sharing)
        saved += guest.pages + guest.rest_pages(fleet.page_size) - built.problem.kept * (alone.saved[g] + zeros)
    return (saved - float(built.problem.own[item])) / max(built.problem.kept, 1e-9)


def write_plan(plan: Plan, path: str) -> None:
    """Writes the plan."""
    replace_file(Path(path), json.dumps({"format": FORMAT} | asdict(plan), indent=1) + "\n")


def read_plan(path: str) -> Plan:
    """Reads a plan, or says why the file is none."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise BadPlanError(f"{path} has more than {MOST_BYTES >> 20} MiB, and is no plan")
        said = json.loads(data.decode())
        form = said.pop("format", None) if isinstance(said, dict) else None
        if form != FORMAT or isinstance(form, bool):
            raise BadPlanError(f"{path} is no plan, or one of another format")
        plan = typed(Plan, said)
        _check(plan)
    except (OSError, ValueError, RecursionError) as error:
        raise BadPlanError(f"{path} cannot be read as a plan: {error}") from error
    return plan


def _check(plan: Plan) -> None:
    """Refuses what cannot be, and words that are not fit for a command."""
    for number, step in enumerate(plan.steps, 1):
        if not all(word.isprintable() for word in (step.guest, step.guest_id, step.kind)) or not _are_hosts(step.source, step.target):
            raise ValueError(f"move {number} has names that no command takes")
        if step.number != number or step.bytes < 0:
            raise ValueError(f"move {number} has numbers that cannot be")
    if not plan.hosts or not _are_hosts(*(host.host for host in plan.hosts), *plan.placement.values()):
        raise ValueError("it has no hosts, or names that no host has")
    if not all(word.isprintable() for word in (*plan.placement, plan.key_id)):
        raise ValueError("it has names that are not printable")
    for host in plan.hosts:
        if not all(0 <= one.low <= one.expected <= one.high for one in (host.saved_before, host.saved_after)) or host.shmem_bytes < 0:
            raise ValueError(f"what it promises of {host.host} cannot be")
    if plan.time_ms < 0:
        raise ValueError("it was made before 1970")


def _are_hosts(*names: str) -> bool:
    return all(map(is_host_name, names))
