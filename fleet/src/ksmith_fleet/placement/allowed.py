"""The bins that rules let items be on. Most items of a fleet have equal rules, so a row of bins is kept once for all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AllowedBins:
    """Says for each item and bin whether they may meet: classes, pins, closed hosts and NUMA nodes."""

    rows: Bools
    """The different rows, each with a value for each bin."""
    row_of: Ints
    """The row of each item."""

    @classmethod
    def from_rows(cls, rows: Iterable[Bools], bins: int) -> "AllowedBins":
        """Takes a row for each item, of which equal ones are kept once."""
        number: dict[bytes, int] = {}
        different: list[Bools] = []
        row_of = []
        for row in rows:
            at = number.setdefault(np.packbits(row).tobytes(), len(different))
            if at == len(different):
                different.append(row)
            row_of.append(at)
        kept = np.array(different, dtype=bool).reshape(len(different), bins)
        return cls(kept, np.array(row_of, dtype=np.int64))

    @property
    def is_everything(self) -> bool:
        """True if all items may be on all bins."""
        return bool(self.rows.all())

    def of(self, item: int) -> Bools:
        """Gives the row of an item, which is not to be changed."""
        row: Bools = self.rows[self.row_of[item]]
        return row

    def are(self, items: Ints, bins: Ints | int) -> Bools:
        """Says of each item whether it may be on the bin beside it."""
        found: Bools = self.rows[self.row_of[items], bins]
        return found

    def choices(self) -> Ints:
        """Counts the bins of each item."""
        counted: Ints = self.rows.sum(axis=1)[self.row_of]
        return counted

    def have_others(self, bins: Ints) -> Bools:
        """Says of each item whether it may be on any bin but the one beside it."""
        here = self.are(np.arange(len(self.row_of)), bins)
        others: Bools = np.greater(self.choices(), here)
        return others

    def all_of(self, items: Ints) -> Bools:
        """Gives the bins on which all of these items may be."""
        together: Bools = np.logical_and.reduce(self.rows[np.unique(self.row_of[items])], axis=0)
        return together

    def without(self, bins: Sequence[int], items: Bools) -> "AllowedBins":
        """Closes bins for some items."""
        closed = self.rows.copy()
        closed[:, list(bins)] = False
        return AllowedBins(np.concatenate([self.rows, closed]), np.where(items, self.row_of + len(self.rows), self.row_of))
