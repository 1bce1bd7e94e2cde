"""What guests share and what hosts save, estimated from coordinated samples of contents."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ksmith_fleet.interval import Estimate, normal_interval, score_interval
from ksmith_fleet.model import Guest

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Alone:
    """For each guest what KSM saves if the guest is alone, in pages without zero pages."""

    contents: Numbers
    saved: Numbers


def common_pages(common: int, rate: float) -> Estimate:
    """Estimates the contents that two guests both hold: one frame is saved for each if they share a host."""
    return score_interval(common / rate, common * (1 - rate) / rate**2, rate)


def steady_pages(guests: Sequence[Guest]) -> Numbers:
    """Gives the nonzero pages of each guest that stay as they are between two looks."""
    return np.array([(guest.pages - guest.zero_pages) * (1.0 - guest.changing) for guest in guests])


def changing_variance(copies: Numbers, steady: Numbers, rate: float) -> float:
    """Gives the variance of a guest's changing part, `1 - sum(steady) / sum(copies)` over its sampled contents.

    A content is sampled with all its copies, so the part is a ratio of two sums over contents, and its variance by linearisation is
    `(1 - rate) * sum((steady - part * copies)^2) / sum(copies)^2` with the part that stays.
    """
    return float(changing_variances(np.zeros(len(copies), dtype=np.int32), copies, steady, 1, rate)[0])


def changing_variances(
    guest: npt.NDArray[np.int32], copies: npt.NDArray[np.number], steady: npt.NDArray[np.number], guests: int, rate: float
) -> Numbers:
    """Gives `changing_variance` of each guest, from the rows of all."""
    pages = np.bincount(guest, weights=copies, minlength=guests)
    some = np.maximum(pages, 1.0)
    stays = np.bincount(guest, weights=steady, minlength=guests) / some
    squares = np.bincount(guest, weights=(steady - stays[guest] * copies) ** 2, minlength=guests)
    variances: Numbers = (1 - rate) * squares / some**2
    return variances


def drift_pages(guests: Sequence[Guest]) -> float:
    """Gives the pages of which the sketch cannot say whether they merge: those that changed between its two looks.

    Some have settled when KSM comes, and as many others may have changed by then.
    """
    return float(sum((guest.pages - guest.zero_pages) * guest.changing for guest in guests))


def moving_variance(guests: Sequence[Guest]) -> float:
    """Gives the variance of the steady pages of all these guests."""
    return float(sum((guest.pages - guest.zero_pages) ** 2 * guest.changing_variance for guest in guests))


def alone(guests: Sequence[Guest], answer: pa.Table, rate: float) -> Alone:
    """Estimates what each guest saves by itself, from the question `alone`.

    `saved = steady_pages - frames / rate`. The surplus copies are not summed directly, since one content with many copies
    would decide the sum and may be missing from the sample.
    """
    contents = np.zeros(len(guests))
    frames = np.zeros(len(guests))
    pages = np.zeros(len(guests))
    which = answer.column("guest").to_numpy()
    contents[which] = answer.column("contents").to_numpy()
    frames[which] = answer.column("frames").to_numpy()
    pages[which] = answer.column("pages").to_numpy()
    known = pages if rate >= 1 else steady_pages(guests)
    return Alone(contents / rate, np.maximum(0.0, known - frames / rate))


def zero_saved(zero_pages: float, use_zero_pages: bool, max_sharing: int) -> float:
    """Gives the frames that merging zero pages frees: all with the kernel's zero page, else one of each full chain stays."""
    if zero_pages <= 0 or use_zero_pages:
        return max(0.0, zero_pages)
    return zero_pages - ceil(zero_pages / max_sharing)


def saved_together(
    guests: Sequence[Guest],
    frames: float,
    frames2: float,
    rate: float,
    use_zero_pages: bool,
    max_sharing: int,
    sampled_pages: float | None = None,
) -> Estimate:
    """Estimates what KSM saves on one host with these guests, in pages.

    `saved = zeros + steady_pages - frames / rate`, where `frames` sums `ceil(copies / max_sharing)` over the sampled
    contents and `frames2` the squares. The estimated part of the pages that change adds its variance, and these pages themselves widen
    the interval, since they may merge or not.
    """
    zeros = zero_saved(float(sum(guest.zero_pages for guest in guests)), use_zero_pages, max_sharing)
    steady = float(steady_pages(guests).sum())
    if rate >= 1 and sampled_pages is not None:
        steady = sampled_pages
    variance = frames2 * (1 - rate) / rate**2
    if rate < 1:
        variance += moving_variance(guests)
    drift = drift_pages(guests)
    return normal_interval(zeros + steady - frames / rate, variance, zeros + steady + drift, drift)
