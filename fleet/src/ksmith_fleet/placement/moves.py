"""Moves: from one placement to another without a host that overflows on the way."""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ksmith_fleet.placement.problem import Ints, Problem
from ksmith_fleet.placement.state import LEAST_GAIN, SLACK, State


@dataclass(frozen=True)
class Move:
    """One live migration, and the pages that are shared more after it."""

    item: int
    source: int
    target: int
    gain: float
    temporary: bool = False
    """Whether the item only makes room here, and moves once more later."""


def may_arrive(state: State, item: int) -> npt.NDArray[np.bool_]:
    """Says where the item may arrive now. It arrives unmerged, so that its whole memory must be free."""
    problem = state.problem
    where = int(state.bin_of[item])
    state.take(item)
    ok: npt.NDArray[np.bool_] = state.fits(item, state.gains(item)) & (state.need + problem.arrival[item] <= problem.capacity + SLACK)
    if where >= 0:
        state.put(item, where)
        ok[where] = False
    return ok


def order_moves(problem: Problem, target: Ints) -> tuple[list[Move], State]:
    """Orders the moves to a placement, and gives the placement that they reach.

    The move that fits now and gains most for its size comes first. Where none fits, an item of the cycle goes to a third bin
    for a while. A move that never fits is left out, so the result may fall short of the target.
    """
    state = State(problem, problem.current)
    waiting = {int(item) for item in np.flatnonzero((target != problem.current) & (target >= 0) & (problem.current >= 0))}
    moves: list[Move] = []
    parked: set[int] = set()
    worth = {item: _delta(state, item, int(target[item])) / float(problem.arrival[item]) for item in waiting}
    queue: dict[int, list[int]] = {}
    for item in sorted(waiting, key=lambda i: (-worth[i], i)):
        queue.setdefault(int(target[item]), []).append(item)
    # Only a bin that an item left can take one that it could not take before.
    changed = sorted(queue, key=lambda b: -worth[queue[b][0]])
    while waiting:
        while changed:
            where = changed.pop(0)
            for item in list(queue.get(where, ())):
                if _arrives_at(state, item, where):
                    moves.append(_do(state, item, where, False))
                    waiting.discard(item)
                    queue[where].remove(item)
                    changed.append(moves[-1].source)
        item = _park(state, waiting - parked, moves)
        if item < 0:
            break
        parked.add(item)
        changed.append(moves[-1].source)
    if waiting & parked:
        _bring_back(problem, state, waiting & parked, moves)
    return moves, state


def _arrives_at(state: State, item: int, where: int) -> bool:
    problem = state.problem
    here = state.take(item)
    room = state.need[where] + problem.arrival[item] <= problem.capacity[where] + SLACK
    ok = bool(room) and state.fits_at(item, where, state.gain(item, where))
    state.put(item, here)
    return ok


def _delta(state: State, item: int, where: int) -> float:
    here = int(state.bin_of[item])
    now = state.gain(item, here)
    state.take(item)
    then = state.gain(item, where)
    state.put(item, here)
    return then - now


def _do(state: State, item: int, where: int, temporary: bool) -> Move:
    delta = _delta(state, item, where)
    here = state.take(item)
    state.put(item, where)
    return Move(item, here, where, delta, temporary)


def _park(state: State, candidates: set[int], moves: list[Move]) -> int:
    """Moves the smallest item that has a third bin to go to."""
    for item in sorted(candidates, key=lambda i: (state.problem.arrival[i], i)):
        ok = may_arrive(state, item)
        if ok.any():
            room = np.where(ok, state.problem.capacity - state.need, -np.inf)
            moves.append(_do(state, item, int(np.argmax(room)), True))
            return item
    return -1


def _bring_back(problem: Problem, state: State, parked: set[int], moves: list[Move]) -> None:
    """Brings items home that were parked for nothing, where they fit."""
    for item in sorted(parked):
        home = int(problem.current[item])
        if state.bin_of[item] != home and may_arrive(state, item)[home]:
            moves.append(_do(state, item, home, False))


def best_moves(problem: Problem, most: int, most_pages: float, least_gain: float) -> tuple[list[Move], State]:
    """Chooses single moves one after the other, always the one that gains most for its size.

    Each is possible when its turn comes, so the order is one in which no bin overflows.
    """
    state = State(problem, problem.current)
    moves: list[Move] = []
    moved = 0.0
    heap = [(-np.inf, int(i)) for i in np.flatnonzero(problem.movable & (problem.current >= 0))]
    while len(moves) < most and heap:
        # A stale score is mostly an upper bound: take the largest, score it again, and act if it is still the largest.
        _, item = heapq.heappop(heap)
        if moved + problem.arrival[item] > most_pages:
            continue
        score, where = _score(state, item, least_gain)
        if score <= 0:
            continue
        if heap and score < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-score, item))
            continue
        moves.append(_do(state, item, where, False))
        moved += float(problem.arrival[item])
    return moves, state


def _score(state: State, item: int, least_gain: float) -> tuple[float, int]:
    ok = may_arrive(state, item)
    if not ok.any():
        return 0.0, -1
    here = int(state.bin_of[item])
    now = state.gain(item, here)
    state.take(item)
    gains = np.where(ok, state.gains(item), -1.0)
    state.put(item, here)
    where = int(np.argmax(gains))
    won = float(gains[where]) - now
    size = float(state.problem.arrival[item])
    return (won / size, where) if won > least_gain * size else (0.0, where)


def within(moves: list[Move], problem: Problem, most: int, most_pages: float) -> list[Move]:
    """Cuts a list of moves where the budget ends or where what is shared is highest, whichever comes first."""
    best, best_gain, pages, gain = 0, 0.0, 0.0, 0.0
    for number, move in enumerate(moves[:most], 1):
        pages += float(problem.arrival[move.item])
        if pages > most_pages:
            break
        gain += move.gain
        if gain > best_gain + LEAST_GAIN and not move.temporary:
            best, best_gain = number, gain
    return moves[:best]
