"""Rules mean what they say, or are refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from made import guest, load, problem, put, two_images

import ksmith_fleet.rules as rules_module
from ksmith_fleet.cli.main import main
from ksmith_fleet.placement.groups import _components
from ksmith_fleet.placement.named import Names, guest_rules
from ksmith_fleet.plan_file import Plan, make_plan, read_plan
from ksmith_fleet.planner import plan_improve, plan_new
from ksmith_fleet.rules import BadRulesError, GuestRule, HostRule, Rules, read_rules
from ksmith_fleet.simulate.write import MadeHost


def plan_of(directory: Path, rules: Rules) -> Plan:
    fleet, built, single = problem(directory, rules)
    return make_plan(fleet, built, single, plan_new(built.problem, 2))


@pytest.mark.parametrize(
    "text",
    [
        'trust_unverified = "false"',
        "divergence = true",
        "divergence = nan",
        "headroom = 2",
        "hosts = 3",
        'guests = ["a"]',
        "apart = 3",
        "apart = [[1]]",
        "unknown = 1",
        '[hosts.h1]\nclasses = "gold"',
        "[hosts.h1]\nclasses = [1]",
        '[hosts.h1]\ncpus = "x"',
        "[hosts.h1]\ncpus = -1",
        "[hosts.h1]\nmemory_bytes = -5",
        "[hosts.h1]\nexclude = 1",
        '[guests.a]\nfixed = "no"',
        '[guests.a]\nnode = "x"',
        "[guests.a]\nmove_price = 0.5",
        "[guests.a]\nhost = 1",
        "no toml",
    ],
)
def test_a_value_of_another_type_is_refused_and_never_read_as_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "rules.toml").write_text(text)
    with pytest.raises(BadRulesError, match=r"rules\.toml"):
        read_rules(str(tmp_path / "rules.toml"))


def test_the_rules_of_the_how_to_are_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "fleet.md").read_text()
    text = page.split("All keys are optional:", 1)[1].split("```text\n", 1)[1].split("```", 1)[0]
    (tmp_path / "rules.toml").write_text(text)
    rules = read_rules(str(tmp_path / "rules.toml"))
    assert rules.hosts["h3"] == HostRule(cpus=32.0, classes=("gold",), exclude=True)
    assert rules.guests["db-1"] == GuestRule(host="h1", node=0, cpus=4.0, fixed=True, move_price=4.0)
    assert rules.divergence == 0.2 and rules.together == (("app", "cache"),)


def test_guests_that_must_be_together_and_are_apart_come_together(tmp_path: Path) -> None:
    two_images(tmp_path)
    plan = plan_of(tmp_path, Rules(together=(("a", "d"),), apart=(("a", "b"), ("a", "c"))))
    assert plan.placement["id-a"] == plan.placement["id-d"] and plan.faults == []
    # Each guest is moved from where it is, and the plan's placement is what its moves reach.
    where = {f"id-{n}": "h1" if n in "abc" else "h2" for n in "abcdef"}
    for step in plan.steps:
        assert where[step.guest_id] == step.source
        where[step.guest_id] = step.target
    assert where == plan.placement


def test_guests_that_cannot_come_together_are_named_and_their_hosts_are_right(tmp_path: Path) -> None:
    two_images(tmp_path, memory_bytes=3520 * 4096)
    fleet, built, single = problem(tmp_path, Rules(headroom=0.0, together=(("a", "d"),)))
    outcome = plan_improve(built.problem, 9, 1e12, 0.0, 1)
    plan = make_plan(fleet, built, single, outcome)
    assert plan.steps == [] and plan.placement["id-a"] == "h1" and plan.placement["id-d"] == "h2"
    assert plan.faults == ["d may not be on h2"]


def test_a_group_that_no_host_may_have_is_refused(tmp_path: Path) -> None:
    two_images(tmp_path)
    fixed = {"a": GuestRule(fixed=True), "d": GuestRule(fixed=True)}
    with pytest.raises(BadRulesError, match="stay on different hosts"):
        problem(tmp_path, Rules(together=(("a", "d"),), guests=fixed))
    with pytest.raises(BadRulesError, match="no host may have them all"):
        problem(tmp_path, Rules(together=(("a", "d"),), guests={"a": GuestRule(host="h1"), "d": GuestRule(host="h2")}))
    assert plan_of(tmp_path, Rules(together=(("a", "d"),), guests={"d": GuestRule(fixed=True)})).placement["id-a"] == "h2"


def test_a_name_means_the_verified_guest_and_never_two(tmp_path: Path) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 100)]), guest("b", [(2, 100)])]))
    impostor = guest("x", [(3, 100)], verified=False)
    object.__setattr__(impostor, "name", "a")
    put(tmp_path, MadeHost("h2", [impostor]))
    fleet, built, _ = problem(tmp_path, Rules(together=(("a", "b"),)))
    assert sorted(fleet.guests[g].id for g in next(item for item in built.items if len(item) == 2)) == ["id-a", "id-b"]
    second = guest("y", [(3, 100)])
    object.__setattr__(second, "name", "a")
    put(tmp_path, MadeHost("h3", [second]))
    with pytest.raises(BadRulesError, match="2 guests are named a: name one by its id"):
        problem(tmp_path, Rules(together=(("a", "b"),)))
    problem(tmp_path, Rules(together=(("id-a", "b"),)))
    with pytest.raises(BadRulesError, match="are one guest"):
        problem(tmp_path, Rules(guests={"b": GuestRule(fixed=True), "id-b": GuestRule(host="h1")}))


def test_what_no_platform_moves_stays(tmp_path: Path) -> None:
    put(tmp_path, MadeHost("h1", [guest("c", [(1, 1000)], kind="container"), guest("b", [(2, 500)])]))
    put(tmp_path, MadeHost("h2", [guest("s", [(1, 1000)], kind="service")]))
    plan = plan_of(tmp_path, Rules())
    assert plan.steps == [] or {step.guest for step in plan.steps} == {"b"}
    assert any("no platform moves a container" in left for left in plan.left_out)


def test_no_guest_goes_to_a_host_with_a_guest_that_may_be_of_another_domain(tmp_path: Path) -> None:
    lost = guest("lost", [(4, 100)])
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)], domain="red"), lost]))
    put(tmp_path, MadeHost("h2", [guest("b", [(1, 1000)], domain="red"), lost]))
    put(tmp_path, MadeHost("h3", [guest("c", [(1, 1000)], domain="red")]))
    plan = plan_of(tmp_path, Rules())
    assert {step.target for step in plan.steps} == {"h3"}


def test_a_guest_that_is_pinned_does_not_pin_a_new_one_like_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "s")
    (tmp_path / "r.toml").write_text('apart = [["a", "b"]]\n' + "".join(f"[guests.{n}]\nfixed = true\n" for n in "abcdef"))
    assert main(["plan", "admit", str(tmp_path / "s"), "--like", "a", "--rules", str(tmp_path / "r.toml")]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["h1", "h2"]


@pytest.mark.parametrize("guests", [0, 1, 2])
def test_fleets_of_no_guest_one_host_and_pins_have_plans(tmp_path: Path, guests: int, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "s", MadeHost("h1", [guest(f"g{n}", [(1, 100)]) for n in range(guests)]))
    plan = tmp_path / "plan.json"
    for command in (["plan", "new", "--out", str(plan)], ["plan", "improve"], ["overlap"], ["report", "--html", str(tmp_path / "page")]):
        assert main([*command, str(tmp_path / "s")]) == 0
    assert read_plan(str(plan)).steps == []
    for command in (["apply", str(plan)], ["apply", str(plan), "--run"]):
        assert main(command) == 0
    capsys.readouterr()
    put(tmp_path / "s", MadeHost("h1", [guest(f"g{n}", [(1, 100)], more={"saved_bytes": 100 * 4096}) for n in range(guests)]))
    assert main(["check", str(plan), str(tmp_path / "s")]) == 0
    assert "kept" in capsys.readouterr().out


def test_rules_for_each_guest_of_a_large_fleet_are_found_in_one_step_each(tmp_path: Path) -> None:
    """With a search through all guests for each name this would take a quarter of an hour."""
    two_images(tmp_path)
    one = load(tmp_path)[0]
    guests = [replace(one.guests[0], id=f"id-{n}", name=f"g{n}") for n in range(30_000)]
    names = Names(replace(one, guests=guests))
    pairs = ", ".join(f'["g{n}", "id-{n + 1}"]' for n in range(0, 30_000, 3))
    text = f'together = [{pairs}, ["g0", "g3", "g29999"]]\n'
    (tmp_path / "r.toml").write_text(text + "".join(f"[guests.g{n}]\ncpus = {n}\n" for n in range(30_000)))
    rules = read_rules(str(tmp_path / "r.toml"))
    assert [rule.cpus for rule in guest_rules(names, rules)] == list(range(30_000))
    found = _components(names, rules)
    assert len(found) == 20_000 - 2 and found[0] == [0, 1, 3, 4, 29_999] and found[1] == [2] and found[2] == [5] and found[3] == [6, 7]


def test_rules_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text("#" * (rules_module.MOST_BYTES + 1))
    with pytest.raises(BadRulesError, match="more than 16 MiB"):
        read_rules(str(path))
    with pytest.raises(BadRulesError, match="more than 16 MiB"):
        read_rules("/dev/zero")
    path.write_text("apart = " + "[" * 100_000)
    with pytest.raises(BadRulesError, match=r"rules\.toml: its values are nested too deeply"):
        read_rules(str(path))
