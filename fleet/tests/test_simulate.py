"""The generator, the policies and the fit."""

from pathlib import Path

import numpy as np
import pytest

from ksmith_fleet.cli.main import main
from ksmith_fleet.cli.simulate import _model
from ksmith_fleet.placement.arrival import OPEN_BELOW, best, ranked
from ksmith_fleet.placement.state import MOST_IN_BYTE, State
from ksmith_fleet.simulate.churn import churn
from ksmith_fleet.simulate.fill import fill, fill_planned, limit
from ksmith_fleet.simulate.fit import hold_out
from ksmith_fleet.simulate.generator import make, problem_of
from ksmith_fleet.simulate.policies import POLICIES


def test_the_model_foretells_guests_that_it_has_not_seen() -> None:
    found = hold_out(_model(None))
    for relation, most in (("release", 0.05), ("role", 0.1), ("image", 0.25)):
        errors = [abs(one.foretold / one.actual - 1) for one in found if one.relation == relation and one.actual > 20]
        assert len(errors) >= 10 and float(np.median(errors)) < most, relation


def test_made_guests_have_sizes_and_overlaps_like_the_real_ones() -> None:
    model = _model(None)
    crowd = make(model, 400, seed=3)
    real = np.array([seen.pages for seen in model.seen], dtype=np.float64)
    assert 0.8 < crowd.pages.mean() / real.mean() < 1.2
    common = crowd.incidence.common() * crowd.incidence.weight
    same = crowd.image[:, None] == crowd.image[None, :]
    np.fill_diagonal(same, False)
    assert common[same].mean() > 2 * common[~same].mean()
    assert (make(model, 400, seed=3).incidence.contents == crowd.incidence.contents).all()


def test_a_plan_places_more_guests_than_every_policy_and_none_passes_the_bound() -> None:
    problem = problem_of(make(_model(None), 600, seed=5), 20, float(make(_model(None), 600, seed=5).pages.mean()) * 10)
    most = limit(problem)
    counts = {policy: fill(problem, policy, seed=5).guests for policy in POLICIES}
    planned = fill_planned(problem, 100, most, 2).guests
    assert max(counts.values()) <= planned <= most
    for policy in ("random", "first-fit"):
        assert planned >= 1.17 * counts[policy]
    # Deciding on arrival, as the others do, and without a move.
    for policy in ("random", "first-fit", "memory-buddies"):
        assert counts["ksmith-admit"] >= 1.17 * counts[policy]


def test_a_new_kind_of_guest_opens_a_host_and_a_known_one_joins_its_like() -> None:
    model = _model(None)
    crowd = make(model, 200, seed=8)
    problem = problem_of(crowd, 4, float(crowd.pages.mean()) * 10)
    common = crowd.incidence.common() * problem.page_value
    own = np.diff(problem.incidence.starts) * problem.page_value
    part = common / own[:, None]
    first, like = next((a, b) for a in range(200) for b in range(200) if a != b and part[b, a] > OPEN_BELOW)
    other = next(b for b in range(200) if b not in (first, like) and part[b, first] < OPEN_BELOW)
    state, random = State(problem), np.random.default_rng(1)
    state.put(first, 2)
    assert POLICIES["ksmith-admit"](state, like, random) == 2
    assert POLICIES["ksmith-admit"](state, other, random) != 2
    # Where no host is empty, the other one goes to where it shares most.
    for where in (0, 1, 3):
        state.put(next(g for g in range(200) if state.bin_of[g] < 0 and g not in (like, other)), where)
    gains = state.gains(other)
    assert POLICIES["ksmith-admit"](state, other, random) == int(np.argmax(gains))


def test_the_first_host_is_that_of_the_ranking_and_gains_are_those_of_the_counts() -> None:
    crowd = make(_model(None), 500, seed=9, contents=600)
    # 37 hosts are no whole number of bytes, and guests share more contents than a byte counts.
    problem = problem_of(crowd, 37, float(crowd.pages.mean()) * 10)
    state, random = State(problem), np.random.default_rng(2)
    opened = most = 0
    for item in range(problem.items):
        gains = state.gains(item)
        assert (gains == np.count_nonzero(state.counts[problem.incidence.of(item)], axis=0) * problem.page_value).all()
        ok = state.fits(item, gains)
        order, where = ranked(state, item, gains, ok), best(state, item, gains, ok)
        assert where == (order[0] if len(order) else -1)
        opened += where >= 0 and not state.load[where]
        most = max(most, int(gains.max() / problem.page_value))
        if where < 0 or random.random() < 0.2:
            where = int(random.integers(37))
        state.put(item, where)
        gone = int(random.integers(item + 1))
        if state.bin_of[gone] >= 0 and random.random() < 0.3:
            state.take(gone)
    assert opened > 10 and most > MOST_IN_BYTE


def test_policies_keep_all_constraints() -> None:
    crowd = make(_model(None), 120, seed=6)
    problem = problem_of(crowd, 6, float(crowd.pages.mean()) * 8)
    for policy in POLICIES.values():
        state, random = State(problem), np.random.default_rng(1)
        for item in range(problem.items):
            where = policy(state, item, random)
            if where >= 0:
                state.put(item, where)
        assert not state.faults()


def test_churn_shares_more_with_moves_than_without() -> None:
    crowd = make(_model(None), 600, seed=7)
    problem = problem_of(crowd, 10, float(crowd.pages.mean()) * 10)
    found = {policy: churn(problem, policy, 500, 120, 7, 2) for policy in ("random", "memory-buddies", "ksmith")}
    assert found["random"].shared < found["memory-buddies"].shared < found["ksmith"].shared


def test_the_command_prints_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["simulate", "churn", "--hosts", "4", "--events", "60", "--policies", "random", "ksmith"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    sketches = str(Path(__file__).parent.parent / "testdata" / "debian")
    assert main(["simulate", "fit", "--sketches", sketches, "--out", str(tmp_path / "model.json")]) == 0
    kept = Path(__file__).parent.parent / "src" / "ksmith_fleet" / "simulate" / "debian.json"
    assert len((tmp_path / "model.json").read_text()) == pytest.approx(len(kept.read_text()), rel=0.01)
