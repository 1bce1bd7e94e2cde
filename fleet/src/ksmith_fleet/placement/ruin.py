"""Ruin and recreate: a few related items leave their bins and are placed anew, again and again (Schrimpf et al., J. Comp. Physics 159, 2000)."""

import time
from math import log

import numpy as np

from ksmith_fleet.placement.goal import Clock, Goal
from ksmith_fleet.placement.problem import Ints
from ksmith_fleet.placement.state import LEAST_GAIN, State

MOST_TAKEN = 12
"""Items that are placed anew at once, at most."""
TRIALS = 50
"""Trials for each item that may move, at most."""
WARMTH = 0.1
"""The loss that is accepted at first in one trial of e, as a part of a mean item's memory. It falls to nothing (simulated annealing)."""
PASSED_OVER = 0.05
"""The part of items that are placed with half of the bins passed over, so that a full bin is not always filled alike."""


def ruin_and_recreate(state: State, goal: Goal, seconds: float, seed: int = 1, clock: Clock = time.monotonic) -> None:
    """Betters a placement, whatever order of moves would lead there. No trial is begun after so many seconds.

    An item is worth the price of its move more where it is now. Items that fit nowhere else stay where they are.
    """
    problem = state.problem
    movable = np.flatnonzero((state.bin_of >= 0) & problem.movable)
    if len(movable) < 2 or problem.bins < 2 or seconds <= 0:
        return
    random = np.random.default_rng(seed)
    begin, most = clock(), TRIALS * len(movable)
    now = best = _value(state, goal)
    found = state.bin_of.copy()
    warm = WARMTH * float(problem.arrival[movable].mean())
    for trial in range(most):
        done = max((clock() - begin) / seconds, trial / most)
        if done >= 1:
            break
        before = [(item, state.take(item)) for item in _related(state, movable, random)]
        value = _value(state, goal) if _recreate(state, [item for item, _ in before], goal, random) else -np.inf
        if value > now + warm * (1 - done) ** 2 * log(1 - random.random()):
            now = value
            if now > best + LEAST_GAIN:
                best, found = now, state.bin_of.copy()
        else:
            _put_back(state, before)
    changed = np.flatnonzero(state.bin_of != found)
    _put_back(state, [(item, int(found[item])) for item in changed.tolist()])


def _value(state: State, goal: Goal) -> float:
    problem = state.problem
    away = (state.bin_of != problem.current) & (problem.current >= 0)
    return goal.value(state) - goal.price * float(problem.toll[away].sum())


def _related(state: State, movable: Ints, random: np.random.Generator) -> list[int]:
    """Draws items of some bins: that of a first item, with one where it would share much or two others. Sometimes they are of any bins."""
    first = int(random.choice(movable))
    kind = random.random()
    if kind < 0.2:
        pool = movable
    else:
        likely = np.argsort(-state.gains(first), kind="stable")[:4]
        others = random.choice(likely, 1) if kind < 0.6 else random.integers(state.problem.bins, size=2)
        pool = movable[np.isin(state.bin_of[movable], [int(state.bin_of[first]), *others.tolist()])]
    drawn: list[int] = random.permutation(pool)[: int(random.integers(2, MOST_TAKEN + 1))].tolist()
    return drawn


def _recreate(state: State, items: list[int], goal: Goal, random: np.random.Generator) -> bool:
    """Puts each item where it is worth most, by size or in any order. Says whether all found a bin."""
    problem = state.problem
    if random.random() < 0.5:
        items = sorted(items, key=lambda item: -problem.arrival[item])
    for item in items:
        gains = state.gains(item)
        worth = goal.added(state, item, gains)
        home = int(problem.current[item])
        if home >= 0:
            worth[home] += goal.price * problem.toll[item]
        ok = state.may_stay(item, gains)
        if not ok.any():
            return False
        if random.random() < PASSED_OVER and (left := ok & (random.random(problem.bins) < 0.5)).any():
            ok = left
        state.put(item, int(np.argmax(np.where(ok, worth, -np.inf))))
    return True


def _put_back(state: State, before: list[tuple[int, int]]) -> None:
    for item, _ in before:
        if state.bin_of[item] >= 0:
            state.take(item)
    for item, where in before:
        state.put(item, where)
