"""Repairs: the fewest pages that have to move so that a placement breaks fewer rules."""

from collections.abc import Iterator

import numpy as np

from ksmith_fleet.placement.faults import LEAST_FAULT, faults_of_bins
from ksmith_fleet.placement.goal import Budget, Clock, Goal, Path
from ksmith_fleet.placement.joint import search_jointly
from ksmith_fleet.placement.moves import worth_of_moves
from ksmith_fleet.placement.problem import Ints, Problem
from ksmith_fleet.placement.state import SLACK, State

MOST_SETS = 5000
"""Placements that are tried at once, of a few items on two or three bins."""


def repair(problem: Problem, goal: Goal, budget: Budget, end: float, clock: Clock) -> Path:
    """Moves items off bins with faults, each time the one that mends most for its size. Where none mends, a few bins are searched exactly.

    Nothing is begun after `end`.
    """
    state = State(problem, problem.current)
    path: Path = []
    while clock() < end:
        left = budget.after(problem, path)
        before = float(faults_of_bins(state).sum())
        more = _one(state, goal, left) or _few(state, goal, left, end, clock)
        if not more:
            return path
        for item, where in more:
            state.move(item, where)
        if float(faults_of_bins(state).sum()) > before - LEAST_FAULT:
            return path
        path += more
    return path


def _one(state: State, goal: Goal, budget: Budget) -> Path:
    problem = state.problem
    faults = faults_of_bins(state)
    best, best_mended = (-1, -1), 0.0
    faulty = np.flatnonzero((faults[state.bin_of] > 0) & (state.bin_of >= 0) & problem.movable & (problem.toll <= budget.pages + SLACK))
    for item in faulty.tolist() if budget.moves > 0 else ():
        here = state.take(item)
        mended = float(faults[here] - faults_of_bins(state)[here])
        state.put(item, here)
        if problem.allowed is not None and not problem.allowed.of(item)[here]:
            mended = max(mended, 1.0)
        mended /= max(1.0, float(problem.toll[item]))
        if mended > best_mended:
            worth = worth_of_moves(state, item, goal)
            if np.isfinite(worth.max()):
                best, best_mended = (item, int(np.argmax(worth))), mended
    return [best] if best[0] >= 0 else []


def _few(state: State, goal: Goal, budget: Budget, end: float, clock: Clock) -> Path:
    faults = faults_of_bins(state)
    for faulty in np.argsort(-faults)[: int((faults > 0).sum())].tolist():
        for bins in around(state, faulty):
            if clock() >= end:
                return []
            items = few_items(state, bins, np.random.default_rng(faulty))
            path = search_jointly(state, items, bins, goal, budget) if len(items) else []
            if path and _mends(state, path):
                return path
    return []


def _mends(state: State, path: Path) -> bool:
    before = float(faults_of_bins(state).sum())
    back = [(item, state.move(item, where)) for item, where in path]
    after = float(faults_of_bins(state).sum())
    for item, where in reversed(back):
        state.move(item, where)
    return after < before - LEAST_FAULT


def around(state: State, where: int) -> Iterator[Ints]:
    """Gives small groups of bins with this one: pairs and triples with the bins that have most room."""
    problem = state.problem
    room = np.argsort(-(problem.capacity - state.need))
    others = [int(b) for b in room if b != where][:8]
    for one in others:
        yield np.array([where, one])
    for at, one in enumerate(others):
        for two in others[:at]:
            yield np.array([where, one, two])


def few_items(state: State, bins: Ints, random: np.random.Generator) -> Ints:
    """Draws so many movable items of some bins that all their placements can be tried."""
    most = int(np.log(MOST_SETS) / np.log(len(bins)))
    here = np.flatnonzero(np.isin(state.bin_of, bins) & state.problem.movable)
    return np.sort(random.permutation(here)[:most])
