"""The figures that are printed of a known fleet, with their intervals and the truth."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ksmith_fleet.estimate import common_pages, saved_together
from ksmith_fleet.interval import Estimate, score_interval
from ksmith_fleet.model import Guest
from ksmith_fleet.overlap import group_images
from ksmith_fleet.schema import HEAVY_ABOVE
from ksmith_fleet.simulate.drawn import MAX_SHARING, Draw, counted_alone, drawn_incidence, stays
from ksmith_fleet.simulate.known import KnownFleet, Numbers, common_of

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Figure:
    """A figure that is printed, and the truth of it."""

    name: str
    found: Estimate
    truth: float

    @property
    def is_held(self) -> bool:
        """True if the interval holds the truth."""
        return self.found.low <= self.truth <= self.found.high


class Figures:
    """The figures of a fleet, of its first host, and of the best of all pairs, for any draw of its contents."""

    def __init__(self, fleet: KnownFleet) -> None:
        """Adds up what no draw changes."""
        self.fleet = fleet
        self.first = fleet.host == 0
        self.everyone = np.ones(len(fleet.host), dtype=bool)
        self.nonzero = fleet.counts.astype(np.float64) @ fleet.copies
        self.apart: Numbers = -(-fleet.steady // MAX_SHARING)
        self.surplus = np.where(fleet.copies > HEAVY_ABOVE, 0.0, fleet.steady - self.apart)
        self.counted = counted_alone(fleet)
        holders = (fleet.steady > 0).sum(axis=1)
        is_popular: Numbers = (holders > 0.6 * len(fleet.host)).astype(np.float64)
        self.sums = {"a host: across guests": fleet.shared(self.first), "across hosts": fleet.across, "popular contents": is_popular}
        frames = fleet.frames_of_hosts
        self.saved = {
            "a host: saved": (self.first, frames[:, 0], fleet.saved(self.first)),
            "all hosts: saved": (self.everyone, frames.sum(axis=1), fleet.saved_of_hosts),
        }

    def of(self, drawn: Draw, bits: int, with_image: bool = False) -> list[Figure]:
        """Gives all figures of a sketch with these contents, and that of the largest image if it is asked for."""
        rate, every = 2.0**-bits, drawn.every.astype(np.float64)
        found = [
            Figure(name, score_interval(float(every @ terms), float(every @ terms**2), rate), float(self.fleet.counts @ terms))
            for name, terms in self.sums.items()
        ]
        remain = stays(self.fleet, drawn.every)
        for name, (guests, frames, truth) in self.saved.items():
            said = [
                Guest("", "", "", "qemu", None, "", int(self.nonzero[g]), 0, 1.0 - float(remain[g]), None, None, None, True, 0)
                for g in np.flatnonzero(guests).tolist()
            ]
            found.append(Figure(name, self._counted(said, guests, frames, every, rate), truth))
            found.append(Figure(f"{name}, nothing counted", self._uncounted(said, guests, frames, every, rate, remain), truth))
        found += self._best_pair(drawn, rate)
        return [*found, self._image(drawn, bits)] if with_image else found

    def _counted(self, said: list[Guest], guests: Bools, frames: Numbers, every: Numbers, rate: float) -> Estimate:
        joined = self.apart[:, guests].sum(axis=1) - frames
        deviations = self.surplus[:, guests]
        squares = float(every @ (deviations.sum(axis=1) + joined) ** 2)
        exact = self.counted[guests]
        return saved_together(said, exact + every @ deviations / rate, exact, float(every @ joined), squares, rate)

    def _uncounted(self, said: list[Guest], guests: Bools, frames: Numbers, every: Numbers, rate: float, remain: Numbers) -> Estimate:
        """Gives the figure as files of format 1 have it."""
        apart = self.apart[:, guests]
        joined = apart.sum(axis=1) - frames
        deviations = self.fleet.steady[:, guests] - self.fleet.copies[:, guests] * remain[guests] - apart
        squares = float(every @ (deviations.sum(axis=1) + joined) ** 2)
        single = self.nonzero[guests] * remain[guests] - every @ apart / rate
        return saved_together(said, single, np.full(len(said), np.nan), float(every @ joined), squares, rate)

    def _best_pair(self, drawn: Draw, rate: float) -> list[Figure]:
        """Gives the pair with most in common as it is printed, chosen by a quarter of the sample, and as it would be if chosen by all."""
        holds = self.fleet.steady > 0
        true, chosen, rest = self.fleet.common, common_of(drawn.held_out, holds), common_of(drawn.planned, holds)
        best, naive = int(chosen.argmax()), int((chosen + rest).argmax())
        return [
            Figure("best pair", common_pages(int(rest.flat[best]), rate * 0.75), float(true.flat[best])),
            Figure("best pair, chosen by all (not printed)", common_pages(int((chosen + rest).flat[naive]), rate), float(true.flat[naive])),
        ]

    def _image(self, drawn: Draw, bits: int) -> Figure:
        image = group_images(drawn_incidence(self.fleet, drawn, bits, np.arange(len(self.fleet.host))))[0]
        size = len(image.guests)
        holders = (self.fleet.steady[:, image.guests] > 0).sum(axis=1)
        pairs = holders * (holders - 1) / max(1, size * (size - 1))
        return Figure("largest image", image.common, float(self.fleet.counts @ pairs) if size > 1 else 0.0)
