"""`check` by intervals: plans that came true are not accused, and plans that did not are."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ksmith_fleet.check import Checked, Verdict, judge
from ksmith_fleet.interval import Estimate
from ksmith_fleet.simulate.executed import execute, plan_known
from ksmith_fleet.simulate.known import make_known

FLEETS = 12


@pytest.fixture(scope="module", params=[6, 8])
def executed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Checked, Checked]]:
    """Makes fleets of four hosts, and plans by sketches of a rate. Each plan comes true, and once more with three tenths of what is shared gone."""
    random = np.random.default_rng(request.param)
    found = []
    for _ in range(FLEETS):
        fleet = make_known(4, random, scale=0.5)
        plan, read = plan_known(fleet, request.param, random, tmp_path_factory.mktemp("sketches"))
        assert plan.steps
        is_shared = (fleet.steady > 0).sum(axis=1) > 1
        less = replace(fleet, counts=np.where(is_shared, fleet.counts * 7 // 10, fleet.counts))
        found.append((execute(fleet, plan, read, fleet), execute(fleet, plan, read, less)))
    return found


def test_a_plan_that_came_true_is_not_accused(executed: list[tuple[Checked, Checked]]) -> None:
    verdicts = Counter(true.verdict for true, _ in executed)
    assert verdicts[Verdict.NOT_KEPT] <= 1 and verdicts[Verdict.KEPT] >= FLEETS / 2


def test_a_plan_that_did_not_come_true_is_found(executed: list[tuple[Checked, Checked]]) -> None:
    verdicts = Counter(false.verdict for _, false in executed)
    assert verdicts[Verdict.KEPT] <= 1 and verdicts[Verdict.NOT_KEPT] >= FLEETS * 0.75


def test_the_intervals_of_what_a_plan_reaches_hold_the_truth(executed: list[tuple[Checked, Checked]]) -> None:
    held = [kept.promised.low <= (kept.saved or 0) <= kept.promised.high for true, _ in executed for kept in true.hosts]
    # 48 intervals: fewer than 41 are held with a chance of 1 in 200.
    assert len(held) == 4 * FLEETS and sum(held) >= 41


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
