"""A placement as it is being made, with the memory that each bin needs."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ksmith_fleet.placement.problem import UNITS, Floats, Ints, Problem

ALONE = -1
"""The domain of an item that shares a bin with none."""
ANY = -2
"""The domain of an item where no domains are in force."""
MIXED = -3
"""The domain of a bin with items of several domains, which is a fault."""
SLACK = 1e-6
"""Pages by which a new sum may differ from a limit by rounding alone."""
ROUNDED = 1e-3
"""Pages by which a sum that was changed many times may differ."""
LEAST_GAIN = 1e-9
"""Pages that count as more than nothing when two gains are compared."""

BYTES_OF_CELL = 2.125
"""What a placement keeps of each content and bin: a number and a bit."""
MOST_IN_BYTE = 255
"""Rows of bits with a sum that fits into one byte."""


def are_strangers(domain: int, others: Ints) -> npt.NDArray[np.bool_]:
    """Says for each domain of other items whether one of this domain must never share a bin with them."""
    strange: npt.NDArray[np.bool_] = (others != ANY) & ((others != domain) | (domain == ALONE))
    return strange if domain != ANY else np.zeros_like(strange)


class State:
    """Items on bins. `put` and `take` keep all sums up to date; neither checks a constraint."""

    def __init__(self, problem: Problem, bins: Ints | None = None) -> None:
        """Begins with an empty placement, or with the given one."""
        self.problem = problem
        self.bin_of = np.full(problem.items, -1, dtype=np.int64)
        self.counts = np.zeros((problem.incidence.number, problem.bins), dtype=np.uint16)
        # The bits of a row say which bins have the content. A sum over rows of bits reads a sixteenth of what one over `counts` does.
        self._held = np.zeros((problem.incidence.number, -(-problem.bins // 8)), dtype=np.uint8)
        self.need: Floats = np.zeros(problem.bins)
        self.used: Floats = np.zeros(problem.limit.shape)
        self.load = np.zeros(problem.bins, dtype=np.int64)
        self.domains: list[dict[int, int]] = [{} for _ in range(problem.bins)]
        self.domain: Ints = np.full(problem.bins, ANY, dtype=np.int64)
        self._groups: list[list[int]] = [[] for _ in range(problem.items)]
        self.apart = np.zeros((len(problem.apart), problem.bins), dtype=np.int32)
        for number, group in enumerate(problem.apart):
            for item in group:
                self._groups[int(item)].append(number)
        if bins is not None:
            for item, where in enumerate(bins):
                if where >= 0:
                    self.put(item, int(where))

    def gains(self, item: int) -> Floats:
        """Gives for each bin the pages that the item would share there."""
        contents = self.problem.incidence.of(item)
        shared: Floats = np.zeros(self.problem.bins)
        for begin in range(0, len(contents), MOST_IN_BYTE):
            bits = np.unpackbits(self._held[contents[begin : begin + MOST_IN_BYTE]], axis=1, count=self.problem.bins)
            shared += np.add.reduce(bits, axis=0, dtype=np.uint8)
        return shared * self.problem.page_value

    def gain(self, item: int, where: int) -> float:
        """Gives the pages that the item shares, or would share, with the other items of a bin."""
        least = 1 if self.bin_of[item] == where else 0
        rows = self.counts[self.problem.incidence.of(item), where]
        return float(np.count_nonzero(rows > least)) * self.problem.page_value

    def fits(self, item: int, gains: Floats) -> npt.NDArray[np.bool_]:
        """Says for each bin whether the item may go there."""
        problem = self.problem
        ok: npt.NDArray[np.bool_] = self.need + problem.own[item] - gains <= problem.capacity + SLACK
        ok &= (self.used + problem.demand[item] <= problem.limit + SLACK).all(axis=1)
        return ok & self.lawful(item)

    def receives(self, item: int, gains: Floats) -> npt.NDArray[np.bool_]:
        """Says for each bin whether the item may move there now. It arrives unmerged, so that its whole memory must be free."""
        problem = self.problem
        room: npt.NDArray[np.bool_] = self.need + problem.arrival[item] <= problem.capacity + SLACK
        return room & self.fits(item, gains)

    def may_stay(self, item: int, gains: Floats) -> npt.NDArray[np.bool_]:
        """Says for each bin whether the item may be there in a placement that moves are to reach: only where it is now needs no room to arrive.

        The last item that arrives on a bin finds all others there. An item that is nowhere now may be wherever it fits.
        """
        problem = self.problem
        home = int(problem.current[item])
        if home < 0:
            return self.fits(item, gains)
        ok = self.receives(item, gains)
        if not ok[home] and (problem.current[self.bin_of == home] == home).all():
            ok[home] = self.fits_at(item, home, float(gains[home]))
        return ok

    def lawful(self, item: int) -> npt.NDArray[np.bool_]:
        """Says for each bin whether the rules let the item go there, if it has room."""
        problem = self.problem
        domain = problem.domain[item]
        ok: npt.NDArray[np.bool_] = np.ones(problem.bins, dtype=bool)
        if domain != ANY:
            ok &= (self.load == 0) | ((self.domain == domain) & (domain != ALONE))
        if problem.allowed is not None:
            ok &= problem.allowed.of(item)
        for group in self._groups[item]:
            ok &= self.apart[group] == 0
        return ok

    def fits_at(self, item: int, where: int, gain: float) -> bool:
        """Says whether an item that is nowhere may go to one bin."""
        problem = self.problem
        if self.need[where] + problem.own[item] - gain > problem.capacity[where] + SLACK:
            return False
        if (self.used[where] + problem.demand[item] > problem.limit[where] + SLACK).any():
            return False
        domain = problem.domain[item]
        if domain != ANY and self.load[where] and (domain == ALONE or self.domain[where] != domain):
            return False
        if problem.allowed is not None and not problem.allowed.of(item)[where]:
            return False
        return all(self.apart[group, where] == 0 for group in self._groups[item])

    def put(self, item: int, where: int) -> None:
        """Puts an item that is nowhere on a bin."""
        problem = self.problem
        gain = self.gain(item, where)
        contents = problem.incidence.of(item)
        self.counts[contents, where] += 1
        self._held[contents, where >> 3] |= np.uint8(128 >> (where & 7))
        self.need[where] += problem.own[item] - gain
        self._book(item, where, 1)
        self.bin_of[item] = where

    def take(self, item: int) -> int:
        """Takes an item off its bin, and gives that bin."""
        problem = self.problem
        where = int(self.bin_of[item])
        gain = self.gain(item, where)
        contents = problem.incidence.of(item)
        self.counts[contents, where] -= 1
        gone = contents[self.counts[contents, where] == 0]
        self._held[gone, where >> 3] &= np.uint8(255 ^ (128 >> (where & 7)))
        self.need[where] -= problem.own[item] - gain
        self._book(item, where, -1)
        self.bin_of[item] = -1
        return where

    def move(self, item: int, where: int) -> int:
        """Puts an item from its bin on another, and gives the bin that it was on."""
        here = self.take(item)
        self.put(item, where)
        return here

    def _book(self, item: int, where: int, sign: int) -> None:
        problem = self.problem
        self.used[where] += sign * problem.demand[item]
        self.load[where] += sign
        domain = int(problem.domain[item])
        held = self.domains[where]
        held[domain] = held.get(domain, 0) + sign
        if not held[domain]:
            del held[domain]
        self.domain[where] = next(iter(held)) if len(held) == 1 else (MIXED if held else ANY)
        for group in self._groups[item]:
            self.apart[group, where] += sign

    def shared(self) -> float:
        """Sums the pages that all bins share, as far as they are relied on."""
        placed = self.bin_of >= 0
        return float(self.problem.own[placed].sum() - self.need.sum())

    def faults(self, items: Sequence[str] | None = None, bins: Sequence[str] | None = None) -> list[str]:
        """Names every constraint that this placement breaks, with these names of items and bins."""
        problem = self.problem
        names = [f"item {item}" for item in range(problem.items)] if items is None else items
        places = [f"bin {where}" for where in range(problem.bins)] if bins is None else bins
        found = [
            f"{places[where]} needs {self.need[where]:.0f} pages and has {problem.capacity[where]:.0f}"
            for where in np.flatnonzero(self.need > problem.capacity + ROUNDED).tolist()
        ]
        for where, kind in np.argwhere(self.used > problem.limit + SLACK).tolist():
            found.append(f"{places[where]} has {self.used[where, kind]:.0f} {UNITS[kind]} and may have {problem.limit[where, kind]:.0f}")
        for where, held in enumerate(self.domains):
            if len([domain for domain in held if domain != ANY]) > 1 or held.get(ALONE, 0) > 1:
                found.append(f"{places[where]} mixes trust domains")
        if problem.allowed is not None:
            placed = np.flatnonzero(self.bin_of >= 0)
            bad = placed[~problem.allowed.are(placed, self.bin_of[placed])]
            found += [f"{names[item]} may not be on {places[int(self.bin_of[item])]}" for item in bad.tolist()]
        found += [f"{places[where]} has two guests that must be apart" for where in np.flatnonzero((self.apart > 1).any(axis=0)).tolist()]
        return found
