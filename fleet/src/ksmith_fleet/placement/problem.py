"""A placement problem: items with sets of contents, and bins with memory. All memory is in pages."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ksmith_fleet.incidence import Incidence
from ksmith_fleet.placement.allowed import AllowedBins

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CPU, CONFIGURED = 0, 1
"""Columns of demands and limits."""
UNITS = ("vCPUs", "pages of configured memory")
"""Units of these columns."""


@dataclass(frozen=True)
class Problem:
    """What a placement must respect. An item is a guest, or guests that must stay together.

    The memory that a set S of items needs on a bin is
    `need(S) = sum(own) - kept * weight * sum over contents of (holders in S - 1)`,
    where `kept = 1 - divergence` is the part of the savings that is relied on.
    """

    own: Floats
    """What each item needs if it is alone."""
    arrival: Floats
    """What each item needs when it arrives, before KSM has merged any of it."""
    toll: Floats
    """Pages that a move of each item counts as: those that arrive, and for guests that bear a pause ill a multiple of them."""
    incidence: Incidence
    kept: float
    capacity: Floats
    """The memory of each bin that items may use."""
    demand: Floats
    """For each item its virtual CPUs and its configured memory in pages, in the columns `CPU` and `CONFIGURED`."""
    limit: Floats
    """For each bin the most of both that its items may have together."""
    domain: Ints
    """Items of different domains never share a bin. -1 shares with none, -2 with all."""
    apart: tuple[Ints, ...]
    """Groups of items of which no two share a bin."""
    allowed: AllowedBins | None
    """The bins that rules let each item be on. `None` allows all."""
    movable: npt.NDArray[np.bool_]
    current: Ints
    """The bin of each item now, or -1."""

    @property
    def items(self) -> int:
        """Counts the items."""
        return len(self.own)

    @property
    def bins(self) -> int:
        """Counts the bins."""
        return len(self.capacity)

    @property
    def page_value(self) -> float:
        """Gives the pages that one content saves in the sums of `need`."""
        return self.kept * self.incidence.weight
