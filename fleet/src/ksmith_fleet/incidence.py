"""Which guest holds which shared content: a sparse matrix with a row for each guest."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array


@dataclass(frozen=True)
class Incidence:
    """The sets of shared contents of all guests. Each content stands for `weight` pages."""

    starts: npt.NDArray[np.int64]
    contents: npt.NDArray[np.int32]
    number: int
    """The number of different contents."""
    weight: float

    def of(self, guest: int) -> npt.NDArray[np.int32]:
        """Gives the contents of a guest."""
        return self.contents[self.starts[guest] : self.starts[guest + 1]]

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
        keep = self.contents % step == 0
        row = np.repeat(np.arange(self.guests), np.diff(self.starts))[keep]
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=self.guests))])
        return Incidence(starts, self.contents[keep] // step, -(-self.number // step), self.weight * step)


def from_answer(answer: pa.Table, guests: int, rate: float) -> Incidence:
    """Makes the matrix from the question `incidence`. Contents are numbered in the order of their fingerprints."""
    guest = answer.column("guest").to_numpy()
    values, number = np.unique(answer.column("fingerprint").to_numpy(), return_inverse=True)
    order = np.lexsort((number, guest))
    starts = np.concatenate([[0], np.cumsum(np.bincount(guest, minlength=guests))])
    return Incidence(starts, number[order].astype(np.int32), len(values), 1.0 / rate)
