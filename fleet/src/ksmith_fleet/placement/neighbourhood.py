"""Search of large neighbourhoods: a few items on a few bins are placed anew exactly, again and again."""

import time
from collections.abc import Callable

import numpy as np

from ksmith_fleet.placement.goal import Budget, Goal, Path
from ksmith_fleet.placement.joint import search_jointly
from ksmith_fleet.placement.problem import Ints, Problem
from ksmith_fleet.placement.repair import few_items
from ksmith_fleet.placement.state import State

GIVE_UP = 60
"""Neighbourhoods in a row without a better placement after which the search ends, and as many more as there are bins."""


def search_neighbourhoods(
    problem: Problem, goal: Goal, budget: Budget, seconds: float, seed: int = 1, clock: Callable[[], float] = time.monotonic
) -> Path:
    """Gives moves, each of which may be made in its turn, to a placement that no small neighbourhood betters."""
    random = np.random.default_rng(seed)
    state = State(problem, problem.current)
    movable = np.flatnonzero(problem.movable & (problem.current >= 0))
    end, fruitless = clock() + seconds, 0
    path: Path = []
    while len(movable) and problem.bins > 1 and fruitless < GIVE_UP + 4 * problem.bins and clock() < end:
        bins = _bins(state, int(random.choice(movable)), random)
        more = search_jointly(state, few_items(state, bins, random), bins, goal, budget.after(problem, path))
        for item, where in more:
            state.move(item, where)
        path += more
        fruitless = 0 if more else fruitless + 1
    return path


def _bins(state: State, item: int, random: np.random.Generator) -> Ints:
    """Gives the item's bin, one of those where it would share most, and sometimes a third."""
    here = int(state.bin_of[item])
    gains = state.gains(item)
    gains[here] = -1
    likely = np.argsort(-gains, kind="stable")[: min(4, state.problem.bins - 1)]
    found = {here, int(random.choice(likely))}
    if random.random() < 0.5:
        found.add(int(random.integers(state.problem.bins)))
    return np.array(sorted(found))
