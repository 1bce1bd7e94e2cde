"""Overlap: which guests could share memory, within their hosts and across them."""

from dataclasses import dataclass

import numpy as np

from ksmith_fleet import estimate
from ksmith_fleet.engines import Engine, Settings
from ksmith_fleet.images import find_images
from ksmith_fleet.incidence import Incidence, from_answer
from ksmith_fleet.interval import Estimate, score_interval
from ksmith_fleet.model import Fleet

PAIRS_AT_ONCE = 1 << 16
"""Pairs that popular contents are added to in one go, so that memory stays bounded."""


MOST_PAIRS = 100_000
"""Pairs that are listed, those with the most in common. Guests that are all alike have more pairs than memory has room for."""


@dataclass(frozen=True)
class Pair:
    """Two guests and the pages that both hold."""

    a: int
    b: int
    pages: Estimate
    same_host: bool


@dataclass(frozen=True)
class HostSaving:
    """What KSM saves on a host as it is: all, and the part that comes from different guests."""

    host: int
    saved: Estimate
    across: Estimate


@dataclass(frozen=True)
class Overlap:
    """The whole picture, in pages."""

    pairs: list[Pair]
    hosts: list[HostSaving]
    images: list[list[int]]
    popular: int
    """Sampled contents that more guests hold than `popular_above`."""
    popular_pages: Estimate
    across_hosts: Estimate
    """Frames that are saved only if all guests share one host: the most that any placement could add."""
    incidence: Incidence
    alone: estimate.Alone


def overlap(fleet: Fleet, engine: Engine, settings: Settings) -> Overlap:
    """Asks the engine all questions and puts the answers together."""
    rate = fleet.rate
    number = {host.name: at for at, host in enumerate(fleet.hosts)}
    host_of = np.array([number[guest.host] for guest in fleet.guests], dtype=np.int64)
    incidence = from_answer(engine.ask("incidence"), len(fleet.guests), rate)
    popular = engine.ask("popular")
    in_popular = popular.num_rows
    pairs = _pairs(engine, fleet, host_of, incidence, popular.num_rows > 0, settings)
    totals = engine.ask("totals").to_pylist()[0]
    held = float((totals["surplus"] or 0) - (totals["surplus_on_hosts"] or 0))
    image = find_images(incidence)
    groups: list[list[int]] = [[] for _ in range(int(image.max()) + 1 if len(image) else 0)]
    for guest, which in enumerate(image):
        groups[which].append(guest)
    groups.sort(key=len, reverse=True)
    return Overlap(
        pairs=pairs,
        hosts=_hosts(engine, fleet, host_of, settings),
        images=groups,
        popular=in_popular,
        popular_pages=score_interval(in_popular / rate, in_popular * (1 - rate) / rate**2, rate),
        across_hosts=score_interval(held / rate, max(held, 1.0) * (1 - rate) / rate**2, rate),
        incidence=incidence,
        alone=estimate.alone(fleet.guests, engine.ask("alone"), rate),
    )


def _pairs(engine: Engine, fleet: Fleet, host_of: np.ndarray, incidence: Incidence, add_popular: bool, settings: Settings) -> list[Pair]:
    """Takes the pairs that the join finds. Contents that it set aside are added for these pairs alone."""
    answer = engine.ask("pairs")
    one = answer.column("guest_a").to_numpy()
    two = answer.column("guest_b").to_numpy()
    common = answer.column("common").to_numpy()
    if add_popular and len(one):
        hot = incidence.holders() > settings.popular_above
        matrix = incidence.matrix().tocsc()[:, np.flatnonzero(hot)].tocsr()
        common = common.copy()
        for begin in range(0, len(one), PAIRS_AT_ONCE):
            part = slice(begin, begin + PAIRS_AT_ONCE)
            both = matrix[one[part]].multiply(matrix[two[part]])
            common[part] += np.asarray(both.sum(axis=1)).ravel().astype(common.dtype)
    order = np.lexsort((two, one, -common))[:MOST_PAIRS]
    return [
        Pair(
            int(one[at]),
            int(two[at]),
            estimate.common_pages(int(common[at]), fleet.rate),
            bool(host_of[one[at]] == host_of[two[at]]),
        )
        for at in order
    ]


def _hosts(engine: Engine, fleet: Fleet, host_of: np.ndarray, settings: Settings) -> list[HostSaving]:
    rows = {row["host"]: row for row in engine.ask("hosts").to_pylist()}
    result = []
    for at, host in enumerate(fleet.hosts):
        guests = [fleet.guests[guest] for guest in np.flatnonzero(host_of == at)]
        row = rows.get(at, {"frames": 0, "frames2": 0, "shared": 0, "pages": 0})
        shared = float(row["shared"])
        result.append(
            HostSaving(
                host=at,
                saved=estimate.saved_together(
                    guests,
                    float(row["frames"]),
                    float(row["frames2"]),
                    fleet.rate,
                    host.use_zero_pages,
                    settings.max_sharing,
                    float(row["pages"]),
                ),
                across=score_interval(shared / fleet.rate, shared * (1 - fleet.rate) / fleet.rate**2, fleet.rate),
            )
        )
    return result
