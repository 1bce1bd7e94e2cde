"""The solver of `bench/medium.py` against all placements of a tiny cluster, and the search that is compared with it."""

import importlib
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from brute_force import cluster, needs

from ksmith_fleet.cli.simulate import _model
from ksmith_fleet.placement.problem import Problem
from ksmith_fleet.placement.ruin import ruin_and_recreate
from ksmith_fleet.placement.search import SHARE, improve
from ksmith_fleet.placement.state import State
from ksmith_fleet.simulate.generator import make, problem_of


def best_placement(problem: Problem) -> float:
    """Gives the most pages that any placement shares, whatever moves would lead there."""
    need = needs(problem)
    best = -np.inf
    for where in itertools.product(range(problem.bins), repeat=problem.items):
        sets = [sum(1 << item for item, at in enumerate(where) if at == host) for host in range(problem.bins)]
        here = need[sets]
        if (here <= problem.capacity).all():
            best = max(best, float(problem.own.sum() - here.sum()))
    return best


def test_the_solver_finds_the_best_of_all_placements(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools", reason="the extra `dev` is not installed")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "bench"))
    medium = importlib.import_module("medium")
    random = np.random.default_rng(3)
    for factor in (1.02, 1.2):
        problem = cluster(random, factor, 3, 6)
        best = best_placement(problem)
        for hint in (None, problem.current):
            solved = medium.solve(problem, 60.0, hint)
            assert solved.status == "OPTIMAL" and solved.most_shared == pytest.approx(best, abs=1.0)
            found = State(problem, solved.bin_of)
            assert not found.faults() and found.shared() == pytest.approx(best, abs=1.0)


def spread_out(hosts: int, guests: int, factor: float) -> Problem:
    """Makes guests that are put on hosts in turn, with `factor` times the memory that the fullest one needs."""
    problem = problem_of(make(_model(None), guests, 1, contents=30), hosts, np.inf)
    current = np.arange(guests) % hosts
    need = State(problem, current).need
    return replace(problem, capacity=np.full(hosts, factor * need.max()), current=current)


def test_ruin_and_recreate_goes_on_where_moves_and_swaps_end() -> None:
    problem = spread_out(8, 36, 1.1)
    state = State(problem, problem.current)
    before = state.shared()
    improve(state, 10, clock=itertools.count(0.0, 0.001).__next__, goal=SHARE)
    local = state.shared() - before
    ruin_and_recreate(state, SHARE, 10, clock=itertools.count(0.0, 0.001).__next__)
    assert not state.faults() and (state.bin_of >= 0).all()
    assert state.shared() - before > 1.03 * local


def test_a_target_leaves_room_for_the_last_guest_that_arrives() -> None:
    problem = spread_out(5, 20, 1.3)
    state = State(problem, problem.current)
    item, other = 0, 1
    # Bin 1 has room for the guest once it is merged, and not on its arrival.
    state.take(item)
    gains = state.gains(item)
    fits = float(state.need[1] + problem.own[item] - gains[1])
    tight = replace(problem, capacity=np.full(5, (fits + state.need[1] + problem.arrival[item]) / 2))
    state = State(tight, problem.current)
    state.take(item)
    assert state.fits(item, state.gains(item))[1] and not state.may_stay(item, state.gains(item))[1]
    # Where it is now, it need not arrive, unless another one has to arrive there.
    need = State(problem, problem.current).need[0]
    full = State(replace(problem, capacity=np.full(5, need)), problem.current)
    full.take(item)
    assert full.may_stay(item, full.gains(item))[0]
    state = State(replace(problem, capacity=np.full(5, np.inf)), problem.current)
    state.move(other, 0)
    full = State(replace(problem, capacity=np.full(5, state.need[0])), state.bin_of)
    full.take(item)
    assert full.fits(item, full.gains(item))[0] and not full.may_stay(item, full.gains(item))[0]
