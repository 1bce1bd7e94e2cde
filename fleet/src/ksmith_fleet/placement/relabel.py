"""Names the bins of a new placement so that moves to it cost as little as possible."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from ksmith_fleet.placement.problem import Ints, Problem
from ksmith_fleet.placement.state import ROUNDED, SLACK, State

MOST_BINS = 1 << 11
"""The bins of which names are found. Memory grows with the square of their number, and time with its cube."""


def relabel(problem: Problem, target: Ints) -> Ints:
    """Gives each set of items that shares a bin the bin that costs the fewest tolls, among those that have room for it.

    Bins need not be equal: a set may have any bin whose memory and limits it keeps to and that all its items may go to.
    """
    state = State(problem, target)
    placed = target >= 0
    # Rows are sets, by the bin that the target has them on. Columns are bins.
    ok = state.need[:, None] <= problem.capacity[None, :] + ROUNDED
    ok &= (state.used[:, None, :] <= problem.limit[None, :, :] + SLACK).all(axis=2)
    if problem.allowed is not None:
        for where in np.unique(target[placed]).tolist():
            ok[where] &= problem.allowed.all_of(np.flatnonzero(target == where))
    np.fill_diagonal(ok, True)
    stay = np.zeros((problem.bins, problem.bins))
    both = placed & (problem.current >= 0)
    # An item that must not move is worth more than all others together, and a bin that has no room more than that.
    total = 1.0 + float(problem.toll.sum())
    worth = np.where(problem.movable, problem.toll, total)
    np.add.at(stay, (target[both], problem.current[both]), worth[both])
    stay[~ok] -= (1.0 + problem.items) * total
    _, names = linear_sum_assignment(-stay)
    result = target.copy()
    result[placed] = names[target[placed]]
    return result
