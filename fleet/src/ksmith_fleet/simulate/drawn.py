"""What the sketches of a known fleet say, made from draws of its patterns as reading the files would make it, to try many keys."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ksmith_fleet.estimate import Alone
from ksmith_fleet.incidence import HELD_OUT, Incidence
from ksmith_fleet.schema import HEAVY_ABOVE
from ksmith_fleet.simulate.known import Counts, KnownFleet, Numbers

MAX_SHARING = 256


@dataclass(frozen=True)
class Draw:
    """For each pattern its sampled contents: those that plans are made by, and those that are held out."""

    planned: Counts
    held_out: Counts

    @property
    def every(self) -> Counts:
        """Counts both."""
        return self.planned + self.held_out

    def with_new_held_out(self, fleet: KnownFleet, bits: int, random: np.random.Generator) -> "Draw":
        """Gives what another key could have, under which a plan would be the same."""
        rate = 2.0**-bits
        part = rate * HELD_OUT / (1.0 - rate * (1.0 - HELD_OUT))
        return Draw(self.planned, random.binomial(fleet.counts - self.planned, part))


def draw(fleet: KnownFleet, bits: int, random: np.random.Generator) -> Draw:
    """Draws the sampled contents at the rate `2^-bits`."""
    every = random.binomial(fleet.counts, 2.0**-bits)
    held_out = random.binomial(every, HELD_OUT)
    return Draw(every - held_out, held_out)


def stays(fleet: KnownFleet, drawn: Counts) -> Numbers:
    """Gives for each guest the part of its sampled pages that does not change."""
    sampled = drawn.astype(np.float64)
    return (sampled @ fleet.steady) / np.maximum(1.0, sampled @ fleet.copies)


def counted_alone(fleet: KnownFleet) -> Numbers:
    """Gives for each guest what its heavy contents save."""
    surplus = np.where(fleet.copies > HEAVY_ABOVE, fleet.steady - -(-fleet.steady // MAX_SHARING), 0.0)
    return fleet.counts.astype(np.float64) @ surplus


def drawn_alone(fleet: KnownFleet, drawn: Draw, bits: int, order: npt.NDArray[np.int64]) -> Alone:
    """Gives what the sketches say of the guests in this order, whose heavy contents are counted."""
    rate = 2.0**-bits
    every = drawn.every.astype(np.float64)
    steady = fleet.steady[:, order]
    surplus = np.where(fleet.copies[:, order] > HEAVY_ABOVE, 0.0, steady - -(-steady // MAX_SHARING))
    counted = counted_alone(fleet)[order]
    saved = counted + every @ surplus / rate
    incidence = drawn_incidence(fleet, drawn, bits, order)
    return Alone(every @ (steady > 0) / rate, np.maximum(0.0, saved), saved, counted, every @ surplus**2, incidence, MAX_SHARING)


def drawn_incidence(fleet: KnownFleet, drawn: Draw, bits: int, order: npt.NDArray[np.int64]) -> Incidence:
    """Gives the shared contents of the guests in this order. Those of a pattern have numbers beside each other."""
    steady, copies = fleet.steady[:, order], fleet.copies[:, order]
    shared = np.flatnonzero(((steady > 0).sum(axis=1) >= 2) & (drawn.every > 0))
    sizes = drawn.every[shared]
    first = np.concatenate([[0], np.cumsum(sizes)])
    guest, row = np.nonzero(steady[shared].T > 0)
    pattern = shared[row]
    deviations = np.where(copies[pattern, guest] > HEAVY_ABOVE, 0.0, steady[pattern, guest] - -(-steady[pattern, guest] // MAX_SHARING))
    entries = sizes[row]
    inside = np.arange(entries.sum()) - np.repeat(np.cumsum(entries) - entries, entries)
    starts = np.concatenate([[0], np.cumsum(np.bincount(guest, weights=entries, minlength=len(order)))]).astype(np.int64)
    held_out = np.arange(first[-1]) - np.repeat(first[:-1], sizes) < np.repeat(drawn.held_out[shared], sizes)
    return Incidence(
        starts,
        (np.repeat(first[:-1][row], entries) + inside).astype(np.int32),
        int(first[-1]),
        2.0**bits,
        np.repeat(deviations, entries).astype(np.float32),
        np.repeat(steady[pattern, guest], entries).astype(np.int32),
        held_out,
    )
