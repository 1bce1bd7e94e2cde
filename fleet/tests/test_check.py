"""`check` by intervals: plans that came true are not accused, and plans that did not are."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ksmith_fleet.check import Verdict, judge
from ksmith_fleet.interval import Estimate
from ksmith_fleet.simulate.executed import PlannedFleet, plan_known, shared_lost
from ksmith_fleet.simulate.figures import Figure
from ksmith_fleet.simulate.known import make_known

FLEETS = 12
KEYS = 10
"""Keys that the contents have which no plan was made by."""


@pytest.fixture(scope="module", params=[4, 6, 8])
def planned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[PlannedFleet]:
    """Makes fleets of four hosts, and plans by sketches of a rate."""
    random = np.random.default_rng(request.param)
    found = []
    for _ in range(FLEETS):
        plan = plan_known(make_known(4, random, scale=0.5), request.param, random, tmp_path_factory.mktemp("sketches"))
        assert plan.plan.steps
        found += [plan.with_new_held_out(random) for _ in range(KEYS)]
    return found


def test_a_plan_that_came_true_is_not_accused_and_one_that_did_not_is_found(planned: list[PlannedFleet]) -> None:
    true = Counter(one.execute(one.known).verdict for one in planned)
    false = Counter(one.execute(shared_lost(one.known)).verdict for one in planned)
    tells_all = planned[0].bits < 8
    assert true[Verdict.NOT_KEPT] <= 0.05 * len(planned) and true[Verdict.KEPT] >= (0.95 if tells_all else 0.6) * len(planned)
    assert false[Verdict.KEPT] <= 0.08 * len(planned) and false[Verdict.NOT_KEPT] >= (0.9 if tells_all else 0.8) * len(planned)


def test_the_intervals_of_a_plan_and_an_admission_hold_the_truth(planned: list[PlannedFleet]) -> None:
    found: dict[str, list[Figure]] = {}
    for figure in (figure for one in planned for figure in one.figures()):
        found.setdefault(figure.name, []).append(figure)
    assert len(found) == 4
    for name, figures in found.items():
        held = np.mean([figure.is_held for figure in figures])
        # The standard error of the mean over 12 plans is up to 3 %.
        assert 0.87 <= held <= 0.995, f"{name}: {held:.1%}"


def test_a_redrawn_plan_is_what_its_files_give(tmp_path: Path) -> None:
    one = plan_known(make_known(4, np.random.default_rng(9), scale=0.5), 6, np.random.default_rng(10), tmp_path)
    again = one.under(one.drawn)
    assert again.plan.gain_bytes == pytest.approx(one.plan.gain_bytes, abs=8192) and one.plan.gain_low_bytes > 0
    promises = [[plan.saved_after, *(host.saved_after for host in plan.hosts)] for plan in (one.plan, again.plan)]
    for first, second in zip(*promises, strict=True):
        assert (first.expected, first.low, first.high) == pytest.approx((second.expected, second.low, second.high), rel=1e-4)
    assert abs(again.plan.gain_high_bytes - one.plan.gain_high_bytes) <= 8192


@pytest.mark.parametrize(
    ("saved", "verdict"),
    [
        (None, Verdict.CANNOT_TELL),
        (1000, Verdict.KEPT),
        (2000, Verdict.KEPT),
        (900, Verdict.KEPT),
        (820, Verdict.CANNOT_TELL),
        (700, Verdict.NOT_KEPT),
    ],
)
def test_a_verdict_weighs_the_promise_against_no_gain(saved: int | None, verdict: Verdict) -> None:
    before, after = Estimate(800, 750, 850), Estimate(1000, 800, 1200)
    assert judge(before, after, saved, 0.0, 2.0) is verdict
    # Where nothing was to be gained, no gain is no fault.
    if saved == 820:
        assert judge(after, after, saved, 0.0, 2.0) is Verdict.KEPT
        assert judge(after, after, saved, 0.0, 2.0, may_gain=True) is Verdict.CANNOT_TELL
