"""Plans of small clusters against all orders of moves."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from brute_force import best_reachable, broken, cluster, followed, with_rules

import ksmith_fleet.planner as planner
from ksmith_fleet.placement.goal import Budget, Goal
from ksmith_fleet.placement.relabel import relabel
from ksmith_fleet.placement.state import State
from ksmith_fleet.planner import plan_goal, plan_improve, plan_new

LONG = 20.0
"""Seconds that no exact search takes. The solver, which bounds what is shared, may."""


@pytest.mark.parametrize("factor", [1.02, 1.2, 1.6])
def test_a_small_cluster_reaches_the_best_placement_that_moves_reach(factor: float) -> None:
    random = np.random.default_rng(int(100 * factor))
    for number in range(12):
        problem = cluster(random, factor, 3, 7)
        if number % 3 == 2:
            problem = with_rules(random, problem)
        after = followed(problem, plan_new(problem, LONG))
        assert not after.faults()
        assert after.shared() == pytest.approx(best_reachable(problem).shared, abs=1.0)


@pytest.mark.parametrize("kind", ["apart", "overfull"])
@pytest.mark.parametrize("is_large", [False, True])
def test_what_is_broken_is_repaired_wherever_moves_repair_it(kind: str, is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_large:
        monkeypatch.setattr(planner, "can_search", lambda bins, items: False)
    random = np.random.default_rng(5)
    possible = 0
    for _ in range(10):
        problem = broken(random, kind, 3, 7)
        assert State(problem, problem.current).faults()
        is_possible = best_reachable(problem).repairs
        outcome = plan_improve(problem, 10, np.inf, 0.5, 10, itertools.count(0.0, 0.05).__next__)
        assert bool(followed(problem, outcome).faults()) != is_possible
        possible += is_possible
    assert possible >= 8


def test_the_best_within_a_number_of_moves_is_found() -> None:
    random = np.random.default_rng(9)
    for _ in range(6):
        problem = cluster(random, 1.3, 3, 6)
        for moves in range(5):
            outcome = plan_goal(problem, Goal("save", 0.0), Budget(moves), LONG)
            assert len(outcome.moves) <= moves
            assert followed(problem, outcome).shared() == pytest.approx(best_reachable(problem, moves).shared, abs=1.0)


def test_moves_gain_what_they_must_for_their_size() -> None:
    random = np.random.default_rng(4)
    moved = 0
    for _ in range(20):
        problem = cluster(random, 1.6, 3, 7)
        outcome = plan_goal(problem, Goal("save", 0.5), Budget(), LONG)
        pages = sum(problem.arrival[move.item] for move in outcome.moves)
        assert pages <= 2 * (outcome.after.shared() - outcome.before.shared()) + 1.0
        assert outcome.after.shared() <= plan_new(problem, LONG).after.shared() + 1.0
        moved += len(outcome.moves)
    assert moved


def test_a_larger_cluster_is_planned_by_neighbourhoods_and_shares_nearly_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "can_search", lambda bins, items: False)
    random = np.random.default_rng(11)
    parts = []
    for _ in range(8):
        problem = cluster(random, 1.3, 3, 7)
        outcome = plan_new(problem, 30, itertools.count(0.0, 0.01).__next__)
        before = outcome.before.shared()
        best = best_reachable(problem).shared
        parts.append((followed(problem, outcome).shared() - before) / (best - before) if best > before + 1 else 1.0)
    assert np.mean(parts) > 0.9


def test_hosts_that_are_nearly_equal_change_their_names() -> None:
    problem = cluster(np.random.default_rng(1), 1.5, 3, 8)
    problem = replace(problem, capacity=np.array([10_000.0, 10_001.0, 10_002.0]) * 10)
    turned = (problem.current + 1) % 3
    assert (relabel(problem, turned) == problem.current).all()
    # A host that has no room for a set of guests does not get it.
    need = State(problem, problem.current).need
    small = replace(problem, capacity=np.where(np.arange(3) == int(np.argmax(need)), need.max() - 1, 1e9))
    assert not State(small, relabel(small, turned)).faults()
