"""What guests share and what hosts save, estimated from coordinated samples of contents."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ksmith_fleet.heavy import heavy_saved
from ksmith_fleet.incidence import HELD_OUT, Incidence
from ksmith_fleet.interval import Estimate, normal_interval, score_interval, sum_variance
from ksmith_fleet.model import Guest

Numbers = npt.NDArray[np.float64]
Bins = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Alone:
    """For each guest what KSM saves if the guest is alone, in pages without zero pages."""

    contents: Numbers
    saved: Numbers
    unbiased: Numbers
    """As `saved`, but below 0 where chance has it so: sums of many guests then have no bias."""
    counted: Numbers
    """The part of `unbiased` that is counted and not sampled: that of heavy contents. NaN: nothing is."""
    squares: Numbers
    """The sum of squared deviations over the sampled contents of each guest."""
    incidence: Incidence
    """The shared contents, with the deviation of each guest's copies."""
    max_sharing: int
    """The pages that a frame takes."""


def common_pages(common: int, rate: float) -> Estimate:
    """Estimates the contents that two guests both hold: one frame is saved for each if they share a host."""
    return score_interval(common, common, rate)


def shared_on_bins(incidence: Incidence, like: int, bin_of: Bins, bins: int) -> list[Estimate]:
    """Estimates what one more guest like another would share with the guests of each bin; -1 is none.

    The bin that is chosen shares most, in part by chance, so the contents are those by which none was chosen.
    """
    held_out = incidence.is_held_out()
    part = HELD_OUT if held_out.any() else 1.0
    is_held = np.zeros(incidence.number, dtype=bool)
    is_held[incidence.of(like)] = True
    if part < 1.0:
        is_held &= held_out
    where = np.repeat(bin_of, np.diff(incidence.starts))
    counted = is_held[incidence.contents] & (where >= 0)
    cells = np.unique(where[counted] * incidence.number + incidence.contents[counted])
    common = np.bincount(cells // max(1, incidence.number), minlength=bins).tolist()
    return [common_pages(number, part / incidence.weight) for number in common]


def steady_pages(guests: Sequence[Guest]) -> Numbers:
    """Gives the nonzero pages of each guest that stay as they are between two looks."""
    return np.array([(guest.pages - guest.zero_pages) * (1.0 - guest.changing) for guest in guests])


def changing_pages(guests: Sequence[Guest]) -> float:
    """Gives the pages that changed between the sketch's two looks. No interval covers them.

    Some have settled when KSM comes, and as many others may have changed by then.
    """
    return float(sum((guest.pages - guest.zero_pages) * guest.changing for guest in guests))


def alone(guests: Sequence[Guest], answer: pa.Table, rate: float, incidence: Incidence, max_sharing: int) -> Alone:
    """Estimates what each guest saves by itself, from the question `alone`.

    Where heavy contents are counted, `saved = what these save + surplus / rate`, where `surplus` sums the copies beyond the frames of the
    other sampled contents. Memory that no content has twice is not in it. Else `saved = steady_pages - frames / rate`: one content with many
    copies would decide the sum of the surplus and may be missing from the sample.
    """
    columns = {name: np.zeros(len(guests)) for name in ("contents", "frames", "pages", "surplus", "squares")}
    which = answer.column("guest").to_numpy()
    for name, values in columns.items():
        values[which] = answer.column(name).to_numpy()
    known = columns["pages"] if rate >= 1 else steady_pages(guests)
    counted = np.array([np.nan if guest.heavy is None else heavy_saved(guest, max_sharing) for guest in guests], dtype=np.float64)
    saved = np.where(np.isnan(counted), known - columns["frames"] / rate, counted + columns["surplus"] / rate)
    return Alone(columns["contents"] / rate, np.maximum(0.0, saved), saved, counted, columns["squares"], incidence, max_sharing)


def zero_saved(zero_pages: float, use_zero_pages: bool, max_sharing: int) -> float:
    """Gives the frames that merging zero pages frees: all with the kernel's zero page, else one of each full chain stays."""
    if zero_pages <= 0 or use_zero_pages:
        return max(0.0, zero_pages)
    return zero_pages - ceil(zero_pages / max_sharing)


def saved_together(
    guests: Sequence[Guest], alone: Numbers, counted: Numbers, joined: float, squares: float, rate: float, joined_of_squares: float | None = None
) -> Estimate:
    """Estimates what KSM saves on one host with these guests, in pages without zero pages.

    `saved = sum(alone) + joined / rate`: what each guest saves by itself (`Alone.unbiased`), and the frames that sampled contents of several
    guests save besides. A content with `steady` pages in each guest adds its *deviation* to the error of sampling: `joined`, and for each
    guest 0 if it is heavy there, else `steady - f` with the guest's frames `f`; in a guest without counted contents it is
    `steady - R * copies - f`, where `R = sum(steady) / sum(copies)` is the part of its pages that stays. `squares` sums the squared
    deviations. If all guests have counted their heavy contents, no deviation is below 0, and the interval is a score interval.
    `joined_of_squares` stands for `joined` in the sum that `squares` is of, if that is another.
    """
    expected, most = float(alone.sum()) + joined / rate, float(steady_pages(guests).sum())
    if np.isnan(counted).any():
        return normal_interval(expected, sum_variance(squares, rate), most)
    exact = float(counted.sum())
    terms = (expected - exact) * rate
    of = terms if joined_of_squares is None else terms - joined + joined_of_squares
    sampled = score_interval(max(0.0, terms), squares, rate, of)
    return Estimate(*(min(exact + value, most) for value in (sampled.expected, sampled.low, sampled.high)))


@dataclass(frozen=True)
class PlacedSums:
    """For each host sums over the contents that its guests share, in pages. Squares count each sampled content once."""

    shared: Numbers
    """The frames that its guests save together."""
    shared_by_all: Numbers
    """The same by all contents, also those that the plan was made by: the sum that `squares` is of."""
    squares: Numbers
    """The squared deviations of its contents, above those of its guests alone."""
    change_squares: Numbers
    """The squared deviations of what the plan changes."""


def placed_sums(incidence: Incidence, before: Bins, after: Bins, host_of: Bins, rate: float, max_sharing: int) -> PlacedSums:
    """Sums what hosts share once guests have gone from the bins `before` to those `after`; -1 is none. The bin `b` is on the host `host_of[b]`.

    A content that several guests of a bin hold takes fewer frames there than in the guests alone, so its deviation is the sum of theirs
    and of these frames. A plan has the placement that looks best, in part by chance. So what the host shares after it is taken from the
    contents alone that it was not made by. What the host shares before it, by all contents, is the control variate.
    """
    guest = np.repeat(np.arange(incidence.guests), np.diff(incidence.starts))
    was, now = before[guest] >= 0, after[guest] >= 0
    old = before[guest][was] * incidence.number + incidence.contents[was]
    new = after[guest][now] * incidence.number + incidence.contents[now]
    keys, which = np.unique(np.concatenate([old, new]), return_inverse=True)
    at_old, at_new = which[: len(old)], which[len(old) :]
    # A host's bins are NUMA nodes that merge apart, and whose errors have the same contents.
    bins, contents = np.divmod(keys, max(1, incidence.number))
    at_host, of_host = np.unique(host_of[bins] * incidence.number + contents, return_inverse=True)
    host, content = np.divmod(at_host, max(1, incidence.number))
    hosts = int(host_of.max()) + 1

    def on_hosts(values: Numbers | Bins) -> Numbers:
        return np.asarray(np.bincount(of_host, weights=values, minlength=len(at_host)), np.float64)

    def summed(values: Numbers) -> Numbers:
        return np.asarray(np.bincount(host, weights=values, minlength=hosts), np.float64)

    deviations = incidence.deviations[now].astype(np.float64)
    own = on_hosts(np.bincount(at_new, weights=deviations, minlength=len(keys)))
    own_squares = on_hosts(np.bincount(at_new, weights=deviations**2, minlength=len(keys)))
    shared_old = on_hosts(_joined(at_old, incidence.copies[was], len(keys), max_sharing))
    shared_new = on_hosts(_joined(at_new, incidence.copies[now], len(keys), max_sharing))
    # The coefficient with the least variance. Without it a host that loses all its guests would promise the difference of two errors.
    slope = summed(shared_old * shared_new) / np.maximum(summed(shared_old**2), 1e-9)
    control = np.clip(slope, 0.0, 1.0)[host] * shared_old
    rest = shared_new - control
    # Of the contents that guests share, each fetched one stands for so many sampled ones. Both that and holding some out are choices of
    # their own, of which the variance is not less because many contents are sampled.
    step, missed = incidence.weight * rate, 1.0 - rate if rate < 1 else 1.0
    # A few contents stand for the changes of all. All say how much these vary, or a low estimate would come with a narrow interval.
    held_out = (1.0 / HELD_OUT - 1.0) / missed if incidence.is_held_out().any() else 0.0
    fetched = (step - rate) / (step * missed) if rate < 1 else 1.0
    squares = step * (own**2 - own_squares) + 2 * step * own * shared_new + step**2 * (fetched * shared_new**2 + held_out * rest**2)
    return PlacedSums(
        shared=summed(control + incidence.change_weights()[content] * rest) * incidence.weight,
        shared_by_all=summed(shared_new) * incidence.weight,
        squares=summed(squares),
        change_squares=summed(fetched * (shared_new - shared_old) ** 2 + held_out * rest**2) * step**2,
    )


def _joined(which: Bins, copies: npt.NDArray[np.int32], keys: int, max_sharing: int) -> Numbers:
    """Gives for each content of a bin the frames that its guests, which have these copies, save besides what they save apart."""
    apart = np.bincount(which, weights=np.ceil(copies / max_sharing), minlength=keys)
    joined = apart - np.ceil(np.bincount(which, weights=copies, minlength=keys) / max_sharing)
    return np.asarray(joined, dtype=np.float64)
