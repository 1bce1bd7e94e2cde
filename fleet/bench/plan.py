"""Plans a made-up fleet that was filled at random, and times it: python bench/plan.py [HOSTS] [GUESTS] [SECONDS] [SEED]."""

import json
import sys
import time

import numpy as np

from ksmith_fleet.cli.simulate import _model
from ksmith_fleet.placement.state import State
from ksmith_fleet.planner import Outcome, plan_improve, plan_new
from ksmith_fleet.simulate.generator import make, problem_of
from ksmith_fleet.simulate.policies import POLICIES

hosts, guests, seconds, seed = (int(word) for word in (sys.argv[1:] + ["1000", "10000", "30", "1"][len(sys.argv) - 1 :]))
crowd = make(_model(None), guests, seed)
# Random placement fills the hosts to some 70 %, so that moves find room.
problem = problem_of(crowd, hosts, float(crowd.pages.mean()) * guests / hosts * 1.15)
state, random = State(problem), np.random.default_rng(seed)
for item in range(guests):
    state.put(item, POLICIES["random"](state, item, random))
problem.current[:] = state.bin_of


def say(mode: str, outcome: Outcome, begin: float) -> None:
    """Prints what came of it, in GiB."""
    gib = 4096 / 2**30 / problem.kept
    after = State(problem, problem.current)
    for move in outcome.moves:
        after.take(move.item)
        assert after.need[move.target] + problem.arrival[move.item] <= problem.capacity[move.target] + 1e-3
        after.put(move.item, move.target)
    assert not after.faults()
    print(
        json.dumps(
            {
                "mode": mode, "hosts": hosts, "guests": guests, "seconds": round(time.monotonic() - begin, 1), "moves": len(outcome.moves),
                "shared_before_gib": round(outcome.before.shared() * gib, 1), "shared_after_gib": round(outcome.after.shared() * gib, 1),
                "bound_gib": round(outcome.most_shared * gib, 1), "of_bound": round(outcome.after.shared() / outcome.most_shared, 4),
            }
        ),
        flush=True,
    )  # fmt: skip


begin = time.monotonic()
say("improve", plan_improve(problem, 200, np.inf, 0.05, seconds / 3), begin)
begin = time.monotonic()
say("new", plan_new(problem, seconds), begin)
