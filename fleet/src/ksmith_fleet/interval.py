"""Intervals for sums over sampled contents."""

from dataclasses import dataclass
from math import sqrt

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


def score_interval(total: float, variance: float, rate: float, z: float = Z95) -> Estimate:
    """Gives the score interval of a Horvitz-Thompson sum of nonnegative terms.

    The variance is taken as proportional to the true sum: `(total - X)^2 = z^2 * variance / total * X`. With a total of
    zero, up to `z^2 / rate` units may have been missed.
    """
    if rate >= 1.0:
        return Estimate(total, total, total)
    scale = variance / total if total > 0 else (1.0 - rate) / rate
    half = z * z * scale / 2
    spread = sqrt(half * half + 2 * half * total)
    return Estimate(total, max(0.0, total + half - spread), total + half + spread)


def normal_interval(expected: float, variance: float, most: float, drift: float = 0.0, z: float = Z95) -> Estimate:
    """Gives the normal interval of a difference, within 0 and `most`. It is wider by `drift` on both sides, an error that is no sampling's."""
    spread = z * sqrt(max(0.0, variance)) + drift

    def within(value: float) -> float:
        return min(max(value, 0.0), max(most, 0.0))

    return Estimate(within(expected), within(expected - spread), within(expected + spread))
