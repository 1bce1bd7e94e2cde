"""A fleet over time: guests arrive and leave, and a policy places each."""

import time
from dataclasses import dataclass

import numpy as np

from ksmith_fleet.placement.problem import Problem
from ksmith_fleet.placement.search import improve
from ksmith_fleet.placement.state import State
from ksmith_fleet.simulate.policies import POLICIES


@dataclass(frozen=True)
class Churned:
    """What came of a policy over all events."""

    policy: str
    arrivals: int
    refused: int
    shared: float
    """The part of the guests' own need that is shared, in the mean over the second half of the events."""
    running: float
    """Guests that run, in the mean over the second half."""
    moves: int
    seconds: float


def churn(problem: Problem, policy: str, events: int, target: int, seed: int, moves_per_event: int = 0) -> Churned:
    """Plays arrivals and departures around a number of guests. The policy `ksmith` places like `ksmith-admit` and then moves few.

    Below `target` guests arrivals are likelier, above it departures. A guest that was refused is gone.
    """
    begin = time.monotonic()
    random = np.random.default_rng(seed)
    state = State(problem)
    choose = POLICIES["ksmith-admit" if policy == "ksmith" else policy]
    arrived = refused = moves = 0
    shared: list[float] = []
    running: list[int] = []
    alive: list[int] = []
    for event in range(events):
        if arrived < problem.items and (len(alive) < 2 or random.random() < 0.5 + 0.5 * (1 - len(alive) / target)):
            where = choose(state, arrived, random)
            if where < 0:
                refused += 1
            else:
                state.put(arrived, where)
                alive.append(arrived)
            arrived += 1
        elif alive:
            at = int(random.integers(len(alive)))
            alive[at], alive[-1] = alive[-1], alive[at]
            state.take(alive.pop())
        if policy == "ksmith" and moves_per_event and alive:
            moves += improve(state, np.inf, seed=event, rounds=1, most=moves_per_event)
        if event >= events // 2:
            placed = state.bin_of >= 0
            shared.append(state.shared() / max(1.0, float(problem.own[placed].sum())))
            running.append(len(alive))
    return Churned(policy, arrived, refused, float(np.mean(shared)), float(np.mean(running)), moves, time.monotonic() - begin)
