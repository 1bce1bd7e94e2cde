"""Which guest holds which shared content: a sparse matrix with a row for each guest."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array

HELD_OUT = 0.25
"""The part of sampled contents that plans are made without, one over a power of two."""


@dataclass(frozen=True)
class Incidence:
    """The sets of shared contents of all guests. Each content stands for `weight` pages."""

    starts: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int32]
    number: int
    """The number of different contents."""
    weight: float
    deviations: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    """For each entry of `contents` the guest's part of the error of sampling (`estimate.saved_together`); empty if nothing is promised."""
    copies: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    """For each entry of `contents` the guest's steady copies; empty if nothing is promised."""
    held_out: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """For each content whether plans are made without it; empty if they are made with all."""

    def of(self, guest: int) -> npt.NDArray[np.int32]:
        """Gives the contents of a guest."""
        return self.contents[self.starts[guest] : self.starts[guest + 1]]

    def is_held_out(self) -> npt.NDArray[np.bool_]:
        """Says of each content whether plans are made without it, so that it can say without bias what they change."""
        return self.held_out if len(self.held_out) else np.zeros(self.number, dtype=bool)

    def change_weights(self) -> npt.NDArray[np.float64]:
        """Gives for each content what it weighs where a plan changes something: all do, if none is held out."""
        held_out = self.is_held_out()
        return np.where(held_out, 1.0 / HELD_OUT, 0.0) if held_out.any() else np.ones(self.number)

    def for_planning(self) -> "Incidence":
        """Leaves the contents out that are held out. The others stand for more pages."""
        held_out = self.is_held_out()
        if not held_out.any():
            return self
        kept = self._kept(~held_out, self.weight / (1.0 - HELD_OUT))
        return Incidence(kept.starts, kept.contents, kept.number, kept.weight)

    def _kept(self, keep: npt.NDArray[np.bool_], weight: float) -> "Incidence":
        """Keeps some contents, in their order, each of which then weighs so much."""
        entry = keep[self.contents]
        row = np.repeat(np.arange(self.guests), np.diff(self.starts))[entry]
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=self.guests))])
        contents = (np.cumsum(keep) - 1)[self.contents[entry]].astype(np.int32)
        deviations = self.deviations[entry] if len(self.deviations) else self.deviations
        copies = self.copies[entry] if len(self.copies) else self.copies
        held_out = self.held_out[keep] if len(self.held_out) else self.held_out
        return Incidence(starts, contents, int(keep.sum()), weight, deviations, copies, held_out)

    @property
    def guests(self) -> int:
        """Counts the guests."""
        return len(self.starts) - 1

    def holders(self) -> npt.NDArray[np.int64]:
        """Counts the guests of each content."""
        return np.bincount(self.contents, minlength=self.number)

    def matrix(self) -> "csr_array":
        """Gives the matrix with ones."""
        ones = np.ones(len(self.contents), dtype=np.int32)
        return csr_array((ones, self.contents, self.starts), shape=(self.guests, self.number))

    def common(self, guests: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """Counts the contents that each of all guests has in common with each of the given ones."""
        matrix = self.matrix()
        other = matrix if guests is None else matrix[guests]
        return np.asarray((matrix @ other.T).todense(), dtype=np.int64)

    def subset(self, guests: npt.NDArray[np.int64]) -> "Incidence":
        """Keeps these guests, in this order."""
        matrix = self.matrix()[guests]
        matrix.sort_indices()
        return Incidence(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), self.number, self.weight)

    def thinned(self, most: int) -> "Incidence":
        """Keeps at most so many contents, drawn by their numbers, which follow the hash; each then stands for more pages.

        The common samples of all guests stay common, so that sums over contents stay unbiased.
        """
        if self.number <= most:
            return self
        step = -(-self.number // most)
        return self._kept(np.arange(self.number) % step == 0, self.weight * step)


def mask_for(rows: int, most: int) -> int:
    """Gives the bits of fingerprints by which about `most` of so many rows are fetched at most. The bits of `HELD_OUT` are none of them."""
    every = 1 << max(0, (rows - 1) // most).bit_length()
    return (every - 1) * round(1 / HELD_OUT)


def from_answer(answer: pa.Table, guests: int, rate: float, mask: int = 0) -> Incidence:
    """Makes the matrix from the question `incidence` under this mask. Contents are numbered in the order of their fingerprints."""
    weight = (mask * HELD_OUT + 1) / rate
    guest = answer.column("guest").to_numpy()
    values, number = np.unique(answer.column("fingerprint").to_numpy(), return_inverse=True)
    order = np.lexsort((number, guest))
    starts = np.concatenate([[0], np.cumsum(np.bincount(guest, minlength=guests))])
    # The lowest bits of a fingerprint are as random as any.
    held_out = (values & (round(1 / HELD_OUT) - 1)) == 0 if rate < 1 else np.zeros(0, dtype=bool)
    deviations = answer.column("deviation").to_numpy().astype(np.float32)
    copies = answer.column("copies").to_numpy()[order]
    return Incidence(starts, number[order].astype(np.int32), len(values), weight, deviations[order], copies, held_out)
