"""The bound: memory that every placement needs, however good it is."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from ksmith_fleet.placement.problem import Floats, Problem


@dataclass(frozen=True)
class Bound:
    """Limits that no placement passes."""

    need: float
    """The least memory that all items need, in pages."""
    shared: float
    """The most that can be shared."""
    hosts: int
    """The least number of bins of the largest size."""
    shares: Floats
    """The least memory that each item takes of its bin."""


def bound(problem: Problem, rounds: int = 8) -> Bound:
    """Computes the bound by shares.

    On a bin with n holders of a content, each holder bears `1/n` of its frame. The bin's need is the sum of its items'
    shares. No bin takes more than `k` holders of a content, where `k` is the number of its holders with the smallest shares
    that the largest bin has room for. A larger share makes `k` smaller and a smaller `k` makes shares larger, so the two are
    computed in turns, from `k = holders` on. Every turn is a valid bound.
    """
    incidence = problem.incidence
    matrix = incidence.matrix()
    holders = incidence.holders().astype(np.float64)
    room = float(problem.capacity.max()) if problem.bins else 0.0
    most = np.maximum(holders, 1.0)
    shares = _shares(problem, matrix, most)
    for _ in range(rounds):
        fitting = _fitting(matrix, shares, room)
        tighter = np.clip(np.minimum(most, fitting), 1.0, None)
        if np.array_equal(tighter, most):
            break
        most = tighter
        shares = _shares(problem, matrix, most)
    least = float(shares.sum())
    hosts = int(np.ceil(least / room - 1e-9)) if room else 0
    return Bound(least, float(problem.own.sum()) - least, hosts, shares)


def _fitting(matrix: csr_array, shares: Floats, room: float) -> Floats:
    """Counts for each content its holders with the smallest shares that have room on one bin.

    Rows in the order of their shares make columns in that order, so no sort of all entries is needed.
    """
    order = np.argsort(shares, kind="stable")
    columns = matrix[order].tocsc()
    running = np.concatenate([[0.0], np.cumsum(np.maximum(shares[order], 0.0)[columns.indices])])
    size = np.diff(columns.indptr)
    fits = running[1:] - np.repeat(running[columns.indptr[:-1]], size) <= room + 1e-6
    return np.bincount(np.repeat(np.arange(len(size)), size), weights=fits, minlength=len(size)).astype(np.float64)


def _shares(problem: Problem, matrix: csr_array, most: Floats) -> Floats:
    shares: Floats = problem.own - problem.page_value * (matrix @ (1.0 - 1.0 / most))
    return shares


def most_items(problem: Problem, bound_: Bound) -> int:
    """Gives the number of items beyond which no placement fits into all bins together."""
    return int(np.searchsorted(np.cumsum(np.sort(bound_.shares)), float(problem.capacity.sum()) + 1e-6, side="right"))
