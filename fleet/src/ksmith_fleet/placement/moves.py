"""Moves: from one placement to another without a host that overflows on the way."""

import heapq
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ksmith_fleet.placement.faults import LEAST_FAULT, faults_of_bins
from ksmith_fleet.placement.goal import Budget, Clock, Goal, Path
from ksmith_fleet.placement.problem import Floats, Ints, Problem
from ksmith_fleet.placement.state import LEAST_GAIN, SLACK, State

MOST_BLOCKED = 64
"""The blocked items for which way is made, those that lack least first."""


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
    """Says to which other bins the item may move now."""
    where = int(state.bin_of[item])
    state.take(item)
    ok = state.receives(item, state.gains(item))
    if where >= 0:
        state.put(item, where)
        ok[where] = False
    return ok


def worth_of_moves(state: State, item: int, goal: Goal) -> Floats:
    """Gives for each bin what a move of the item there is worth, less its price: endlessly little where it may not arrive."""
    problem = state.problem
    here = state.take(item)
    gains = state.gains(item)
    ok = state.receives(item, gains)
    added = goal.added(state, item, gains)
    state.put(item, here)
    ok[here] = False
    return np.where(ok, added - added[here] - goal.price * problem.toll[item], -np.inf)


def order_moves(problem: Problem, target: Ints, end: float = np.inf, clock: Clock = time.monotonic) -> tuple[Path, State]:
    """Orders the moves to a placement, and gives the placement that they reach.

    The move that fits now and gains most for its size comes first. Where none fits, an item of the cycle goes to a third bin
    for a while. A move that never fits is left out, so the result may fall short of the target. No move is added after `end`.
    """
    state = State(problem, problem.current)
    waiting = {int(item) for item in np.flatnonzero((target != problem.current) & (target >= 0) & (problem.current >= 0))}
    path: Path = []
    parked: set[int] = set()
    worth = {item: _gain(state, item, int(target[item])) / float(problem.arrival[item]) for item in waiting}
    queue: dict[int, list[int]] = {}
    for item in sorted(waiting, key=lambda i: (-worth[i], i)):
        queue.setdefault(int(target[item]), []).append(item)
    # Only a bin that an item left can take one that it could not take before.
    changed = sorted(queue, key=lambda b: -worth[queue[b][0]])
    while waiting and clock() < end:
        while changed and clock() < end:
            where = changed.pop(0)
            for item in list(queue.get(where, ())):
                if _arrives_at(state, item, where):
                    path.append((item, where))
                    waiting.discard(item)
                    queue[where].remove(item)
                    changed.append(state.move(item, where))
        left = _make_way(state, waiting, target, parked, path)
        if left < 0:
            left = _park(state, waiting - parked, path)
        if left < 0:
            break
        item = path[-1][0]
        parked.add(item)
        if item not in waiting:
            waiting.add(item)
            queue.setdefault(left, []).append(item)
        changed.append(left)
    if waiting & parked:
        _bring_back(problem, state, waiting & parked, path)
    return path, state


def _arrives_at(state: State, item: int, where: int) -> bool:
    problem = state.problem
    here = state.take(item)
    room = state.need[where] + problem.arrival[item] <= problem.capacity[where] + SLACK
    ok = bool(room) and state.fits_at(item, where, state.gain(item, where))
    state.put(item, here)
    return ok


def _gain(state: State, item: int, where: int) -> float:
    here = int(state.bin_of[item])
    now = state.gain(item, here)
    state.take(item)
    then = state.gain(item, where)
    state.put(item, here)
    return then - now


def _make_way(state: State, waiting: set[int], target: Ints, parked: set[int], path: Path) -> int:
    """Moves the smallest item off a target without which a waiting one arrives there, and gives that bin.

    It may be one that is where it should be: of the items of a full bin the one that shares least must come last.
    """
    problem = state.problem
    missing = {item: state.need[target[item]] + problem.arrival[item] - problem.capacity[target[item]] for item in waiting}
    for item in sorted(waiting, key=lambda i: (missing[i], i))[:MOST_BLOCKED]:
        where = int(target[item])
        here = np.flatnonzero((state.bin_of == where) & problem.movable)
        for other in here[np.argsort(problem.arrival[here], kind="stable")].tolist():
            if other in parked:
                continue
            ok = may_arrive(state, other)
            state.take(other)
            is_open = ok.any() and _arrives_at(state, item, where)
            state.put(other, where)
            if is_open:
                return _to_third(state, other, ok, path)
    return -1


def _to_third(state: State, item: int, ok: npt.NDArray[np.bool_], path: Path) -> int:
    """Moves an item to the bin with most room among these, and gives the bin that it left."""
    room = np.where(ok, state.problem.capacity - state.need, -np.inf)
    path.append((item, int(np.argmax(room))))
    return state.move(*path[-1])


def _park(state: State, candidates: set[int], path: Path) -> int:
    """Moves the smallest item that has a third bin to go to, and gives the bin that it left."""
    for item in sorted(candidates, key=lambda i: (state.problem.arrival[i], i)):
        ok = may_arrive(state, item)
        if ok.any():
            return _to_third(state, item, ok, path)
    return -1


def _bring_back(problem: Problem, state: State, parked: set[int], path: Path) -> None:
    """Brings items home that were parked for nothing, where they fit."""
    for item in sorted(parked):
        home = int(problem.current[item])
        if state.bin_of[item] != home and may_arrive(state, item)[home]:
            path.append((item, home))
            state.move(item, home)


def best_moves(problem: Problem, goal: Goal, budget: Budget, end: float = np.inf, clock: Clock = time.monotonic) -> Path:
    """Chooses single moves one after the other, always the one that is worth most for its size.

    Each is possible when its turn comes, so the order is one in which no bin overflows. None is chosen after `end`.
    """
    state = State(problem, problem.current)
    path: Path = []
    moved = 0.0
    heap = [(-np.inf, int(i)) for i in np.flatnonzero(problem.movable & (problem.current >= 0))]
    while len(path) < budget.moves and heap and clock() < end:
        # A stale score is mostly an upper bound: take the largest, score it again, and act if it is still the largest.
        _, item = heapq.heappop(heap)
        size = float(problem.toll[item])
        if moved + size > budget.pages:
            continue
        worth = worth_of_moves(state, item, goal)
        where = int(np.argmax(worth))
        score = float(worth[where]) / max(size, 1.0)
        if score <= LEAST_GAIN:
            continue
        if heap and score < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-score, item))
            continue
        path.append((item, where))
        state.move(item, where)
        moved += size
    return path


@dataclass(frozen=True)
class Score:
    """The worth of a placement and of the moves to it. Faults count before all else."""

    faults: float
    value: float

    def is_above(self, other: "Score") -> bool:
        """Says whether it is better than another by more than rounding."""
        if abs(self.faults - other.faults) > LEAST_FAULT:
            return self.faults < other.faults
        return self.value > other.value + LEAST_GAIN


def score_of(state: State, goal: Goal, moved: float = 0.0) -> Score:
    """Scores a placement that moves with such a sum of tolls reach."""
    return Score(float(faults_of_bins(state).sum()), goal.value(state) - goal.price * moved)


def best_part(problem: Problem, path: Path, goal: Goal, budget: Budget) -> tuple[Path, Score]:
    """Cuts moves where the budget ends or where their score is highest, whichever comes first, and gives that score."""
    state, moved = State(problem, problem.current), 0.0
    length, best = 0, score_of(state, goal)
    has_faults = best.faults > 0
    for number, (item, where) in enumerate(path[: budget.moves], 1):
        moved += float(problem.toll[item])
        if moved > budget.pages + SLACK:
            break
        state.move(item, where)
        # No move makes a fault, so where none was there is none.
        score = score_of(state, goal, moved) if has_faults else Score(0.0, goal.value(state) - goal.price * moved)
        if score.is_above(best):
            length, best = number, score
    return path[:length], best


def shorten(problem: Problem, path: Path, goal: Goal, budget: Budget, end: float, clock: Clock) -> Path:
    """Leaves out moves without which the others may still be made and reach as much for less, such as a way by a third bin.

    Each trial makes all other moves. No trial is begun after `end`.
    """
    best, score = best_part(problem, path, goal, budget)
    number = len(best) - 1
    while number >= 0 and clock() < end:
        for way in _ways_without(best, number):
            if _may_be_made(problem, way):
                found, other = best_part(problem, way, goal, budget)
                if other.is_above(score):
                    best, score = found, other
                    break
        number = min(number, len(best)) - 1
    return best


def _ways_without(path: Path, number: int) -> list[Path]:
    """Gives the moves without one, and with its item going to its next bin at once."""
    item = path[number][0]
    ways = [path[:number] + path[number + 1 :]]
    later = next((at for at in range(number + 1, len(path)) if path[at][0] == item), None)
    if later is not None:
        ways.append([*path[:number], path[later], *path[number + 1 : later], *path[later + 1 :]])
    return ways


def _may_be_made(problem: Problem, path: Iterable[tuple[int, int]]) -> bool:
    state = State(problem, problem.current)
    for item, where in path:
        if where == state.bin_of[item] or not _arrives_at(state, item, where):
            return False
        state.move(item, where)
    return True


def carry_out(problem: Problem, path: Path) -> tuple[list[Move], State]:
    """Gives what each move gains, and the placement that all reach."""
    state = State(problem, problem.current)
    last = {item: number for number, (item, _) in enumerate(path)}
    moves = []
    for number, (item, where) in enumerate(path):
        gain = _gain(state, item, where)
        moves.append(Move(item, state.move(item, where), where, gain, number < last[item]))
    return moves, state
