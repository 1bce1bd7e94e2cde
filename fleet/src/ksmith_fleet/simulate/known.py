"""Made-up fleets of which every content is known, and sketches of them under any key, to try intervals on.

A pattern says with how many copies, and how many steady ones, each guest holds some contents. A sketch at the rate `r` has a binomial draw
of each pattern's contents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ksmith_fleet.incidence import HELD_OUT
from ksmith_fleet.schema import HEAVY_ABOVE
from ksmith_fleet.simulate.write import MadeGuest, MadeHost

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
"""Whole numbers in a type that matrices are multiplied fast in."""


@dataclass(frozen=True)
class KnownFleet:
    """A row for each pattern, a column for each guest."""

    counts: Counts
    """The contents that have each pattern."""
    copies: Numbers
    steady: Numbers
    host: Counts
    """The host of each guest."""

    @property
    def hosts(self) -> int:
        """Counts the hosts."""
        return int(self.host.max()) + 1

    def frames(self, guests: npt.NDArray[np.bool_]) -> Numbers:
        """Gives for each pattern the frames of a content if these guests share a host."""
        frames: Numbers = -(-self.steady[:, guests].sum(axis=1) // 256)
        return frames

    def saved(self, guests: npt.NDArray[np.bool_]) -> int:
        """Gives the pages that KSM saves if these guests share a host."""
        return int(self.counts @ (self.steady[:, guests].sum(axis=1) - self.frames(guests)))

    def shared(self, guests: npt.NDArray[np.bool_]) -> Counts:
        """Gives for each pattern the guests beyond the first that hold a content."""
        shared: Counts = np.maximum(0, (self.steady[:, guests] > 0).sum(axis=1) - 1)
        return shared

    @cached_property
    def across(self) -> Counts:
        """Gives for each pattern the hosts beyond the first that hold a content."""
        holds = self.steady > 0
        on = np.stack([holds[:, self.host == host].any(axis=1) for host in range(self.hosts)], axis=1)
        across: Counts = np.maximum(0, on.sum(axis=1) - 1)
        return across

    @cached_property
    def frames_of_hosts(self) -> Numbers:
        """Gives for each pattern, and in a column for each host, the frames of a content."""
        return np.stack([self.frames(self.host == host) for host in range(self.hosts)], axis=1)

    @cached_property
    def saved_of_hosts(self) -> int:
        """Gives the pages that KSM saves on all hosts as they are."""
        return sum(self.saved(self.host == host) for host in range(self.hosts))

    @cached_property
    def common(self) -> Numbers:
        """Gives the contents that each pair of guests has in common, above the diagonal."""
        return common_of(self.counts, self.steady > 0)


def common_of(counts: Counts, holds: npt.NDArray[np.bool_]) -> Numbers:
    """Gives the contents that each pair of guests has in common, if there are so many of each pattern."""
    weights = holds.astype(np.float64)
    common: Numbers = np.triu((weights.T * counts) @ weights, 1)
    return common


def make_known(hosts: int, random: np.random.Generator, most_guests: int = 6, scale: float = 1.0) -> KnownFleet:
    """Makes a fleet: a base system in parts that most guests have, images in parts, contents of two guests, and pages of each guest alone.

    `scale` is a factor on the numbers of contents. Some contents have up to 40 copies in a guest, and up to 4 % of a guest's pages change.
    """
    host = np.repeat(np.arange(hosts), random.integers(2, most_guests + 1, hosts))
    guests = len(host)
    image = random.integers(0, int(random.integers(2, 7)), guests)
    held: list[npt.NDArray[np.bool_]] = []
    counts: list[float] = []
    for _ in range(6):
        held.append(random.random(guests) < random.uniform(0.5, 1.0))
        counts.append(random.uniform(200, 3000))
    for which in range(int(image.max()) + 1):
        for _ in range(8):
            held.append((image == which) & (random.random(guests) < random.uniform(0.3, 1.0)))
            counts.append(random.uniform(200, 3000))
    for _ in range(guests):
        held.append(np.isin(np.arange(guests), random.choice(guests, 2, replace=False)))
        counts.append(random.uniform(20, 500))
    for guest in range(guests):
        for _ in range(4):
            held.append(np.arange(guests) == guest)
            counts.append(random.uniform(1000, 6000))
    rows = np.array(held)
    several = np.asarray(random.random(rows.shape[0]) < 0.1)
    copies = np.where(rows, np.where(several.reshape(-1, 1), random.integers(1, 41, rows.shape), 1), 0).astype(np.float64)
    sizes = np.maximum(1, (np.array(counts) * scale).astype(np.int64))
    # A guest's changing pages are of its own contents, of one page each: a part of them has no steady copy.
    own = np.flatnonzero(copies.sum(axis=1) == 1)
    moves = (random.random(len(own)) < 0.3) * random.uniform(0.0, 0.15, len(own))
    gone = (sizes[own] * moves).astype(np.int64)
    sizes[own] -= gone
    steady = np.concatenate([copies, np.zeros((len(own), guests))])
    return KnownFleet(np.concatenate([sizes, gone]), np.concatenate([copies, copies[own]]), steady, host)


def draw_counts(fleet: KnownFleet, bits: int, random: np.random.Generator) -> Counts:
    """Draws the sampled contents of each pattern at the rate `2^-bits`."""
    return random.binomial(fleet.counts, 2.0**-bits)


def sketch_hosts(
    fleet: KnownFleet,
    drawn: Counts,
    bits: int,
    random: np.random.Generator,
    names: Sequence[str] | None = None,
    are_counted: bool = True,
    held_out: Counts | None = None,
) -> list[MadeHost]:
    """Gives each host's sketch of these sampled contents, with new fingerprints, and with all heavy contents if they are counted.

    `held_out` says how many contents of each pattern plans are made without; by itself that is random.
    """
    pattern = np.repeat(np.arange(len(drawn)), drawn)
    prints = np.unique(random.integers(0, 1 << (61 - max(0, bits - 1)), len(pattern) * 2 + 100, dtype=np.int64)) * round(1 / HELD_OUT)
    random.shuffle(prints)
    prints = prints[: len(pattern)]
    place = np.arange(len(pattern)) - np.repeat(np.cumsum(drawn) - drawn, drawn)
    is_planned = place >= (random.binomial(drawn, HELD_OUT) if held_out is None else held_out)[pattern]
    prints[is_planned] += random.integers(1, round(1 / HELD_OUT), int(is_planned.sum()))
    nonzero = fleet.counts @ fleet.copies
    hosts = []
    for host in range(fleet.hosts):
        guests = []
        for guest in np.flatnonzero(fleet.host == host).tolist():
            rows = np.flatnonzero(fleet.copies[pattern, guest] > 0)
            copies, steady = fleet.copies[pattern[rows], guest], fleet.steady[pattern[rows], guest]
            changing = 1.0 - float(steady.sum()) / max(1, int(copies.sum()))
            name = names[guest] if names else f"g{guest}"
            held = np.stack([fleet.copies[:, guest], fleet.steady[:, guest]], axis=1).astype(np.int32)
            made = MadeGuest(
                f"id-{name}", name, prints[rows], copies.astype(np.int32), int(nonzero[guest]), changing=changing, steady=steady.astype(np.int32),
                heavy=np.repeat(held, np.where(held[:, 0] > HEAVY_ABOVE, fleet.counts, 0), axis=0) if are_counted else None,
            )  # fmt: skip
            guests.append(made)
        hosts.append(MadeHost(f"h{host}", guests, rate_bits=bits))
    return hosts
