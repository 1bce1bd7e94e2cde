"""Makes fleets of any size from a model of real guests."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ksmith_fleet.incidence import Incidence
from ksmith_fleet.placement.problem import Problem
from ksmith_fleet.placement.state import ANY
from ksmith_fleet.simulate.fit import Model, chances


@dataclass(frozen=True)
class Diversity:
    """How different the guests of a made-up fleet are."""

    releases: int = 4
    """Variants of each real release: their contents that one release alone has are different."""
    roles: int = 2
    """Variants of each real role, in the same way."""
    private: float = 1.0
    """Factor on the pages that no other guest has."""
    skew: float = 1.0
    """Images have shares as `1 / rank^skew`."""


@dataclass(frozen=True)
class Crowd:
    """Guests that were made. All memory is in pages."""

    incidence: Incidence
    pages: npt.NDArray[np.float64]
    zero_pages: npt.NDArray[np.float64]
    inside: npt.NDArray[np.float64]
    image: npt.NDArray[np.int64]

    def needs(self, kept: float) -> npt.NDArray[np.float64]:
        """Gives what each guest needs if it is alone."""
        return self.pages - kept * (self.inside + self.zero_pages)


def make(model: Model, guests: int, seed: int, diversity: Diversity | None = None, contents: int = 300) -> Crowd:
    """Makes guests in the order of their arrival, each with about so many sampled contents."""
    chosen = diversity or Diversity()
    random = np.random.default_rng(seed)
    kinds = sorted({(seen.release, seen.role) for seen in model.seen})
    images = [(kind, r, o) for kind in kinds for r in range(chosen.releases) for o in range(chosen.roles)]
    random.shuffle(images)
    share = 1.0 / np.arange(1, len(images) + 1) ** chosen.skew
    image = random.choice(len(images), guests, p=share / share.sum())
    held = model.matrix()
    releases = [{model.seen[g].release for g in np.flatnonzero(row)} for row in held]
    roles = [{model.seen[g].role for g in np.flatnonzero(row)} for row in held]
    one_release = np.array([len(found) == 1 for found in releases])
    one_role = np.array([len(found) == 1 for found in roles])
    step = max(1.0, float(np.mean([seen.contents for seen in model.seen])) / contents)
    # Each atom keeps a rounded part of its contents, so that the sample stays unbiased.
    exact = model.counts() / step
    keep = np.floor(exact + random.random(len(exact))).astype(np.int64)
    atom_of = np.repeat(np.arange(len(keep)), keep)
    ids = np.arange(len(atom_of), dtype=np.int64)
    sets: list[npt.NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)] * guests
    pages, zeros, inside = np.zeros(guests), np.zeros(guests), np.zeros(guests)
    for number, (kind, r, o) in enumerate(images):
        members = np.flatnonzero(image == number)
        if not len(members):
            continue
        chance = chances(model, *kind)[atom_of]
        likely = np.flatnonzero(chance > 0.01)
        name = (ids * chosen.releases + np.where(one_release[atom_of], r, 0)) * chosen.roles + np.where(one_role[atom_of], o, 0)
        real = [seen for seen in model.seen if (seen.release, seen.role) == kind]
        for guest in members:
            drawn = likely[random.random(len(likely)) < chance[likely]]
            sets[guest] = name[drawn]
            like = real[int(random.integers(len(real)))]
            shared = len(drawn) * step / model.rate
            distinct = like.contents / model.rate
            # What the guest has beside the drawn contents is its own, as much as the real guest has.
            own = max(0.0, distinct - shared) * chosen.private * random.normal(1.0, 0.05)
            pages[guest] = shared + own + like.inside + like.zero_pages
            zeros[guest], inside[guest] = like.zero_pages, like.inside
    return Crowd(_incidence(sets, step / model.rate), pages, zeros, inside, image)


def _incidence(sets: list[npt.NDArray[np.int64]], weight: float) -> Incidence:
    """Numbers the contents that two or more guests hold."""
    everything = np.concatenate(sets) if sets else np.zeros(0, dtype=np.int64)
    values, which, count = np.unique(everything, return_inverse=True, return_counts=True)
    shared = count >= 2
    dense = np.cumsum(shared) - 1
    guest = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    keep = shared[which]
    starts = np.concatenate([[0], np.cumsum(np.bincount(guest[keep], minlength=len(sets)))]).astype(np.int64)
    order = np.lexsort((which[keep], guest[keep]))
    del values
    return Incidence(starts, dense[which[keep]][order].astype(np.int32), int(shared.sum()), weight)


def problem_of(crowd: Crowd, hosts: int, capacity: float, divergence: float = 0.2) -> Problem:
    """Makes the placement problem of the crowd on equal hosts."""
    kept = 1.0 - divergence
    guests = len(crowd.pages)
    return Problem(
        own=crowd.needs(kept),
        arrival=crowd.pages,
        toll=crowd.pages,
        incidence=crowd.incidence,
        kept=kept,
        capacity=np.full(hosts, capacity),
        demand=np.zeros((guests, 2)),
        limit=np.full((hosts, 2), np.inf),
        domain=np.full(guests, ANY, dtype=np.int64),
        apart=(),
        allowed=None,
        movable=np.ones(guests, dtype=bool),
        current=np.full(guests, -1, dtype=np.int64),
    )


def first(problem: Problem, count: int) -> Problem:
    """Keeps the guests that arrive first."""
    starts = problem.incidence.starts[: count + 1]
    incidence = replace(problem.incidence, starts=starts, contents=problem.incidence.contents[: starts[-1]])
    return replace(
        problem,
        own=problem.own[:count],
        arrival=problem.arrival[:count],
        toll=problem.toll[:count],
        incidence=incidence,
        demand=problem.demand[:count],
        domain=problem.domain[:count],
        movable=problem.movable[:count],
        current=problem.current[:count],
    )
