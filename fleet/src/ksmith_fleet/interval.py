"""Intervals for sums over sampled contents.

Each content is in the sample with the chance `r`, the rate, independently of all others. With a term `t` for each content, `sum(t) / r`
over the sample has no bias (Horvitz and Thompson), its variance is `sum(t^2) * (1 - r) / r` over all contents, and
`sum(t^2) * (1 - r) / r^2` over the sample has no bias for that. `fleet/bench/intervals.py` says how often the intervals hold the truth.
"""

from dataclasses import dataclass
from math import inf, sqrt

Z95 = 1.959964
"""The normal quantile of a two-sided interval of 95 %."""


@dataclass(frozen=True)
class Estimate:
    """An expected value with the interval that holds the true one in 95 of 100 cases."""

    expected: float
    low: float
    high: float

    def times(self, factor: float) -> "Estimate":
        """Scales all three, for example from pages to bytes."""
        return Estimate(self.expected * factor, self.low * factor, self.high * factor)


def sum_variance(squares: float, rate: float) -> float:
    """Gives the variance of a sum over contents, from the squares of the terms of the sampled ones."""
    return squares * (1 - rate) / rate**2


def score_interval(terms: float, squares: float, rate: float, of: float | None = None, z: float = Z95) -> Estimate:
    """Gives the score interval of a sum of terms from 0 on, from the sums of the sampled terms and of their squares.

    The variance is taken as proportional to the true sum `X`: `(terms / r - X)^2 = z^2 * scale * X` with
    `scale = squares / of * (1 - r) / r`. Without any term, up to `z^2 * (1 - r) / r` contents may have been missed.
    `of` is the sum of the terms that `squares` is of, if that is not `terms`.
    """
    total = terms / rate
    if rate >= 1.0:
        return Estimate(total, total, total)
    of = terms if of is None else of
    scale = (squares / of if of > 0 else 1.0) * (1.0 - rate) / rate
    half = z * z * scale / 2
    spread = sqrt(half * half + 2 * half * total)
    return Estimate(total, max(0.0, total + half - spread), total + half + spread)


def normal_interval(expected: float, variance: float, most: float = inf, least: float = 0.0, z: float = Z95) -> Estimate:
    """Gives the normal interval of a difference, within `least` and `most`."""
    spread = z * sqrt(max(0.0, variance))

    def within(value: float) -> float:
        return min(max(value, least), max(most, least))

    return Estimate(within(expected), within(expected - spread), within(expected + spread))
