"""Plans on fleets with known contents."""

from pathlib import Path

import numpy as np
import pytest
from made import contents, guest, load, problem, put, two_images

from ksmith_fleet.model import Fleet
from ksmith_fleet.placement.bound import bound
from ksmith_fleet.placement.build import Built
from ksmith_fleet.placement.exact import solve
from ksmith_fleet.placement.greedy import place_all
from ksmith_fleet.placement.moves import carry_out, order_moves
from ksmith_fleet.placement.search import improve
from ksmith_fleet.placement.state import State
from ksmith_fleet.plan_file import make_plan, read_plan, write_plan
from ksmith_fleet.planner import plan_admit, plan_improve, plan_new
from ksmith_fleet.rules import BadRulesError, GuestRule, HostRule, Rules
from ksmith_fleet.simulate.write import MadeHost, write_sketch


def together(fleet: Fleet, state: State, built: Built) -> set[frozenset[str]]:
    """The sets of guests that share a host."""
    sets: dict[int, set[str]] = {}
    for number, item in enumerate(built.items):
        sets.setdefault(int(state.bin_of[number]), set()).update(fleet.guests[g].name for g in item)
    return {frozenset(names) for names in sets.values()}


def test_new_sorts_two_images_and_promises_exactly_what_they_share(tmp_path: Path) -> None:
    two_images(tmp_path)
    fleet, built, single = problem(tmp_path, Rules(apart=(("a", "b"),)))
    outcome = plan_new(built.problem, 5)
    assert together(fleet, outcome.after, built) == {frozenset("ace"), frozenset("bdf")}
    plan = make_plan(fleet, built, single, outcome)
    # Before: 1000 of one image on each host, and 50 of all in each of three guests. After: twice as much of each image.
    assert plan.gain_bytes == pytest.approx(2000 * 4096, abs=4096)
    assert [round(host.saved_after.expected / 4096) for host in plan.hosts] == [2100, 2100]
    assert plan.bound_bytes >= plan.shared_bytes
    write_plan(plan, str(tmp_path / "plan.json"))
    assert read_plan(str(tmp_path / "plan.json")) == plan


def test_improve_keeps_to_its_budget(tmp_path: Path) -> None:
    two_images(tmp_path)
    _, built, _ = problem(tmp_path)
    for most in range(4):
        outcome = plan_improve(built.problem, most, np.inf, 0.0, 2)
        assert len(outcome.moves) <= most
        assert outcome.after.shared() >= outcome.before.shared()
    assert plan_improve(built.problem, 9, 1000, 0.0, 2).moves == []
    assert plan_improve(built.problem, 9, np.inf, 5.0, 2).moves == []
    assert plan_improve(built.problem, 9, np.inf, 0.0, 2).after.shared() > 1.3 * outcome.before.shared()


def test_no_host_overflows_between_two_moves(tmp_path: Path) -> None:
    # Each host has room for its three guests unmerged, and for a little more than one that arrives.
    two_images(tmp_path, memory_bytes=4 * 1160 * 4096)
    _, built, _ = problem(tmp_path, Rules(headroom=0.0))
    target = np.array([0, 1, 0, 1, 0, 1])
    path, reached = order_moves(built.problem, target)
    assert (reached.bin_of == target).all()
    state = State(built.problem, built.problem.current)
    for item, where in path:
        assert state.need[where] + built.problem.arrival[item] <= built.problem.capacity[where] + 1e-6
        state.move(item, where)
        assert not state.faults()


def test_a_move_that_would_overflow_is_left_out(tmp_path: Path) -> None:
    image = {"a": 1, "b": 2, "c": 1, "d": 2}
    for host, names in {"h1": "ab", "h2": "cd"}.items():
        put(tmp_path, MadeHost(host, [guest(n, [(image[n], 1000)]) for n in names], memory_bytes=2050 * 4096))
    _, built, _ = problem(tmp_path, Rules(headroom=0.0))
    path, reached = order_moves(built.problem, np.array([0, 1, 0, 1]))
    assert path == []
    assert (reached.bin_of == built.problem.current).all()


def test_a_cycle_is_opened_through_a_third_host(tmp_path: Path) -> None:
    image = {"a": 1, "b": 2, "c": 1, "d": 2}
    for host, names in {"h1": "ab", "h2": "cd", "h3": ""}.items():
        put(tmp_path, MadeHost(host, [guest(n, [(image[n], 1000)]) for n in names], memory_bytes=2050 * 4096))
    _, built, _ = problem(tmp_path, Rules(headroom=0.0))
    path, reached = order_moves(built.problem, np.array([0, 1, 0, 1]))
    assert reached.bin_of.tolist() == [0, 1, 0, 1]
    assert any(move.temporary for move in carry_out(built.problem, path)[0])


def test_trust_domains_never_meet(tmp_path: Path) -> None:
    for host in ("h1", "h2"):
        guests = [guest(f"{host}-{d}-{n}", [(1, 1000), (len(d) + 5, 10)], domain=d) for d in ("red", "blue") for n in range(2)]
        put(tmp_path, MadeHost(host, guests))
    put(tmp_path, MadeHost("h3", []))
    fleet, built, _ = problem(tmp_path)
    outcome = plan_new(built.problem, 5)
    assert not outcome.after.faults()
    for names in together(fleet, outcome.after, built):
        assert len({name.split("-")[1] for name in names}) == 1
    assert State(built.problem, built.problem.current).faults()


def test_guests_without_a_domain_share_with_none_where_domains_are_in_force(tmp_path: Path) -> None:
    guests = [guest(n, [(1, 1000)], domain=d) for n, d in (("a", "red"), ("b", None), ("c", None))]
    put(tmp_path, MadeHost("h1", guests[:2]))
    put(tmp_path, MadeHost("h2", guests[2:]))
    put(tmp_path, MadeHost("h3", []))
    fleet, built, _ = problem(tmp_path)
    state, refused = place_all(built.problem)
    assert not refused
    assert together(fleet, state, built) == {frozenset("a"), frozenset("b"), frozenset("c")}


def test_rules_pin_keep_apart_and_hold_together(tmp_path: Path) -> None:
    two_images(tmp_path)
    rules = Rules(
        hosts={"h2": HostRule(cpus=6.0)},
        guests={"a": GuestRule(host="h2"), "b": GuestRule(fixed=True), "c": GuestRule(cpus=3.0), "e": GuestRule(cpus=3.0)},
        apart=(("c", "e"),),
        together=(("d", "f"),),
    )
    fleet, built, _ = problem(tmp_path, rules)
    outcome = plan_new(built.problem, 5)
    where = {fleet.guests[g].name: int(outcome.after.bin_of[n]) for n, item in enumerate(built.items) for g in item}
    assert where["a"] == 1 and where["b"] == 0 and where["c"] != where["e"] and where["d"] == where["f"]
    assert not outcome.after.faults()


def test_rules_that_contradict_each_other_or_name_strangers_are_refused(tmp_path: Path) -> None:
    two_images(tmp_path)
    for rules in (
        Rules(apart=(("a", "b"),), together=(("a", "b"),)),
        Rules(apart=(("a", "no-such-guest"),)),
        Rules(hosts={"h9": HostRule()}),
    ):
        with pytest.raises(BadRulesError):
            problem(tmp_path, rules)


def test_guests_named_by_their_own_user_stay(tmp_path: Path) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)], verified=False), guest("b", [(2, 500)])]))
    put(tmp_path, MadeHost("h2", [guest("c", [(1, 1000)])]))
    fleet, built, _ = problem(tmp_path)
    outcome = plan_new(built.problem, 5)
    assert {fleet.guests[built.items[move.item][0]].name for move in outcome.moves} == {"c"}
    assert any("only its user says" in left.why for left in built.left_out)


def test_a_class_that_a_host_does_not_take_stays_away(tmp_path: Path) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)], klass="gold")]))
    put(tmp_path, MadeHost("h2", [guest("b", [(1, 1000)], klass="bronze")]))
    _, built, _ = problem(tmp_path, Rules(hosts={"h1": HostRule(classes=("gold",)), "h2": HostRule(classes=("bronze",))}))
    assert plan_new(built.problem, 5).moves == []


def test_nodes_of_a_host_that_merges_within_nodes_are_bins_of_their_own(tmp_path: Path) -> None:
    more = {
        "numa": [{"node": 0, "memory_bytes": 1 << 29}, {"node": 1, "memory_bytes": 1 << 29}],
        "ksm": {"merge_across_nodes": 0, "use_zero_pages": 1, "max_page_sharing": 256},
    }
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)]), guest("b", [(1, 1000)])], 1 << 30, more=more))
    rules = Rules(guests={"a": GuestRule(node=0), "b": GuestRule(node=1)})
    _fleet, built, _ = problem(tmp_path, rules)
    assert len(built.bins) == 2
    outcome = plan_new(built.problem, 5)
    assert outcome.before.shared() == 0 and outcome.after.shared() > 0
    _, unknown, _ = problem(tmp_path)
    assert not unknown.problem.movable.any()


def test_admit_prefers_the_host_with_the_same_image_that_has_room(tmp_path: Path) -> None:
    two_images(tmp_path)
    put(tmp_path, MadeHost("h3", [guest("g", [(3, 1000)])]))
    fleet, built, _ = problem(tmp_path)
    like = next(n for n, item in enumerate(built.items) if fleet.guests[item[0]].name == "b")
    places = plan_admit(built, like)
    names = [fleet.hosts[built.bins[place.where].host].name for place in places]
    assert set(names[:2]) == {"h1", "h2"} and names[2] == "h3" and places[1].shared > places[2].shared
    two_images(tmp_path, memory_bytes=3550 * 4096)
    put(tmp_path, MadeHost("h3", [guest("g", [(3, 1000)])], memory_bytes=1100 * 4096))
    _, full, _ = problem(tmp_path, Rules(headroom=0.0))
    assert plan_admit(full, like) == []


def test_solver_search_and_bound_agree_on_random_small_fleets(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    for trial in range(6):
        directory = tmp_path / str(trial)
        for host in range(3):
            guests = [
                guest(f"{host}-{n}", [(int(random.integers(1, 5)), int(random.integers(100, 900))), (99, 200), (1000 + 10 * host + n, 60)])
                for n in range(3)
            ]
            write_sketch(MadeHost(f"h{host}", guests, memory_bytes=int(random.integers(3000, 4000)) * 4096), directory / f"{host}.parquet")
        _, built, _ = problem(directory, Rules(headroom=0.0))
        answer = solve(built.problem, 20)
        assert answer is not None
        best = State(built.problem, answer[0])
        assert not best.faults()
        assert best.shared() <= answer[1] + 1e-3 <= bound(built.problem).shared + 1e-3
        state, refused = place_all(built.problem)
        if not refused:
            improve(state, 5)
            assert not state.faults()
            assert state.shared() <= best.shared() + 1e-3


def test_need_is_what_the_sets_say(tmp_path: Path) -> None:
    two_images(tmp_path)
    _, built, _ = problem(tmp_path, Rules(divergence=0.0))
    state = State(built.problem, np.array([0, 0, 1, 0, 1, 1]))
    union = len(np.unique(np.concatenate([contents(1, 1000), contents(2, 1000), contents(99, 50)]))) + 300
    assert state.need[0] == pytest.approx(union)
    for item in range(6):
        state.put(item, state.take(item))
    assert state.need[0] == pytest.approx(union)


def test_incidence_has_the_contents_of_two_or_more_guests_only(tmp_path: Path) -> None:
    two_images(tmp_path)
    fleet, incidence, single = load(tmp_path)
    assert incidence.number == 2050
    assert single.contents.tolist() == [1150.0] * 6
    assert len(fleet.guests) == 6
