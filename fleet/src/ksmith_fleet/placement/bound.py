"""The bound: memory that every placement needs, however good it is."""

from dataclasses import dataclass

import numpy as np

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
    holders = incidence.holders().astype(np.float64)
    room = float(problem.capacity.max()) if problem.bins else 0.0
    item_of = np.repeat(np.arange(problem.items), np.diff(incidence.starts))
    most = np.maximum(holders, 1.0)
    shares = _shares(problem, item_of, most)
    for _ in range(rounds):
        # Sort the holders of each content by their shares, and count how many fit.
        order = np.lexsort((shares[item_of], incidence.contents))
        content = incidence.contents[order]
        running = np.cumsum(np.maximum(shares[item_of][order], 0.0))
        begin = np.searchsorted(content, np.arange(incidence.number))
        before = np.where(begin > 0, running[np.maximum(begin - 1, 0)], 0.0)
        fits = running - before[content] <= room + 1e-6
        fitting = np.bincount(content, weights=fits, minlength=incidence.number)
        tighter = np.clip(np.minimum(most, fitting), 1.0, None)
        if np.array_equal(tighter, most):
            break
        most = tighter
        shares = _shares(problem, item_of, most)
    least = float(shares.sum())
    hosts = int(np.ceil(least / room - 1e-9)) if room else 0
    return Bound(least, float(problem.own.sum()) - least, hosts, shares)


def _shares(problem: Problem, item_of: np.ndarray, most: Floats) -> Floats:
    saved = (1.0 - 1.0 / most)[problem.incidence.contents]
    return problem.own - problem.page_value * np.bincount(item_of, weights=saved, minlength=problem.items)


def most_items(problem: Problem, bound_: Bound) -> int:
    """Gives the number of items beyond which no placement fits into all bins together."""
    return int(np.searchsorted(np.cumsum(np.sort(bound_.shares)), float(problem.capacity.sum()) + 1e-6, side="right"))
