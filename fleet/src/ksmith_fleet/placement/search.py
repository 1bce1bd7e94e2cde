"""Local search: moves and swaps that raise what is shared, until none is found or the time is up."""

import time
from collections.abc import Callable

import numpy as np

from ksmith_fleet.placement.state import LEAST_GAIN, SLACK, State

TRIED = 3
"""Bins that are tried for a swap, and items of each."""


def improve(
    state: State,
    seconds: float,
    seed: int = 1,
    clock: Callable[[], float] = time.monotonic,
    rounds: int = 20,
    most: int | None = None,
) -> int:
    """Moves items to where they share more, and swaps two where a move does not fit. Gives the number of changes.

    With `most` only so many items are tried in each round, drawn at random.
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
            changes += _one(state, int(item))
        if changes == before:
            break
    return changes


def _one(state: State, item: int) -> int:
    here = int(state.bin_of[item])
    now = state.gain(item, here)
    state.take(item)
    gains = state.gains(item)
    better = gains > now + LEAST_GAIN
    better[here] = False
    ok = better & state.fits(item, gains)
    if ok.any():
        state.put(item, int(np.argmax(np.where(ok, gains, -1))))
        return 1
    state.put(item, here)
    # The bins that would share most are full: one of their items may be better off here.
    for where in np.argsort(-np.where(better, gains, -1))[:TRIED]:
        if better[where] and _swap(state, item, int(where), gains[where] - now):
            return 1
    return 0


def _swap(state: State, item: int, where: int, won: float) -> bool:
    here = int(state.bin_of[item])
    others = np.flatnonzero((state.bin_of == where) & state.problem.movable)
    losses = np.array([state.gain(int(other), where) for other in others])
    for other in others[np.argsort(losses)][:TRIED]:
        before = state.shared()
        state.take(item)
        state.take(int(other))
        gains = state.gains(item)
        if state.fits(item, gains)[where]:
            state.put(item, where)
            back = state.gains(int(other))
            if state.fits(int(other), back)[here]:
                state.put(int(other), here)
                if state.shared() > before + SLACK:
                    return True
                state.take(int(other))
            state.take(item)
        state.put(item, here)
        state.put(int(other), where)
    return False
