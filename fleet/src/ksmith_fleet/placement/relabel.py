"""Names the bins of a new placement so that as many pages as possible stay where they are."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from ksmith_fleet.placement.problem import Ints, Problem
from ksmith_fleet.placement.state import ROUNDED, SLACK, State


def relabel(problem: Problem, target: Ints) -> Ints:
    """Gives each set of items that shares a bin the bin where most of its pages are, among those that have room for it.

    Bins need not be equal: a set may have any bin whose memory and limits it keeps to and that all its items may go to.
    """
    state = State(problem, target)
    placed = target >= 0
    # Rows are sets, by the bin that the target has them on. Columns are bins.
    ok = state.need[:, None] <= problem.capacity[None, :] + ROUNDED
    ok &= (state.used[:, None, :] <= problem.limit[None, :, :] + SLACK).all(axis=2)
    if problem.allowed is not None:
        refusals = np.zeros((problem.bins, problem.bins))
        np.add.at(refusals, target[placed], ~problem.allowed[placed])
        ok &= refusals == 0
    np.fill_diagonal(ok, True)
    stay = np.zeros((problem.bins, problem.bins))
    both = placed & (problem.current >= 0)
    # An item that must not move is worth more than all others together, and a bin that has no room more than that.
    total = 1.0 + float(problem.arrival.sum())
    worth = np.where(problem.movable, problem.arrival, total)
    np.add.at(stay, (target[both], problem.current[both]), worth[both])
    stay[~ok] -= (1.0 + problem.items) * total
    _, names = linear_sum_assignment(-stay)
    result = target.copy()
    result[placed] = names[target[placed]]
    return result
