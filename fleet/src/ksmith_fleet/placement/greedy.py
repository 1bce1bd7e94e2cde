"""The greedy start: like guests one after the other, each where it shares most among the bins in use."""

import time

import numpy as np

from ksmith_fleet.images import find_images, similarity_order
from ksmith_fleet.placement.goal import Clock
from ksmith_fleet.placement.problem import Floats, Ints, Problem
from ksmith_fleet.placement.state import State


def best_bin(state: State, item: int, gains: Floats | None = None) -> int:
    """Gives the bin in use with the largest gain, the fullest one among equals; else the empty bin that fits best; else -1."""
    shared = state.gains(item) if gains is None else gains
    ok = state.fits(item, shared)
    used = ok & (state.load > 0)
    room = state.problem.capacity - state.need
    if used.any():
        rank = np.where(used, shared * 1e6 - room, -np.inf)
        return int(np.argmax(rank))
    if ok.any():
        return int(np.argmin(np.where(ok, room, np.inf)))
    return -1


def order_of(problem: Problem) -> Ints:
    """Orders items so that like ones follow each other; those that may go to few bins come first."""
    image = find_images(problem.incidence)
    order = similarity_order(problem.incidence, image)
    if problem.allowed is None:
        return order
    choices = problem.allowed.choices()
    narrow = choices[order] < problem.bins
    return np.concatenate([order[narrow][np.argsort(choices[order[narrow]], kind="stable")], order[~narrow]])


def place_all(
    problem: Problem, order: Ints | None = None, fixed: Ints | None = None, end: float = np.inf, clock: Clock = time.monotonic
) -> tuple[State, list[int]]:
    """Places all items, and gives those that fit nowhere or come after `end`. Items that must not move stay where they are."""
    state = State(problem)
    start = problem.current if fixed is None else fixed
    for item in np.flatnonzero(~problem.movable & (start >= 0)):
        state.put(int(item), int(start[item]))
    refused = []
    for item in order_of(problem) if order is None else order:
        if state.bin_of[item] >= 0:
            continue
        where = best_bin(state, int(item)) if clock() < end else -1
        if where < 0:
            refused.append(int(item))
        else:
            state.put(int(item), where)
    return state, refused
