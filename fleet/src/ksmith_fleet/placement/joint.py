"""The exact search of a small cluster: all placements that moves reach, and the cheapest order of moves to the best one."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ksmith_fleet.placement.faults import LEAST_FAULT, faults_of_sets
from ksmith_fleet.placement.goal import Budget, Goal, Path
from ksmith_fleet.placement.problem import Floats, Ints, Problem
from ksmith_fleet.placement.state import LEAST_GAIN, SLACK, State, are_strangers

MOST_PLACEMENTS = 1 << 20
"""The most placements that are tried: ten guests on four hosts."""
MOST_ITEMS = 16
"""The most items that may move. Each bin has a table of all their sets."""

Bools = npt.NDArray[np.bool_]


def can_search(bins: int, items: int) -> bool:
    """Says whether a cluster is small enough."""
    return 0 < items <= MOST_ITEMS and bins >= 2 and bins**items <= MOST_PLACEMENTS


def search_jointly(state: State, items: Ints, bins: Ints, goal: Goal, budget: Budget) -> Path:
    """Finds the moves of these items among these bins that reach the best placement. All other items stay.

    A placement with fewer faults is better than any with more. Among those the goal decides, less the price of the moves. Each move finds
    its whole memory free on its target and breaks no rule there.
    """
    tables = _tables(state, items, bins, goal)
    place_of = {int(where): at for at, where in enumerate(bins)}
    start = np.array([place_of[int(state.bin_of[item])] for item in items], dtype=np.int64)
    path = _Walk(tables, state.problem.toll[items], goal.price).best(start, budget)
    return [(int(items[item]), int(bins[where])) for item, where in path]


@dataclass(frozen=True)
class _Tables:
    """For each bin and each set of items what the bin is worth with it, its faults, and bits of the items that may arrive."""

    worth: Floats
    faults: Floats
    may_arrive: npt.NDArray[np.int32]


def _tables(state: State, items: Ints, bins: Ints, goal: Goal) -> _Tables:
    problem, count = state.problem, len(items)
    sets = 1 << count
    held = ((np.arange(sets)[:, None] >> np.arange(count)) & 1).astype(bool)
    here = [state.take(int(item)) for item in items]
    worth, faults = np.zeros((len(bins), sets)), np.zeros((len(bins), sets))
    may_arrive = np.zeros((len(bins), sets), dtype=np.int32)
    lawful = [state.lawful(int(item)) for item in items]
    strange = [_strangers(problem, items, int(item)) for item in items]
    for at, where in enumerate(bins.tolist()):
        need = state.need[where] + held @ problem.own[items] - _shared(state, items, where)
        used = state.used[where] + held.astype(np.float64) @ problem.demand[items]
        worth[at] = goal.worth(problem, need, state.load[where] + held.sum(axis=1), where)
        faults[at] = faults_of_sets(state, items, held, where, need, used)
        room = problem.capacity[where] + SLACK
        fits = (need <= room) & (used <= problem.limit[where] + SLACK).all(axis=1)
        for number, item in enumerate(items.tolist()):
            if lawful[number][where]:
                free = np.flatnonzero(~held[:, number] & ~held[:, strange[number]].any(axis=1))
                ok = fits[free | 1 << number] & (need[free] + problem.arrival[item] <= room)
                may_arrive[at, free[ok]] |= 1 << number
    for item, where in zip(items.tolist(), here, strict=True):
        state.put(item, where)
    return _Tables(worth, faults, may_arrive)


def _shared(state: State, items: Ints, where: int) -> Floats:
    """Gives what each set of the items shares on a bin, with each other and with what is there."""
    problem, count = state.problem, len(items)
    contents = [problem.incidence.of(int(item)) for item in items]
    everything = np.unique(np.concatenate(contents))
    holders = np.zeros(len(everything), dtype=np.int64)
    for number, one in enumerate(contents):
        holders[np.searchsorted(everything, one)] |= 1 << number
    # A content that is there already costs no frame. Each of the others costs one if the set has any of its holders.
    is_there = state.counts[everything, where] > 0
    inside = np.bincount(holders[~is_there], minlength=1 << count).astype(np.float64)
    numbers = np.arange(1 << count)
    for bit in range(count):
        with_bit = numbers[(numbers >> bit & 1) == 1]
        inside[with_bit] += inside[with_bit ^ (1 << bit)]
    # The contents of which no holder is in the set are those whose holders are all in its complement.
    new = inside[-1] - inside[::-1]
    held = ((numbers[:, None] >> np.arange(count)) & 1).astype(np.float64)
    surplus: Floats = held @ np.array([len(one) for one in contents], dtype=np.float64) - new
    return surplus * problem.page_value


def _strangers(problem: Problem, items: Ints, item: int) -> Bools:
    """Says for each of the items whether it must never share a bin with this one."""
    apart = are_strangers(int(problem.domain[item]), problem.domain[items])
    for group in problem.apart:
        if item in group:
            apart |= np.isin(items, group)
    apart &= items != item
    return apart


class _Walk:
    """All placements, each a number with a digit for each item: its bin."""

    def __init__(self, tables: _Tables, toll: Floats, price: float) -> None:
        self.tables, self.toll, self.price = tables, toll, price
        self.bins, self.items = len(tables.worth), len(toll)
        self.power = self.bins ** np.arange(self.items, dtype=np.int64)

    def best(self, start: Ints, budget: Budget) -> Path:
        """Gives the moves to the best placement."""
        first = int((start * self.power).sum())
        cost = np.full(self.bins**self.items, np.inf)
        cost[first] = 0.0
        frontier = np.array([first], dtype=np.int64)
        steps: list[tuple[Ints, Ints]] = []
        best = (*self._best_of(frontier, cost), 0)
        while len(frontier) and len(steps) < budget.moves:
            frontier, by = self._step(frontier, cost, budget.pages)
            steps.append((frontier, by))
            if len(frontier):
                faults, value, place = self._best_of(frontier, cost)
                is_equal = faults <= best[0] + LEAST_FAULT
                if faults < best[0] - LEAST_FAULT or (is_equal and value > best[1] + LEAST_GAIN):
                    best = (faults, value, place, len(steps))
        return self._path(best[2], steps[: best[3]])

    def _sets(self, placements: Ints) -> tuple[Ints, Ints]:
        """Gives the digits of placements, and the sets of items of each bin."""
        digits = placements // self.power[:, None] % self.bins
        bits = np.left_shift(1, np.arange(self.items))[:, None]
        return digits, np.array([((digits == where) * bits).sum(axis=0) for where in range(self.bins)])

    def _best_of(self, placements: Ints, cost: Floats) -> tuple[float, float, int]:
        """Gives faults, value and number of the best of these placements."""
        _, sets = self._sets(placements)
        faults = np.take_along_axis(self.tables.faults, sets, axis=1).sum(axis=0)
        value = np.take_along_axis(self.tables.worth, sets, axis=1).sum(axis=0) - self.price * cost[placements]
        at = int(np.argmax(np.where(faults <= faults.min() + LEAST_FAULT, value, -np.inf)))
        return float(faults[at]), float(value[at]), int(placements[at])

    def _step(self, frontier: Ints, cost: Floats, most: float) -> tuple[Ints, Ints]:
        """Makes one more move from each placement. Gives the placements that are reached at less cost than before, and each one's last move."""
        digits, sets = self._sets(frontier)
        so_far = cost[frontier]
        may = np.take_along_axis(self.tables.may_arrive, sets, axis=1)
        by = np.full(len(cost), -1, dtype=np.int32)
        for item in range(self.items):
            paid = so_far + self.toll[item]
            for source in range(self.bins):
                here = np.flatnonzero((digits[item] == source) & (paid <= most + SLACK))
                for target in range(self.bins):
                    if target == source:
                        continue
                    at = here[may[target, here] >> item & 1 == 1]
                    reached = frontier[at] + (target - source) * self.power[item]
                    better = paid[at] < cost[reached] - SLACK
                    cost[reached[better]] = paid[at][better]
                    by[reached[better]] = item * self.bins + source
        reached = np.flatnonzero(by >= 0)
        return reached, by[reached].astype(np.int64)

    def _path(self, place: int, steps: list[tuple[Ints, Ints]]) -> Path:
        path: Path = []
        for reached, by in reversed(steps):
            item, source = divmod(int(by[np.searchsorted(reached, place)]), self.bins)
            target = place // int(self.power[item]) % self.bins
            path.append((item, target))
            place += (source - target) * int(self.power[item])
        return path[::-1]
