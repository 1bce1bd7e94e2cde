"""Empties bins, so that hosts can be switched off."""

from dataclasses import replace

import numpy as np

from ksmith_fleet.placement.goal import Budget, Clock, Goal, Path, without
from ksmith_fleet.placement.problem import Problem
from ksmith_fleet.placement.repair import repair
from ksmith_fleet.placement.state import State


def empty_bins(problem: Problem, goal: Goal, budget: Budget, end: float, clock: Clock) -> Path:
    """Empties one bin after the other, the one with the least memory to move first. A bin that cannot be emptied stays as it is."""
    path: Path = []
    state = State(problem, problem.current)
    can = np.array(goal.may_empty or (True,) * problem.bins)
    memory = np.bincount(problem.current[problem.current >= 0], weights=problem.arrival[problem.current >= 0], minlength=problem.bins)
    closed = [int(where) for where in np.flatnonzero(can & (state.load == 0))]
    for where in np.argsort(memory, kind="stable").tolist():
        on_it = state.bin_of == where
        if clock() >= end:
            break
        if not can[where] or not on_it.any() or not problem.movable[on_it].all():
            continue
        now = State(without(problem, [*closed, where]), state.bin_of)
        more = _drain(now, where, budget, end, clock)
        if more:
            for item, target in more:
                state.move(item, target)
            path += more
            budget = budget.after(problem, more)
            closed.append(where)
    return path


def _drain(state: State, where: int, budget: Budget, end: float, clock: Clock) -> Path:
    """Gives moves that empty a bin, or none."""
    problem = replace(state.problem, current=state.bin_of.copy())
    path = repair(problem, Goal("drain"), budget, end, clock)
    now = problem.current.copy()
    for item, target in path:
        now[item] = target
    return path if not (now == where).any() else []
