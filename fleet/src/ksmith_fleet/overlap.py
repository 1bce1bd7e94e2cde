"""Overlap: which guests could share memory, within their hosts and across them."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ksmith_fleet import estimate
from ksmith_fleet.engine import Engine, Settings
from ksmith_fleet.images import find_images
from ksmith_fleet.incidence import Incidence, from_answer
from ksmith_fleet.interval import Estimate, score_interval
from ksmith_fleet.model import Fleet


@dataclass(frozen=True)
class Pair:
    """Two guests and the pages that both hold."""

    a: int
    b: int
    pages: Estimate
    same_host: bool


@dataclass(frozen=True)
class Image:
    """Guests with mostly the same contents, and the pages that two of them have in common in the mean."""

    guests: list[int]
    common: Estimate


@dataclass(frozen=True)
class HostSaving:
    """What KSM saves on a host as it is, in pages."""

    host: int
    guests: int
    saved: Estimate
    """All but zero pages."""
    across: Estimate
    """The part of it that comes from different guests. It is estimated by itself."""
    zero_pages: float
    """Pages of zeros, which KSM frees on any host. They are counted, not sampled."""
    changing: float
    """Pages that changed while the sketch was taken, and may merge or not."""


@dataclass(frozen=True)
class Overlap:
    """The whole picture, in pages."""

    pairs: list[Pair]
    hosts: list[HostSaving]
    images: list[Image]
    popular: int
    """Sampled contents that more guests hold than `popular_above`."""
    popular_pages: Estimate
    saved: Estimate
    """What all hosts save, as the sum of `HostSaving.saved`. Hosts have contents in common, so its interval is not theirs added up."""
    across_hosts: Estimate
    """Frames that are saved only if all guests share one host: the most that any placement could add."""
    incidence: Incidence
    alone: estimate.Alone


def overlap(fleet: Fleet, engine: Engine, settings: Settings) -> Overlap:
    """Asks the engine all questions and puts the answers together."""
    rate = fleet.rate
    number = {host.name: at for at, host in enumerate(fleet.hosts)}
    host_of = np.array([number[guest.host] for guest in fleet.guests], dtype=np.int64)
    incidence = from_answer(engine.ask("incidence"), len(fleet.guests), rate, settings.incidence_mask)
    popular = int(engine.ask("popular").column("contents")[0].as_py())
    totals = engine.ask("totals").to_pylist()[0]
    images = group_images(incidence)
    single = estimate.alone(fleet.guests, engine.ask("alone"), rate, incidence, settings.max_sharing)
    return Overlap(
        pairs=_pairs(engine, fleet, host_of, images if popular else [], settings),
        hosts=_hosts(engine, fleet, host_of, settings, single),
        images=images,
        popular=popular,
        popular_pages=score_interval(popular, popular, rate),
        saved=estimate.saved_together(fleet.guests, single.unbiased, single.counted, float(totals["joined"]), float(totals["squares"]), rate),
        across_hosts=score_interval(float(totals["across"]), float(totals["across_squares"]), rate),
        incidence=incidence,
        alone=single,
    )


def group_images(incidence: Incidence) -> list[Image]:
    """Groups the guests, the largest group first."""
    image = find_images(incidence)
    groups = [np.flatnonzero(image == which) for which in range(int(image.max()) + 1 if len(image) else 0)]
    groups.sort(key=len, reverse=True)
    return [Image(group.tolist(), _common(incidence, group)) for group in groups]


def _common(incidence: Incidence, group: np.ndarray) -> Estimate:
    """Estimates what two guests of a group have in common in the mean. A content of `h` of `n` guests has the term `h (h - 1) / n (n - 1)`."""
    if len(group) < 2:
        return Estimate(0.0, 0.0, 0.0)
    _, holders = np.unique(np.concatenate([incidence.of(guest) for guest in group]), return_counts=True)
    terms = holders * (holders - 1) / (len(group) * (len(group) - 1))
    return score_interval(float(terms.sum()), float((terms**2).sum()), 1.0 / incidence.weight)


def _pairs(engine: Engine, fleet: Fleet, host_of: np.ndarray, images: list[Image], settings: Settings) -> list[Pair]:
    """Takes the pairs that the join finds, and neighbours of each image, which may have no other contents than popular ones.

    The popular contents, which the join sets aside, are added for these pairs alone.
    """
    found = {(row["guest_a"], row["guest_b"]): (row["common"], row["ranked"]) for row in engine.ask("pairs").to_pylist()}
    if images:
        for image in images:
            for pair in zip(image.guests, image.guests[1:], strict=False):
                if len(found) < 2 * settings.most_pairs:
                    found.setdefault(pair, (0, 0))
        listed = pa.table({"guest_a": [a for a, _ in found], "guest_b": [b for _, b in found]})
        for row in engine.ask("popular_pairs", listed=listed).to_pylist():
            pair = (row["guest_a"], row["guest_b"])
            found[pair] = (found[pair][0] + row["common"], found[pair][1] + row["ranked"])
    least = settings.min_common * settings.ranking_part
    order = sorted((pair for pair, (_, ranked) in found.items() if ranked >= least), key=lambda pair: (-found[pair][1], pair))
    return [Pair(a, b, _pages(*found[a, b], fleet.rate, settings), bool(host_of[a] == host_of[b])) for a, b in order[: settings.most_pairs]]


def _pages(common: int, ranked: int, rate: float, settings: Settings) -> Estimate:
    """Estimates what a pair has in common, without the contents by which it was chosen."""
    if not settings.ranking_mask:
        return estimate.common_pages(common, rate)
    return estimate.common_pages(common - ranked, rate * (1.0 - settings.ranking_part))


def _hosts(engine: Engine, fleet: Fleet, host_of: np.ndarray, settings: Settings, single: estimate.Alone) -> list[HostSaving]:
    rows = {row["host"]: row for row in engine.ask("hosts").to_pylist()}
    guests_at = np.argsort(host_of, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(host_of, minlength=len(fleet.hosts)))])
    result = []
    for at, host in enumerate(fleet.hosts):
        here = guests_at[starts[at] : starts[at + 1]]
        guests = [fleet.guests[guest] for guest in here]
        row = rows.get(at, dict.fromkeys(("joined", "squares", "shared", "shared_squares"), 0))
        said = {name: float(value) for name, value in row.items()}
        zeros = float(sum(guest.zero_pages for guest in guests))
        result.append(
            HostSaving(
                host=at,
                guests=len(guests),
                saved=estimate.saved_together(guests, single.unbiased[here], single.counted[here], said["joined"], said["squares"], fleet.rate),
                across=score_interval(said["shared"], said["shared_squares"], fleet.rate),
                zero_pages=estimate.zero_saved(zeros, host.use_zero_pages, settings.max_sharing),
                changing=estimate.changing_pages(guests),
            )
        )
    return result
