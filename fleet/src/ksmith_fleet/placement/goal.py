"""Goals of a plan: the worth of a placement, the price of moves, and budgets for them. Everything is in pages."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import numpy as np

from ksmith_fleet.placement.allowed import AllowedBins
from ksmith_fleet.placement.problem import Floats, Problem
from ksmith_fleet.placement.state import State

Clock = Callable[[], float]
"""Gives the time in seconds."""
Path = list[tuple[int, int]]
"""Moves in their order: an item, and the bin that it goes to."""
Kind = Literal["save", "relieve", "drain", "empty", "balance"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)

PRICE: Final = 0.5
"""Pages that a moved page must gain. So a plan moves two GiB at most for each that it gains."""
TIE: Final = 1e-6
"""The least price. Of two ways to one placement the shorter one is better, also where moves cost nothing."""
PRESSED_ABOVE: Final = 0.85
"""The part of a host's room above which it is pressed."""
RELIEF: Final = 20.0
"""Pages that one page less above that part is worth. A guest moves whole, and mostly for a small part of its memory."""
EVENNESS: Final = 5.0
"""Pages that one page is worth which moves from a host to one that is less full by all its room. At the usual price a tenth less full pays."""


@dataclass(frozen=True)
class Budget:
    """The most that a plan may move."""

    moves: int = 1 << 40
    pages: float = np.inf
    """Pages as tolls count them."""

    def after(self, problem: Problem, path: Path) -> "Budget":
        """Gives what is left after moves."""
        return Budget(self.moves - len(path), self.pages - float(sum(problem.toll[item] for item, _ in path)))


@dataclass(frozen=True)
class Goal:
    """A goal: a sum over bins of what each is worth with the items on it, less the price of the moves."""

    kind: Kind = "save"
    price: float = PRICE
    """Pages that each page of a toll costs."""
    may_empty: tuple[bool, ...] = ()
    """For each bin True if nothing but the problem's items is on it. Without entries all are such."""

    def worth(self, problem: Problem, need: Floats, load: np.ndarray, where: int | slice = slice(None)) -> Floats:
        """Gives the worth of bins that need so much and have so many items: all bins, or one bin with different loads."""
        if self.kind == "save":
            return -need
        # What is shared decides between placements that serve the goal equally, and is no reason for a move.
        slight = -need * min(1.0, self.price) / 2
        if self.kind == "drain":
            return slight
        room = np.maximum(problem.capacity, 1.0)[where]
        if self.kind == "relieve":
            return slight - RELIEF * np.maximum(0.0, need - PRESSED_ABOVE * room)
        if self.kind == "balance":
            worth: Floats = slight - EVENNESS * need * need / (2 * room)
            return worth
        can = np.array(self.may_empty or (True,) * problem.bins)[where]
        return slight + np.where((load == 0) & can, self.of_empty_bin(problem), 0.0)

    def of_empty_bin(self, problem: Problem) -> float:
        """Gives the worth of an empty bin: more than any moves cost that empty it."""
        return 1.0 + 2.0 * float(problem.arrival.sum()) + 3.0 * self.price * float(problem.toll.sum())

    def added(self, state: State, item: int, gains: Floats) -> Floats:
        """Gives for each bin what it is worth more with an item that is nowhere now and shares so much there."""
        problem = state.problem
        with_it = state.need + problem.own[item] - gains
        return self.worth(problem, with_it, state.load + 1) - self.worth(problem, state.need, state.load)

    def value(self, state: State) -> float:
        """Sums what all bins are worth."""
        return float(self.worth(state.problem, state.need, state.load).sum())


def without(problem: Problem, bins: list[int]) -> Problem:
    """Closes bins for all items that may move: those that are there now have to go."""
    allowed = problem.allowed or AllowedBins(np.ones((1, problem.bins), dtype=bool), np.zeros(problem.items, dtype=np.int64))
    return replace(problem, allowed=allowed.without(bins, problem.movable))
