"""Fills a fleet until the first guest is refused, under each policy."""

import time
from dataclasses import dataclass

import numpy as np

from ksmith_fleet.placement.bound import bound, most_items
from ksmith_fleet.placement.greedy import place_all
from ksmith_fleet.placement.problem import Problem
from ksmith_fleet.placement.search import improve
from ksmith_fleet.placement.state import State
from ksmith_fleet.simulate.generator import first
from ksmith_fleet.simulate.policies import POLICIES


@dataclass(frozen=True)
class Filled:
    """How many guests of the stream a policy placed before the first that it refused."""

    policy: str
    guests: int
    seconds: float


def fill(problem: Problem, policy: str, seed: int) -> Filled:
    """Places guests in the order of their arrival."""
    begin = time.monotonic()
    random = np.random.default_rng(seed)
    state = State(problem)
    for item in range(problem.items):
        where = POLICIES[policy](state, item, random)
        if where < 0:
            return Filled(policy, item, time.monotonic() - begin)
        state.put(item, where)
    return Filled(policy, problem.items, time.monotonic() - begin)


def fits_all(problem: Problem, count: int, seconds: float) -> bool:
    """Says whether a plan has room for the first so many guests. What it refuses at first is tried again after a search."""
    part = first(problem, count)
    state, refused = place_all(part)
    if len(refused) > max(3, count // 50):
        return False
    if refused:
        improve(state, seconds, rounds=3)
        for item in refused:
            ok = np.flatnonzero(state.fits(item, state.gains(item)))
            if not len(ok):
                return False
            state.put(item, int(ok[np.argmax(state.gains(item)[ok])]))
    return True


def fill_planned(problem: Problem, least: int, most: int, seconds: float) -> Filled:
    """Finds the most guests of the stream for which a whole placement is found, by halving."""
    begin = time.monotonic()
    low, high = least, most + 1
    while high - low > max(1, least // 200):
        middle = (low + high) // 2
        if fits_all(problem, middle, seconds):
            low = middle
        else:
            high = middle
    return Filled("ksmith", low if fits_all(problem, low, seconds) else 0, time.monotonic() - begin)


def limit(problem: Problem) -> int:
    """Gives a number of guests of this stream that no placement passes."""
    low, high = 0, problem.items
    while low < high:
        middle = (low + high + 1) // 2
        part = first(problem, middle)
        if most_items(part, bound(part)) >= middle:
            low = middle
        else:
            high = middle - 1
    return low
