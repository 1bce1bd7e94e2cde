"""Plans for known fleets that come true, or not, to try their promises and `check` on."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ksmith_fleet.check import Checked, check
from ksmith_fleet.dataset import engine_over, read_fleet
from ksmith_fleet.engine import Settings
from ksmith_fleet.estimate import alone, shared_on_bins
from ksmith_fleet.incidence import from_answer
from ksmith_fleet.interval import Estimate
from ksmith_fleet.model import Fleet
from ksmith_fleet.placement.build import Built, build
from ksmith_fleet.placement.goal import Budget
from ksmith_fleet.placement.search import SHARE
from ksmith_fleet.plan_file import Plan, make_plan
from ksmith_fleet.planner import Outcome, plan_admit, plan_goal
from ksmith_fleet.rules import Rules
from ksmith_fleet.simulate.drawn import Draw, draw, drawn_alone, stays
from ksmith_fleet.simulate.figures import Figure
from ksmith_fleet.simulate.known import KnownFleet, sketch_hosts
from ksmith_fleet.simulate.write import write_sketch

MOST_CALLS = 500.0
"""Calls of the clock after which the search ends. It makes all moves that it may on 50 hosts, and more calls no better ones."""


@dataclass(frozen=True)
class PlannedFleet:
    """A known fleet with a plan by its sketches."""

    known: KnownFleet
    read: Fleet
    drawn: Draw
    bits: int
    built: Built
    outcome: Outcome
    plan: Plan
    admitting: int
    """The bin that one more guest like the first would share most with."""

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """Gives for each guest that was read its number in the known fleet."""
        return np.array([int(guest.name[1:]) for guest in self.read.guests])

    def with_new_held_out(self, random: np.random.Generator) -> "PlannedFleet":
        """Gives the same plan under another key, as `Draw.with_new_held_out` has it."""
        return self.under(self.drawn.with_new_held_out(self.known, self.bits, random))

    def under(self, drawn: Draw) -> "PlannedFleet":
        """Gives the same plan with what a draw promises of it."""
        remain = stays(self.known, drawn.every)[self.order].tolist()
        guests = [replace(guest, changing=1.0 - part) for guest, part in zip(self.read.guests, remain, strict=True)]
        read = replace(self.read, guests=guests)
        plan = make_plan(read, self.built, drawn_alone(self.known, drawn, self.bits, self.order), self.outcome)
        return replace(self, read=read, drawn=drawn, plan=plan)

    def admission(self) -> tuple[Estimate, float]:
        """Gives what one more guest like the first would share on the best host, and the truth, in pages."""
        bin_of = self.built.bin_of(self.built.problem.current)
        incidence = drawn_alone(self.known, self.drawn, self.bits, self.order).incidence
        found = shared_on_bins(incidence, 0, bin_of, len(self.built.bins))[self.admitting]
        holds = self.known.steady[:, self.order] > 0
        is_shared = (holds.sum(axis=1) >= 2) & holds[:, 0] & holds[:, bin_of == self.admitting].any(axis=1)
        return found, float(self.known.counts[is_shared].sum())

    def figures(self) -> list[Figure]:
        """Gives what the plan promises, and the truth, in bytes."""
        host_of = np.array([self.plan.placement[guest.id] for guest in self.read.guests])
        now = np.empty(len(host_of), dtype=host_of.dtype)
        now[self.order] = host_of
        page = self.read.page_size
        after = {promise.host: self.known.saved(now == promise.host) * page for promise in self.plan.hosts}
        total, before = sum(after.values()), self.known.saved_of_hosts * page
        plan = self.plan
        shared, truth = self.admission()
        # A host with one guest at most shares nothing, whatever was sampled.
        several = [promise for promise in plan.hosts if promise.guests_after > 1]
        return [
            *(Figure("a host after the plan", promise.saved_after, after[promise.host]) for promise in several),
            Figure("all hosts after the plan", plan.saved_after, total),
            Figure("gain of the plan", plan.gain, total - before),
            Figure("admission", shared, truth),
        ]

    def execute(self, placed: KnownFleet) -> Checked:
        """Checks the plan where all guests are where it has them, and each host saves what the contents of its guests in `placed` say."""
        number = {guest.id: int(guest.name[1:]) for guest in self.read.guests}
        hosts = []
        guests = []
        for host in self.read.hosts:
            here = [guest for guest in self.read.guests if self.plan.placement[guest.id] == host.name]
            chosen = np.isin(np.arange(len(self.known.host)), [number[guest.id] for guest in here])
            saved = placed.saved(chosen) * self.read.page_size
            for at, guest in enumerate(here):
                guests.append(replace(guest, host=host.name, saved_bytes=0 if at else saved, zero_saved_bytes=0))
            hosts.append(replace(host, time_ms=host.time_ms + 3_600_000))
        return check(self.plan, replace(self.read, hosts=hosts, guests=guests), within=0.0)


def plan_known(known: KnownFleet, bits: int, random: np.random.Generator, directory: Path, moves: int = 20) -> PlannedFleet:
    """Sketches the fleet at a rate, and plans to improve it. The clock counts its calls, so that the plan is the same on each machine."""
    drawn = draw(known, bits, random)
    for host in sketch_hosts(known, drawn.every, bits, random, held_out=drawn.held_out):
        write_sketch(host, directory / f"{host.name}.parquet")
    read, sketches = read_fleet(str(directory))
    with engine_over(sketches, Settings()) as engine:
        incidence = from_answer(engine.ask("incidence"), len(read.guests), read.rate)
        single = alone(read.guests, engine.ask("alone"), read.rate, incidence, engine.settings.max_sharing)
    rules = Rules()
    built = build(read, incidence.for_planning(), single, rules)
    clock = partial(next, count(0.0))
    outcome = plan_goal(built.problem, SHARE, Budget(moves), MOST_CALLS, clock, is_bound_solved=False)
    admission = build(read, incidence.for_planning(), single, rules.for_admission(), is_admission=True)
    places = plan_admit(admission, admission.items.index([0]))
    return PlannedFleet(known, read, drawn, bits, built, outcome, make_plan(read, built, single, outcome), places[0].where)


def shared_lost(known: KnownFleet) -> KnownFleet:
    """Gives the fleet with three tenths of all contents gone that several guests hold."""
    is_shared = (known.steady > 0).sum(axis=1) > 1
    return replace(known, counts=np.where(is_shared, known.counts * 7 // 10, known.counts))
