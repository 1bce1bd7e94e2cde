"""Local search: moves and swaps that make a placement better, until none is found or the time is up."""

import time
from collections.abc import Callable

import numpy as np

from ksmith_fleet.placement.goal import Goal
from ksmith_fleet.placement.problem import Floats
from ksmith_fleet.placement.state import LEAST_GAIN, SLACK, State

TRIED = 3
"""Bins that are tried for a swap, and items of each."""
SHARE = Goal("save", price=0.0)
"""The goal to share as much as possible, whatever is moved for it."""


def improve(
    state: State,
    seconds: float,
    seed: int = 1,
    clock: Callable[[], float] = time.monotonic,
    rounds: int = 20,
    most: int | None = None,
    goal: Goal = SHARE,
) -> int:
    """Moves items to where they are worth more, and swaps two where a move does not fit. Gives the number of changes.

    An item is worth the price of its move more where it is now. With `most` only so many items are tried in each round, drawn at random.
    """
    random = np.random.default_rng(seed)
    end = clock() + seconds
    changes = 0
    for _ in range(rounds):
        before = changes
        items = np.flatnonzero((state.bin_of >= 0) & state.problem.movable)
        for item in random.permutation(items)[:most]:
            if clock() > end:
                return changes
            changes += _one(state, int(item), goal)
        if changes == before:
            break
    return changes


def _one(state: State, item: int, goal: Goal) -> int:
    here = state.take(item)
    gains = state.gains(item)
    worth = _worth(state, item, gains, goal)
    better = worth > worth[here] + LEAST_GAIN
    better[here] = False
    ok = better & state.may_stay(item, gains)
    if ok.any():
        state.put(item, int(np.argmax(np.where(ok, worth, -np.inf))))
        return 1
    state.put(item, here)
    # The best bins are full: one of their items may be better off here.
    for where in np.argsort(-np.where(better, worth, -np.inf))[:TRIED]:
        if better[where] and _swap(state, item, int(where), goal):
            return 1
    return 0


def _worth(state: State, item: int, gains: Floats, goal: Goal) -> Floats:
    """Gives for each bin what an item that is nowhere adds to it, and the price of a move where it is now."""
    worth = goal.added(state, item, gains)
    home = int(state.problem.current[item])
    if home >= 0:
        worth[home] += goal.price * state.problem.toll[item]
    return worth


def _swap(state: State, item: int, where: int, goal: Goal) -> bool:
    here = int(state.bin_of[item])
    others = np.flatnonzero((state.bin_of == where) & state.problem.movable)
    losses = np.array([state.gain(int(other), where) for other in others])
    for other in others[np.argsort(losses)][:TRIED]:
        before = goal.value(state) - _price(state, (item, int(other)), goal)
        state.take(item)
        state.take(int(other))
        gains = state.gains(item)
        if state.may_stay(item, gains)[where]:
            state.put(item, where)
            back = state.gains(int(other))
            if state.may_stay(int(other), back)[here]:
                state.put(int(other), here)
                if goal.value(state) - _price(state, (item, int(other)), goal) > before + SLACK:
                    return True
                state.take(int(other))
            state.take(item)
        state.put(item, here)
        state.put(int(other), where)
    return False


def _price(state: State, items: tuple[int, ...], goal: Goal) -> float:
    problem = state.problem
    return goal.price * sum(float(problem.toll[item]) for item in items if problem.current[item] not in (-1, state.bin_of[item]))
