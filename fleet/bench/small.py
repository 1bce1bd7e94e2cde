"""Plans small clusters, and compares with the best that any order of moves reaches: python bench/small.py [INSTANCES] [SECONDS] [SEED]."""

import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from brute_force import best_reachable, broken, cluster, followed, with_rules

from ksmith_fleet.placement.state import State
from ksmith_fleet.planner import plan_improve, plan_new

instances, seconds, seed = (int(word) for word in (sys.argv[1:] + ["100", "5", "1"][len(sys.argv) - 1 :]))


def row(name: str, random: np.random.Generator, factor: float) -> None:
    """Prints what part of the best gain the planner reaches."""
    parts, spent = [], []
    while len(parts) < instances:
        problem = cluster(random, factor, int(random.integers(3, 5)), int(random.integers(7, 11)))
        if len(parts) % 3 == 2:
            problem = with_rules(random, problem)
        best = best_reachable(problem)
        before = State(problem, problem.current).shared()
        if best.shared <= before + 1e-6:
            continue
        begin = time.process_time()
        after = followed(problem, plan_new(problem, seconds))
        spent.append(time.process_time() - begin)
        assert not after.faults()
        parts.append((after.shared() - before) / (best.shared - before))
        assert parts[-1] <= 1 + 1e-9
    print(json.dumps({"row": name, "instances": instances, "mean": round(float(np.mean(parts)), 4), "worst": round(min(parts), 4),
                      "cpu_seconds_mean": round(float(np.mean(spent)), 2), "cpu_seconds_most": round(max(spent), 2)}), flush=True)  # fmt: skip


def repairs(kind: str, random: np.random.Generator) -> None:
    """Prints how many clusters are repaired, of those that some order of moves repairs."""
    possible = repaired = 0
    for _ in range(instances):
        problem = broken(random, kind, int(random.integers(3, 5)), int(random.integers(7, 10)))
        assert State(problem, problem.current).faults()
        is_possible = best_reachable(problem).repairs
        is_repaired = not followed(problem, plan_improve(problem, 10, np.inf, 0.5, seconds)).faults()
        possible += is_possible
        repaired += is_repaired
        assert is_possible or not is_repaired
    print(json.dumps({"row": kind, "instances": instances, "possible": possible, "repaired": repaired}), flush=True)


for factor in (1.02, 1.2, 1.6):
    row(f"memory {factor}", np.random.default_rng((seed, int(100 * factor))), factor)
repairs("apart", np.random.default_rng((seed, 1)))
repairs("overfull", np.random.default_rng((seed, 2)))
