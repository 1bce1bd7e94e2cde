"""Plans for each goal, within limits of CPUs and configured memory."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made import guest, load, problem, put, two_images

from ksmith_fleet.cli.main import main
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.placement.build import Built, build
from ksmith_fleet.placement.goal import Budget, Goal
from ksmith_fleet.placement.moves import may_arrive
from ksmith_fleet.placement.problem import CONFIGURED, CPU
from ksmith_fleet.placement.state import State
from ksmith_fleet.plan_file import Plan, make_plan
from ksmith_fleet.planner import Outcome, plan_goal, plan_new
from ksmith_fleet.rules import BadRulesError, GuestRule, HostRule, Rules
from ksmith_fleet.simulate.write import MadeHost
from ksmith_fleet.summary import summary

ANY_NUMBER = Budget()
DEBIAN = str(Path(__file__).parent.parent / "testdata" / "debian")


def ticks() -> Callable[[], float]:
    """Gives a clock by which each question takes a hundredth of a second, so that no search depends on the machine."""
    return itertools.count(0.0, 0.01).__next__


def plan_for(directory: Path, goal: Goal, rules: Rules | None = None, drained: str = "", budget: Budget = ANY_NUMBER) -> tuple[Plan, Outcome, Built]:
    fleet, built, single = problem(directory, rules)
    if drained:
        built = built.drained(fleet, [drained])
    outcome = plan_goal(built.problem, goal, budget, 5)
    return make_plan(fleet, built, single, outcome, goal.kind), outcome, built


def test_a_drained_host_keeps_no_guest_and_no_other_guest_moves(tmp_path: Path) -> None:
    two_images(tmp_path)
    put(tmp_path, MadeHost("h3", [guest("g", [(3, 500)])], 1 << 30))
    plan, outcome, _ = plan_for(tmp_path, Goal("drain"), drained="h1")
    assert {step.guest for step in plan.steps} == set("abc") and {step.source for step in plan.steps} == {"h1"}
    assert not outcome.after.faults() and plan.closed == ["h1"]
    assert "gains: h1 goes from 3 guests to 0; " in summary(plan)[0]
    fleet, incidence, single = load(tmp_path)
    with pytest.raises(BadRulesError, match="no sketch is of the host h9"):
        build(fleet, incidence, single, Rules()).drained(fleet, ["h9"])


def test_hosts_are_emptied_where_others_have_room_for_their_guests(tmp_path: Path) -> None:
    for host, names in {"h1": "ab", "h2": "c", "h3": "d"}.items():
        put(tmp_path, MadeHost(host, [guest(n, [(ord(n), 1000)]) for n in names], 4200 * 4096))
    plan, outcome, _ = plan_for(tmp_path, Goal("empty"), Rules(headroom=0.0))
    assert sorted(outcome.after.load.tolist()) == [0, 0, 4] and len(plan.steps) == 2
    assert "2 hosts become empty (h2, h3)" in summary(plan)[0]
    # A host with a guest that no plan knows cannot be switched off.
    put(tmp_path, MadeHost("h2", [guest("c", [(ord("c"), 1000)])], 4200 * 4096, more={"skipped": [{"guest": "x", "why": "y"}]}))
    fleet, built, _ = problem(tmp_path, Rules(headroom=0.0))
    after = plan_goal(built.problem, Goal("empty", may_empty=built.may_be_emptied(fleet)), ANY_NUMBER, 5).after
    assert after.load.tolist() == [0, 4, 0]


def test_a_pressed_host_is_relieved_and_a_calm_fleet_left_alone(tmp_path: Path) -> None:
    for host, names in {"h1": "abcde", "h2": "f"}.items():
        put(tmp_path, MadeHost(host, [guest(n, [(ord(n), 1000)]) for n in names], 5200 * 4096))
    plan, outcome, built = plan_for(tmp_path, Goal("relieve"), Rules(headroom=0.0))
    assert len(plan.steps) == 1 and (outcome.after.need <= 0.85 * built.problem.capacity).all()
    assert "hosts above 85% of their room: 1 to 0" in summary(plan)[0]
    two_images(tmp_path / "calm")
    assert plan_for(tmp_path / "calm", Goal("relieve"))[0].steps == []


def test_hosts_are_balanced_by_few_moves(tmp_path: Path) -> None:
    for host, names in {"h1": "abcdef", "h2": "", "h3": "gh"}.items():
        put(tmp_path, MadeHost(host, [guest(n, [(ord(n), 1000)]) for n in names], 10_000 * 4096))
    plan, outcome, _ = plan_for(tmp_path, Goal("balance"), Rules(headroom=0.0))
    assert sorted(outcome.after.load.tolist()) == [2, 2, 4] and len(plan.steps) == 2
    assert "hosts use 0% to 60% of their room, then 20% to 40%" in summary(plan)[0]
    assert len(plan_for(tmp_path, Goal("balance"), Rules(headroom=0.0), budget=Budget(1))[0].steps) == 1


def vcpus(names: str, count: int, image: int = 1) -> list[object]:
    return [guest(n, [(image, 1000)], more={"vcpus": count}) for n in names]


def test_no_host_takes_more_virtual_cpus_than_its_limit(tmp_path: Path) -> None:
    for host, names in {"h1": "abc", "h2": "def"}.items():
        put(tmp_path, MadeHost(host, vcpus(names, 4), 1 << 30, more={"cpus": 4}))  # type: ignore[arg-type]
    _, built, _ = problem(tmp_path)
    assert (built.problem.limit[:, CPU] == 16).all()
    # Six guests of one image share most on one host, and no more on two hosts than they do now.
    assert plan_new(built.problem, 5).moves == []
    _, wide, _ = problem(tmp_path, Rules(cpu_overcommit=6))
    assert sorted(plan_new(wide.problem, 5).after.used[:, CPU].tolist()) == [0, 24]
    # A host that has more already keeps its guests and takes no further one.
    _, narrow, _ = problem(tmp_path, Rules(cpu_overcommit=2))
    assert narrow.problem.limit[:, CPU].tolist() == [12, 12] and not may_arrive(State(narrow.problem, narrow.problem.current), 0).any()
    # A rule is no default: what breaks it is repaired, or named.
    _, ruled, _ = problem(tmp_path, Rules(hosts={"h1": HostRule(cpus=8.0)}))
    assert plan_new(ruled.problem, 5).after.used[:, CPU].tolist() == [8, 16]


def test_no_host_takes_more_configured_memory_than_its_limit(tmp_path: Path) -> None:
    for host, names in {"h1": "ab", "h2": "cd"}.items():
        guests = [guest(n, [(1, 1000)], more={"configured_bytes": 3000 * 4096}) for n in names]
        put(tmp_path, MadeHost(host, guests, 6000 * 4096))
    fleet, built, _ = problem(tmp_path)
    assert (built.problem.demand[:, CONFIGURED] == 3000).all() and (built.problem.limit[:, CONFIGURED] == 9000).all()
    assert plan_new(built.problem, 5).moves == []
    _, wide, _ = problem(tmp_path, Rules(memory_overcommit=2))
    assert sorted(plan_new(wide.problem, 5).after.load.tolist()) == [0, 4]
    assert {host.name for host in fleet.hosts} == {"h1", "h2"}


def test_a_guest_without_these_figures_counts_one_virtual_cpu_and_what_it_takes(tmp_path: Path) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)], more={"memory_bytes": None})], 1 << 30))
    _, built, _ = problem(tmp_path)
    assert built.problem.demand.tolist() == [[1.0, 1000.0]]


def test_the_default_plan_of_real_guests_pays_and_overloads_no_host(tmp_path: Path) -> None:
    fleet, built, single = problem(Path(DEBIAN))
    goal = Goal(price=0.5 * built.problem.kept)
    plan = make_plan(fleet, built, single, plan_goal(built.problem, goal, Budget(200), 2, ticks()))
    # Moves are chosen by three quarters of the contents, and the plan's gain is estimated by the others.
    assert plan.steps and plan.moved_bytes <= 2 * sum(step.gain_bytes for step in plan.steps)
    assert plan.gain_bytes == int(plan.saved_after.expected - plan.saved_before.expected) > 0
    assert all(host.vcpus_after <= 4 * host.cpus for host in plan.hosts)
    # Whatever is moved, no host passes its limit.
    state = State(built.problem, plan_new(built.problem, 2, ticks()).after.bin_of)
    assert (state.used[:, CPU] <= np.array([4.0 * (host.cpus or 0) for host in fleet.hosts])).all()


def test_a_plan_begins_with_what_it_gains_moves_and_risks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "s")
    assert main(["plan", "new", str(tmp_path / "s"), "--least-gain", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["gains", "moves", "risks"] and lines[3].startswith("1. ")
    assert "any placement shares" in lines[0] and "GiB for each GiB gained" in lines[1] and "is the fullest with" in lines[2]
    for words in (["--goal", "drain"], ["--goal", "save=h1"], ["--goal", "all"]):
        with pytest.raises(SystemExit):
            main(["plan", "new", str(tmp_path / "s"), *words])
    assert main(["plan", "new", str(tmp_path / "s"), "--goal", "drain=h1"]) == 0
    assert "h1 goes from 3 guests to 0" in capsys.readouterr().out


def test_a_guest_that_its_own_user_started_counts_no_more_than_its_host_has(tmp_path: Path) -> None:
    said = {"vcpus": 60_000, "configured_bytes": 1 << 50}
    guests = [guest(n, [(1, 1000)], verified=n == "a", more=said) for n in "ab"]
    put(tmp_path, MadeHost("h1", guests, 1 << 30, more={"cpus": 4}))
    _, built, _ = problem(tmp_path)
    assert built.problem.demand.tolist() == [[60_000.0, float(1 << 38)], [4.0, float(1 << 18)]]


@pytest.mark.parametrize("more", [{"vcpus": 0}, {"vcpus": 1 << 17}, {"vcpus": "4"}, {"configured_bytes": -1}])
def test_impossible_sizes_are_refused(tmp_path: Path, more: dict[str, object]) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)], more=more)]))
    with pytest.raises(BadSketchError, match=r"metadata ksmith\.guests: \[0\]\.(vcpus|configured_bytes) is "):
        load(tmp_path)


def test_of_two_equal_guests_the_one_moves_that_bears_it(tmp_path: Path) -> None:
    for host, name in {"h1": "a", "h2": "b"}.items():
        put(tmp_path, MadeHost(host, [guest(name, [(1, 1000)])], 1 << 30))
    for dear, moved in (("a", "b"), ("b", "a")):
        fleet, built, _ = problem(tmp_path, Rules(guests={dear: GuestRule(move_price=1.5)}))
        outcome = plan_goal(built.problem, Goal(price=0.5), Budget(), 5, ticks())
        assert [fleet.guests[built.items[move.item][0]].name for move in outcome.moves] == [moved]
    _, built, _ = problem(tmp_path, Rules(guests={name: GuestRule(move_price=3) for name in "ab"}))
    assert plan_goal(built.problem, Goal(price=0.5), Budget(), 5, ticks()).moves == []
    # What a move counts as is also what a budget allows.
    assert plan_goal(built.problem, Goal(price=0.1), Budget(pages=2000), 5, ticks()).moves == []
    assert len(plan_goal(built.problem, Goal(price=0.1), Budget(pages=3000), 5, ticks()).moves) == 1
