"""Plans for known fleets that come true, or not, to try `check` on."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ksmith_fleet.check import Checked, check
from ksmith_fleet.dataset import engine_over, read_fleet
from ksmith_fleet.engine import Settings
from ksmith_fleet.estimate import alone
from ksmith_fleet.incidence import from_answer
from ksmith_fleet.model import Fleet
from ksmith_fleet.placement.build import build
from ksmith_fleet.plan_file import Plan, make_plan
from ksmith_fleet.planner import plan_improve
from ksmith_fleet.rules import Rules
from ksmith_fleet.simulate.known import KnownFleet, draw_counts, sketch_hosts
from ksmith_fleet.simulate.write import write_sketch


def plan_known(fleet: KnownFleet, bits: int, random: np.random.Generator, directory: Path, moves: int = 20) -> tuple[Plan, Fleet]:
    """Sketches the fleet at a rate, and plans to improve it. No clock is asked, so that the plan is the same on each machine."""
    for host in sketch_hosts(fleet, draw_counts(fleet, bits, random), bits, random):
        write_sketch(host, directory / f"{host.name}.parquet")
    read, sketches = read_fleet(str(directory))
    with engine_over(sketches, Settings()) as engine:
        incidence = from_answer(engine.ask("incidence"), len(read.guests), read.rate)
        single = alone(read.guests, engine.ask("alone"), read.rate, incidence, engine.settings.max_sharing)
    rules = Rules()
    built = build(read, incidence.for_planning(), single, rules)
    outcome = plan_improve(built.problem, moves, np.inf, 0.0, clock=lambda: 0.0)
    return make_plan(read, built, single, outcome), read


def execute(fleet: KnownFleet, plan: Plan, read: Fleet, placed: KnownFleet) -> Checked:
    """Checks the plan where all guests are where it has them, and each host saves what the contents of its guests in `placed` say."""
    number = {guest.id: int(guest.name[1:]) for guest in read.guests}
    hosts = []
    guests = []
    for host in read.hosts:
        here = [guest for guest in read.guests if plan.placement[guest.id] == host.name]
        chosen = np.isin(np.arange(len(fleet.host)), [number[guest.id] for guest in here])
        saved = placed.saved(chosen) * read.page_size
        for at, guest in enumerate(here):
            guests.append(replace(guest, host=host.name, saved_bytes=0 if at else saved, zero_saved_bytes=0))
        hosts.append(replace(host, time_ms=host.time_ms + 3_600_000))
    return check(plan, replace(read, hosts=hosts, guests=guests))
