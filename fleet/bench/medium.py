"""Plans medium clusters, and compares with CP-SAT: python bench/medium.py [--sizes 12x60] [--factors 1.2] [--seconds 3600] [--no-hint].

Needs the extra `dev`. Guests of the fitted generator are spread over equal hosts, each with so many times the memory that the fullest one
needs. The solver places all guests at once, and no order of moves need lead there; it begins with what the planner reaches.
"""

import argparse
import json
import time
from dataclasses import dataclass, replace

import numpy as np
from ortools.sat.python import cp_model

from ksmith_fleet.cli.limits import SEARCH_S
from ksmith_fleet.cli.simulate import _model
from ksmith_fleet.placement.exact import atoms
from ksmith_fleet.placement.problem import Ints, Problem
from ksmith_fleet.placement.state import State
from ksmith_fleet.planner import Outcome, plan_new
from ksmith_fleet.simulate.generator import make, problem_of
from ksmith_fleet.simulate.policies import POLICIES

UNIT = 16
"""Parts of a page in which the solver counts memory."""


@dataclass(frozen=True)
class Solved:
    """The best placement that the solver found, and the most pages that any shares by its bound."""

    bin_of: Ints
    most_shared: float
    status: str


def medium(hosts: int, guests: int, factor: float, seed: int, contents: int) -> Problem:
    """Makes a cluster whose guests were put where most memory was free, with `factor` times the memory that the fullest host needs then."""
    problem = problem_of(make(_model(None), guests, seed, contents=contents), hosts, np.inf)
    state, random = State(problem), np.random.default_rng(seed)
    for item in range(guests):
        state.put(item, POLICIES["spread"](state, item, random))
    return replace(problem, capacity=np.full(hosts, factor * float(state.need.max())), current=state.bin_of.copy())


def solve(problem: Problem, seconds: float, hint: Ints | None, log: bool = False) -> Solved | None:
    """Places all items so that they share most, by one thread of CP-SAT. Knows memory only: no other limit, and no rule.

    Contents with the same holders are one class. Its frames are paid once on each bin that has any of its holders.
    """
    classes = [(held, count) for held, count in atoms(problem) if len(held) > 1]
    model = cp_model.CpModel()
    on = [[model.new_bool_var("") for _ in range(problem.bins)] for _ in range(problem.items)]
    paid = [[model.new_bool_var("") for _ in range(problem.bins)] for _ in classes]
    for row in on:
        model.add_exactly_one(row)
    frames = np.zeros(problem.items)
    for (held, count), row in zip(classes, paid, strict=True):
        frames[held] += count
        for item in held.tolist():
            for where in range(problem.bins):
                model.add_implication(on[item][where], row[where])
    value = problem.page_value
    # Rounded up, so that what fits here fits.
    alone = [int(pages) for pages in np.ceil((problem.own - value * frames) * UNIT)]
    weight = [int(np.ceil(value * count * UNIT)) for _, count in classes]
    for where in range(problem.bins):
        need = sum(pages * row[where] for pages, row in zip(alone, on, strict=True))
        need += sum(pages * row[where] for pages, row in zip(weight, paid, strict=True))
        model.add(need <= int(problem.capacity[where] * UNIT))
    model.minimize(sum(count * sum(row) for (_, count), row in zip(classes, paid, strict=True)))
    if hint is not None:
        for item, row in enumerate(on):
            for where, variable in enumerate(row):
                model.add_hint(variable, int(hint[item] == where))
        for (held, _), row in zip(classes, paid, strict=True):
            for where, variable in enumerate(row):
                model.add_hint(variable, int((hint[held] == where).any()))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    # One thread takes turns with all strategies. Without turns it would have one strategy, and no search of neighbourhoods.
    solver.parameters.num_workers = 1
    solver.parameters.interleave_search = True
    solver.parameters.log_search_progress = log
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    bin_of = np.array([[solver.boolean_value(variable) for variable in row] for row in on]).argmax(axis=1)
    return Solved(bin_of, value * (float(frames.sum()) - solver.best_objective_bound), solver.status_name(status))


def followed(problem: Problem, outcome: Outcome) -> State:
    """Makes the moves one by one, each of a guest that finds its whole memory free."""
    state = State(problem, problem.current)
    for move in outcome.moves:
        state.take(move.item)
        assert state.receives(move.item, state.gains(move.item))[move.target]
        state.put(move.item, move.target)
    assert not state.faults()
    return state


def main() -> None:
    """Prints a line of JSON for each cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["12x60"], help="hosts x guests")
    parser.add_argument("--factors", nargs="+", type=float, default=[1.2])
    parser.add_argument("--seconds", type=float, default=3600.0, help="time of the solver")
    parser.add_argument("--plan-seconds", type=float, default=SEARCH_S)
    parser.add_argument("--contents", type=int, default=100, help="sampled contents of a guest, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-hint", action="store_true", help="the solver begins with nothing")
    parser.add_argument("--log", action="store_true", help="print the solver's own log")
    options = parser.parse_args()
    for size in options.sizes:
        hosts, guests = (int(word) for word in size.split("x"))
        for factor in options.factors:
            problem = medium(hosts, guests, factor, options.seed, options.contents)
            before = State(problem, problem.current).shared()
            # By the CPU time that it gets, since the machine may have other work.
            outcome = plan_new(problem, options.plan_seconds, time.process_time)
            after = followed(problem, outcome)
            said = {"hosts": hosts, "guests": guests, "memory": factor, "contents": problem.incidence.number,
                    "plan_cpu_seconds": round(outcome.seconds, 1), "moves": len(outcome.moves),
                    "plan_gain_pages": round(after.shared() - before), "bound_gain_pages": round(outcome.most_shared - before)}  # fmt: skip
            print(json.dumps(said), flush=True)
            begin, spent = time.monotonic(), time.process_time()
            solved = solve(problem, options.seconds, None if options.no_hint else after.bin_of, options.log)
            if solved is None:
                print(json.dumps({"solver": "found no placement"}), flush=True)
                continue
            best = State(problem, solved.bin_of)
            assert not best.faults()
            gain = best.shared() - before
            print(json.dumps({"solver_seconds": round(time.monotonic() - begin), "solver_cpu_seconds": round(time.process_time() - spent),
                              "solver_gain_pages": round(gain),
                              "solver_bound_pages": round(solved.most_shared - before), "status": solved.status,
                              "plan_of_solver": round((after.shared() - before) / gain, 4)}), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
