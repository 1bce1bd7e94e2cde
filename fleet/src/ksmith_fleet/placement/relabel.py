"""Names the bins of a new placement so that as many pages as possible stay where they are."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from ksmith_fleet.placement.problem import Ints, Problem


def relabel(problem: Problem, target: Ints) -> Ints:
    """Swaps the names of bins that are alike: of one capacity, and allowed to the same items."""
    result = target.copy()
    groups: dict[tuple[float, float, bytes], list[int]] = {}
    for b in range(problem.bins):
        allowed = b"" if problem.allowed is None else problem.allowed[:, b].tobytes()
        groups.setdefault((float(problem.capacity[b]), float(problem.cpu_capacity[b]), allowed), []).append(b)
    for alike in groups.values():
        index = np.full(problem.bins + 1, -1)
        index[alike] = np.arange(len(alike))
        stay = np.zeros((len(alike), len(alike)))
        both = (index[target] >= 0) & (index[problem.current] >= 0) & (target >= 0) & (problem.current >= 0)
        # An item that must not move is worth more than all others together.
        worth = np.where(problem.movable, problem.arrival, 1.0 + problem.arrival.sum())
        np.add.at(stay, (index[target[both]], index[problem.current[both]]), worth[both])
        old, new = linear_sum_assignment(-stay)
        names = np.arange(problem.bins)
        names[np.array(alike)[old]] = np.array(alike)[new]
        inside = np.isin(target, alike)
        result[inside] = names[target[inside]]
    return result
