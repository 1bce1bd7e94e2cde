"""Faults of a placement as numbers, so that a repair knows its way. A fault counts one, and more the worse it is."""

import numpy as np
import numpy.typing as npt

from ksmith_fleet.placement.problem import Floats, Ints
from ksmith_fleet.placement.state import ALONE, ANY, ROUNDED, SLACK, State

LEAST_FAULT = 1e-9
"""The smallest difference between two sums of faults that counts."""


def faults_of_bins(state: State) -> Floats:
    """Gives the faults of each bin."""
    problem = state.problem
    faults: Floats = _over(state.need, problem.capacity, ROUNDED) + _over(state.used, problem.limit, SLACK).sum(axis=1)
    faults += np.maximum(0, state.apart - 1).sum(axis=0)
    faults += np.array([_mixed(held) for held in state.domains])
    if problem.allowed is not None:
        placed = np.flatnonzero(state.bin_of >= 0)
        bad = placed[~problem.allowed.are(placed, state.bin_of[placed])]
        faults += np.bincount(state.bin_of[bad], minlength=problem.bins)
    return faults


def faults_of_sets(state: State, items: Ints, held: npt.NDArray[np.bool_], where: int, need: Floats, used: Floats) -> Floats:
    """Gives the faults of one bin with each set of items, which are nowhere now. A row of `held` is a set."""
    problem = state.problem
    faults: Floats = _over(need, problem.capacity[where], ROUNDED) + _over(used, problem.limit[where], SLACK).sum(axis=1)
    for number, group in enumerate(problem.apart):
        faults += np.maximum(0, state.apart[number, where] + held[:, np.isin(items, group)].sum(axis=1) - 1)
    here = state.domains[where]
    domains = sorted({int(domain) for domain in problem.domain[items]} | set(here))
    counts = np.column_stack([here.get(domain, 0) + held[:, problem.domain[items] == domain].sum(axis=1) for domain in domains])
    some = np.array([domain != ANY for domain in domains])
    faults += np.maximum(0, (counts[:, some] > 0).sum(axis=1) - 1)
    faults += np.maximum(0, counts[:, np.array(domains) == ALONE].sum(axis=1) - 1)
    if problem.allowed is not None:
        faults += held @ (~problem.allowed.are(items, where)).astype(np.float64)
    return faults


def _over(value: Floats, limit: Floats, slack: float) -> Floats:
    over = value > limit + slack
    # An endless limit is never passed.
    size = np.where(np.isfinite(limit), np.maximum(1.0, limit), 1.0)
    return np.where(over, 1.0 + (value - np.where(over, limit, value)) / size, 0.0)


def _mixed(held: dict[int, int]) -> int:
    return max(0, len([domain for domain in held if domain != ANY]) - 1) + max(0, held.get(ALONE, 0) - 1)
