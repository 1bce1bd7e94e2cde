"""Plans: moves that a goal makes worth their price, or a place for one more guest."""

import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ksmith_fleet.placement.arrival import ranked
from ksmith_fleet.placement.bound import bound
from ksmith_fleet.placement.build import Built
from ksmith_fleet.placement.empty import empty_bins
from ksmith_fleet.placement.exact import solve
from ksmith_fleet.placement.goal import TIE, Budget, Clock, Goal, Path
from ksmith_fleet.placement.greedy import place_all
from ksmith_fleet.placement.joint import can_search, search_jointly
from ksmith_fleet.placement.moves import Move, best_moves, best_part, carry_out, order_moves, shorten
from ksmith_fleet.placement.neighbourhood import search_neighbourhoods
from ksmith_fleet.placement.problem import Ints, Problem
from ksmith_fleet.placement.relabel import MOST_BINS, relabel
from ksmith_fleet.placement.repair import repair
from ksmith_fleet.placement.ruin import ruin_and_recreate
from ksmith_fleet.placement.search import SHARE
from ksmith_fleet.placement.search import improve as search
from ksmith_fleet.placement.state import State


@dataclass(frozen=True)
class Outcome:
    """A placement that is reached by moves, and how good it is. Memory is in pages."""

    moves: list[Move]
    before: State
    after: State
    most_shared: float
    """The most that any placement shares, by the better of bound and solver."""
    seconds: float


def plan_new(problem: Problem, seconds: float = 30.0, clock: Clock = time.monotonic) -> Outcome:
    """Plans the placement that shares most, whatever has to move for it."""
    return plan_goal(problem, SHARE, Budget(), seconds, clock)


def plan_improve(problem: Problem, most_moves: int, most_pages: float, price: float, seconds: float = 30.0, clock: Clock = time.monotonic) -> Outcome:
    """Plans at most so many moves and pages moved that gain `price` pages for each page moved."""
    return plan_goal(problem, Goal("save", price), Budget(most_moves, most_pages), seconds, clock)


def plan_goal(
    problem: Problem, goal: Goal, budget: Budget, seconds: float = 30.0, clock: Clock = time.monotonic, is_bound_solved: bool = True
) -> Outcome:
    """Plans moves for a goal. Rules that are broken now are mended first, by moves that need not pay.

    A small cluster is searched exactly. In a large one several ways are tried from each placement that is reached, and the best is gone.
    With `is_bound_solved` the solver has the time that is left to lower the bound; it does not change the plan.
    """
    begin = clock()
    goal = replace(goal, price=max(goal.price, TIE))
    movable = np.flatnonzero(problem.movable & (problem.current >= 0) & _may_leave(problem))
    if can_search(problem.bins, len(movable)):
        path = search_jointly(State(problem, problem.current), movable, np.arange(problem.bins), goal, budget)
    else:
        path = _search_large(problem, goal, budget, begin, begin + seconds * 0.8, clock)
    moves, after = carry_out(problem, path)
    limit = bound(problem).shared
    left = begin + seconds - clock()
    solved = solve(problem, left) if is_bound_solved and goal.kind == "save" and left > 0 else None
    if solved is not None:
        limit = min(limit, max(solved[1], 0.0))
    return Outcome(moves, State(problem, problem.current), after, limit, clock() - begin)


def _may_leave(problem: Problem) -> npt.NDArray[np.bool_]:
    """Says for each item whether it may go to another bin than its own."""
    if problem.allowed is None:
        return np.ones(problem.items, dtype=bool)
    return problem.allowed.have_others(problem.current)


def _search_large(problem: Problem, goal: Goal, budget: Budget, begin: float, end: float, clock: Clock) -> Path:
    path = repair(problem, goal, budget, end, clock)
    if goal.kind == "empty":
        path += empty_bins(_after(problem, path), goal, budget.after(problem, path), end, clock)
    is_better = True
    while is_better and clock() < end:
        now, left = _after(problem, path), budget.after(problem, path)
        ways = [best_moves(now, goal, left, end, clock), *_ways_to_targets(now, goal, end, clock)]
        parts = [best_part(now, way, goal, left) for way in ways]
        best = parts[0]
        for part in parts[1:]:
            if part[1].is_above(best[1]):
                best = part
        path += best[0]
        now, left = _after(problem, path), budget.after(problem, path)
        more = search_neighbourhoods(now, goal, left, (end - clock()) / 2, clock=clock)
        path += more
        is_better = bool(best[0] or more)
    return shorten(problem, path, goal, budget, end + (end - begin) / 4, clock)


def _ways_to_targets(problem: Problem, goal: Goal, end: float, clock: Clock) -> list[Path]:
    """Gives the ways to what local search finds, from the placement now and from an empty fleet, as far as they are known by `end`."""
    seconds = (end - clock()) / 5
    wanted = State(problem, problem.current)
    _search(wanted, seconds, goal, clock)
    ways = [order_moves(problem, _named(problem, wanted), end, clock)[0]]
    del wanted
    if goal.kind == "save" and problem.bins <= MOST_BINS and clock() < end:
        anew, refused = place_all(problem, end=end, clock=clock)
        _search(anew, seconds, SHARE, clock)
        if not refused:
            ways.append(order_moves(problem, _named(problem, anew), end, clock)[0])
    return ways


def _named(problem: Problem, target: State) -> Ints:
    return relabel(problem, target.bin_of) if problem.bins <= MOST_BINS else target.bin_of


def _search(state: State, seconds: float, goal: Goal, clock: Clock) -> None:
    """Searches from a placement: to where no move and no swap betters it, and on from there."""
    begin = clock()
    search(state, seconds, clock=clock, goal=goal)
    ruin_and_recreate(state, goal, begin + seconds - clock(), clock=clock)


def _after(problem: Problem, path: Path) -> Problem:
    """Gives the problem as it is after some moves."""
    current: Ints = problem.current.copy()
    for item, where in path:
        current[item] = where
    return replace(problem, current=current)


@dataclass(frozen=True)
class Place:
    """One host for a new guest: the pages that it would share, and the pages that then stay free."""

    where: int
    shared: float
    free: float


def plan_admit(built: Built, like: int) -> list[Place]:
    """Ranks the bins for one more guest like an existing one, the best first. Only bins with room for its arrival count.

    The problem must have been made by rules for an admission, or the place of the existing guest binds the new one.
    """
    problem = built.problem
    state = State(problem, problem.current)
    gains = state.gains(like)
    room = problem.capacity - state.need
    order = ranked(state, like, gains, state.receives(like, gains))
    return [Place(int(b), float(gains[b]), float(room[b] - problem.own[like] + gains[b])) for b in order]
