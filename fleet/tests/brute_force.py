"""Small clusters, and the best placement that moves reach in each, by trying all of them."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from ksmith_fleet.incidence import Incidence
from ksmith_fleet.placement.problem import CPU, Problem
from ksmith_fleet.placement.state import ANY, State
from ksmith_fleet.planner import Outcome

WEIGHT = 16.0
"""Pages that a content of these clusters stands for."""


def cluster(random: np.random.Generator, factor: float, hosts: int, guests: int) -> Problem:
    """Makes guests of two to four images on nearly equal hosts, each with `factor` times the memory that the fullest one needs."""
    images = int(random.integers(2, 5))
    common, size = int(random.integers(5, 40)), int(random.integers(20, 80))
    sets = []
    for _ in range(guests):
        image = int(random.integers(images))
        held = common + image * size + np.flatnonzero(random.random(size) < 0.9)
        sets.append(np.concatenate([np.arange(common), held]))
    starts = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64)
    incidence = Incidence(starts, np.concatenate(sets).astype(np.int32), common + images * size, WEIGHT)
    arrival = np.diff(starts) * WEIGHT * random.uniform(1.1, 1.8, guests)
    problem = Problem(
        own=arrival * random.uniform(0.95, 1.0, guests),
        arrival=arrival,
        toll=arrival,
        incidence=incidence,
        kept=0.8,
        capacity=np.full(hosts, np.inf),
        demand=np.column_stack([random.integers(1, 5, guests), arrival]),
        limit=np.full((hosts, 2), np.inf),
        domain=np.full(guests, ANY, dtype=np.int64),
        apart=(),
        allowed=None,
        movable=np.ones(guests, dtype=bool),
        current=random.integers(0, hosts, guests),
    )
    everywhere = needs(problem)
    need = [everywhere[_mask(np.flatnonzero(problem.current == host))] for host in range(hosts)]
    # Hosts of one model have a little more or less memory than each other.
    return replace(problem, capacity=factor * max(need) * random.uniform(1.0, 1.002, hosts))


def with_rules(random: np.random.Generator, problem: Problem) -> Problem:
    """Adds rules that the cluster keeps now: two guests apart, one that stays, and a limit of CPUs."""
    one, two = random.choice(problem.items, 2, replace=False)
    if problem.current[one] != problem.current[two]:
        problem = replace(problem, apart=(np.sort(np.array([one, two])),))
    movable = problem.movable.copy()
    movable[int(random.integers(problem.items))] = False
    limit = problem.limit.copy()
    limit[:, CPU] = np.bincount(problem.current, weights=problem.demand[:, CPU], minlength=problem.bins).max() + 1
    return replace(problem, movable=movable, limit=limit)


def needs(problem: Problem) -> npt.NDArray[np.float64]:
    """Gives what each set of guests needs on one host, by the union of their contents."""
    sets = [set(problem.incidence.of(item).tolist()) for item in range(problem.items)]
    need = np.zeros(1 << problem.items)
    for mask in range(1, 1 << problem.items):
        items = [item for item in range(problem.items) if mask >> item & 1]
        union = set().union(*(sets[item] for item in items))
        surplus = sum(len(sets[item]) for item in items) - len(union)
        need[mask] = problem.own[items].sum() - problem.kept * WEIGHT * surplus
    return need


def _mask(items: npt.NDArray[np.int64]) -> int:
    return sum(1 << int(item) for item in items)


def _within(graph: csr_array, start: int, moves: int) -> npt.NDArray[np.int64]:
    reached = np.zeros(graph.shape[0], dtype=np.int64)
    reached[start] = 1
    for _ in range(moves):
        reached = ((graph.T.astype(np.int64) @ reached) + reached > 0).astype(np.int64)
    return np.flatnonzero(reached)


@dataclass(frozen=True)
class Best:
    """What any order of moves reaches."""

    shared: float
    """The most pages that a placement without faults shares."""
    repairs: bool
    """True if a placement without faults is reached."""
    states: int
    """Placements that are reached."""


def best_reachable(problem: Problem, moves: int | None = None) -> Best:
    """Tries all placements that some order of so many moves reaches, or of any number.

    A guest arrives where its whole memory is free and no rule is broken.
    """
    bins, items = problem.bins, problem.items
    need, masks = needs(problem), np.arange(1 << items)
    held = (masks[:, None] >> np.arange(items)) & 1
    cpu = held @ problem.demand[:, CPU]
    lawful = np.ones(1 << items, dtype=bool)
    for group in problem.apart:
        lawful &= held[:, group].sum(axis=1) <= 1
    roomy = (need[:, None] <= problem.capacity + 1e-6) & (cpu[:, None] <= problem.limit[:, CPU] + 1e-6)
    fits = lawful[:, None] & roomy
    size = bins**items
    number = np.arange(size)
    at = np.array([number // bins**item % bins for item in range(items)])
    mask = np.array([((at == host) << np.arange(items)[:, None]).sum(axis=0) for host in range(bins)])
    sources, targets = [], []
    for item in np.flatnonzero(problem.movable).tolist():
        foes = np.zeros(1 << items, dtype=bool)
        for group in problem.apart:
            if item in group:
                foes |= held[:, group[group != item]].any(axis=1)
        for host in range(bins):
            old = mask[host]
            new = old | 1 << item
            has_room = need[old] + problem.arrival[item] <= problem.capacity[host] + 1e-6
            begin = np.flatnonzero((at[item] != host) & roomy[new, host] & has_room & ~foes[old])
            sources.append(begin)
            targets.append(begin + (host - at[item][begin]) * bins**item)
    edges = np.concatenate(sources), np.concatenate(targets)
    graph = csr_array((np.ones(len(edges[0]), dtype=np.int8), edges), shape=(size, size))
    start = int((problem.current * bins ** np.arange(items)).sum())
    reached = breadth_first_order(graph, start, return_predecessors=False) if moves is None else _within(graph, start, moves)
    good = reached[np.all([fits[mask[host][reached], host] for host in range(bins)], axis=0)]
    if not len(good):
        return Best(-np.inf, False, len(reached))
    total = np.sum([need[mask[host][good]] for host in range(bins)], axis=0)
    return Best(float(problem.own.sum() - total.min()), True, len(reached))


def followed(problem: Problem, outcome: Outcome) -> State:
    """Carries the moves out, each of a guest that finds its whole memory free and breaks no rule, and gives what they reach."""
    state = State(problem, problem.current)
    for move in outcome.moves:
        assert problem.movable[move.item] and state.bin_of[move.item] == move.source
        state.take(move.item)
        assert state.fits(move.item, state.gains(move.item))[move.target]
        assert state.need[move.target] + problem.arrival[move.item] <= problem.capacity[move.target] + 1e-3
        state.put(move.item, move.target)
    assert (state.bin_of == outcome.after.bin_of).all()
    return state


def broken(random: np.random.Generator, kind: str, hosts: int, guests: int) -> Problem:
    """Makes a cluster that breaks a rule now: two guests that must be `apart`, or an `overfull` host beside an empty one."""
    while True:
        problem = cluster(random, 1.4, hosts, guests)
        host = int(random.integers(problem.bins))
        here = np.flatnonzero(problem.current == host)
        if len(here) < 2:
            continue
        if kind == "apart":
            return replace(problem, apart=(np.sort(random.choice(here, 2, replace=False)),))
        current = problem.current.copy()
        current[current == (host + 1) % hosts] = host
        full = State(replace(problem, capacity=np.full(hosts, np.inf)), current)
        return replace(problem, current=current, capacity=np.full(hosts, 0.97 * full.need.max()))
