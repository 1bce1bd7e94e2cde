"""The solver: the best placement of a small fleet as a mixed integer program, by HiGHS."""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from ksmith_fleet.placement.problem import Ints, Problem
from ksmith_fleet.placement.state import are_strangers

LARGEST = 40_000
"""The largest number of variables that is tried."""


def atoms(problem: Problem) -> list[tuple[Ints, int]]:
    """Joins contents that exactly the same items hold: the items, and the number of contents."""
    incidence = problem.incidence
    item_of = np.repeat(np.arange(problem.items), np.diff(incidence.starts))
    order = np.lexsort((item_of, incidence.contents))
    holders = np.split(item_of[order], np.cumsum(incidence.holders())[:-1]) if incidence.number else []
    groups: dict[bytes, tuple[Ints, int]] = {}
    for held in holders:
        if len(held):
            key = held.tobytes()
            groups[key] = (held, groups[key][1] + 1 if key in groups else 1)
    return list(groups.values())


def solve(problem: Problem, seconds: float) -> tuple[Ints, float] | None:
    """Finds the placement of all items that shares most, and an upper bound of what any shares.

    `x[i, b]` places item i on bin b. `y[a, b] >= x[i, b]` for each holder i of atom a, so that the frames of an atom are paid
    once a bin. The frames are minimised. Gives nothing if the program is too large or no placement was found in time.
    """
    bins, items = problem.bins, problem.items
    if items * bins > LARGEST:
        return None
    parts = [(held, count) for held, count in atoms(problem) if len(held) > 1]
    size = items * bins + len(parts) * bins
    if size > LARGEST or not items or not bins:
        return None
    value = problem.page_value
    first = items * bins
    cost = np.zeros(size)
    paid = np.zeros(items)
    for number, (held, count) in enumerate(parts):
        cost[first + number * bins : first + (number + 1) * bins] = value * count
        paid[held] += value * count
    rows: list[tuple[dict[int, float], float, float]] = []
    for item in range(items):
        rows.append(({item * bins + b: 1.0 for b in range(bins)}, 1.0, 1.0))
    for b in range(bins):
        need = {item * bins + b: problem.own[item] - paid[item] for item in range(items)}
        need |= {first + number * bins + b: value * count for number, (_, count) in enumerate(parts)}
        rows.append((need, -np.inf, float(problem.capacity[b])))
        for kind in np.flatnonzero(np.isfinite(problem.limit[b])).tolist():
            rows.append(({i * bins + b: problem.demand[i, kind] for i in range(items)}, -np.inf, float(problem.limit[b, kind])))
        for group in problem.apart:
            rows.append(({int(i) * bins + b: 1.0 for i in group}, -np.inf, 1.0))
        for one in range(items):
            for two in np.flatnonzero(are_strangers(int(problem.domain[one]), problem.domain[:one])).tolist():
                rows.append(({one * bins + b: 1.0, two * bins + b: 1.0}, -np.inf, 1.0))
        for number, (held, _) in enumerate(parts):
            for item in held:
                rows.append(({first + number * bins + b: 1.0, int(item) * bins + b: -1.0}, 0.0, np.inf))
    top = np.ones(size)
    bottom = np.zeros(size)
    for item in range(items):
        if problem.allowed is not None:
            top[item * bins : (item + 1) * bins] = problem.allowed.of(item)
        if not problem.movable[item] and problem.current[item] >= 0:
            bottom[item * bins + problem.current[item]] = 1.0
    integral = np.zeros(size, dtype=np.int64)
    integral[:first] = 1
    at = [(r, column, factor) for r, (row, _, _) in enumerate(rows) for column, factor in row.items()]
    matrix = coo_array(
        ([factor for _, _, factor in at], ([r for r, _, _ in at], [column for _, column, _ in at])),
        shape=(len(rows), size),
    ).tocsr()
    limits = LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])
    answer = milp(cost, constraints=limits, integrality=integral, bounds=Bounds(bottom, top), options={"time_limit": seconds})
    if answer.x is None:
        return None
    where = np.argmax(answer.x[:first].reshape(items, bins), axis=1).astype(np.int64)
    least = answer.mip_dual_bound if answer.mip_dual_bound is not None else 0.0
    return where, float(paid.sum() - least)
