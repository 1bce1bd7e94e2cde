"""Plans: a whole placement, an improvement by few moves, or a place for one more guest."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ksmith_fleet.placement.arrival import ranked
from ksmith_fleet.placement.bound import bound
from ksmith_fleet.placement.build import Built
from ksmith_fleet.placement.exact import solve
from ksmith_fleet.placement.greedy import place_all
from ksmith_fleet.placement.moves import Move, best_moves, order_moves, within
from ksmith_fleet.placement.problem import Problem
from ksmith_fleet.placement.relabel import relabel
from ksmith_fleet.placement.search import improve as search
from ksmith_fleet.placement.state import State


@dataclass(frozen=True)
class Outcome:
    """A placement that is reached by moves, and how good it is. Memory is in pages."""

    moves: list[Move]
    before: State
    after: State
    refused: list[int]
    """Items that the wanted placement has no bin for. They stay where they are."""
    most_shared: float
    """The most that any placement shares, by the better of bound and solver."""
    seconds: float


def plan_new(problem: Problem, seconds: float = 30.0, clock: Callable[[], float] = time.monotonic) -> Outcome:
    """Plans a whole placement: greedy start, local search, and the solver where the fleet is small."""
    begin = clock()
    state, refused = place_all(problem)
    search(state, seconds / 2, clock=clock)
    limit = bound(problem).shared
    if not refused:
        exact = solve(problem, seconds / 2)
        if exact is not None:
            where, most = exact
            limit = min(limit, max(most, 0.0))
            better = State(problem, where)
            if not better.faults() and better.shared() > state.shared() + 1e-6:
                state = better
    before = State(problem, problem.current)
    target = np.where(state.bin_of >= 0, state.bin_of, problem.current)
    moves, after = order_moves(problem, relabel(problem, target))
    if not before.faults():
        moves = within(moves, problem, len(moves), np.inf)
        after = _reached(problem, moves)
    return Outcome(moves, before, after, refused, limit, clock() - begin)


def plan_improve(
    problem: Problem,
    most_moves: int,
    most_pages: float,
    least_gain: float,
    seconds: float = 30.0,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Plans at most so many moves and pages moved, each worth `least_gain` pages shared for a page moved.

    Two ways are tried and the better one is taken: single moves, best first, and the way to what local search finds.
    """
    begin = clock()
    before = State(problem, problem.current)
    single, after = best_moves(problem, most_moves, most_pages, least_gain)
    wanted = State(problem, problem.current)
    search(wanted, seconds, clock=clock)
    ordered, _ = order_moves(problem, wanted.bin_of)
    cut = within(ordered, problem, most_moves, most_pages)
    other = _reached(problem, cut)
    # Swaps pay only as a whole, so the moves of this way are held to the limit together.
    moved = sum(float(problem.arrival[move.item]) for move in cut)
    pays = bool(cut) and sum(move.gain for move in cut) >= least_gain * moved
    moves = single
    if pays and other.shared() > after.shared() + 1e-6:
        moves, after = cut, other
    return Outcome(moves, before, after, [], bound(problem).shared, clock() - begin)


def _reached(problem: Problem, moves: list[Move]) -> State:
    state = State(problem, problem.current)
    for move in moves:
        state.take(move.item)
        state.put(move.item, move.target)
    return state


@dataclass(frozen=True)
class Place:
    """One host for a new guest: the pages that it would share, and the pages that then stay free."""

    where: int
    shared: float
    free: float


def plan_admit(built: Built, like: int) -> list[Place]:
    """Ranks the bins for one more guest like an existing one, the best first. Only bins with room for its arrival count.

    The problem must have been made by rules for an admission, or the place of the existing guest binds the new one.
    """
    problem = built.problem
    state = State(problem, problem.current)
    gains = state.gains(like)
    room = problem.capacity - state.need
    ok = state.fits(like, gains) & (room >= problem.arrival[like])
    order = ranked(state, like, gains, ok)
    return [Place(int(b), float(gains[b]), float(room[b] - problem.own[like] + gains[b])) for b in order]
