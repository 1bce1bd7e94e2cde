"""Says how often `check` is right, and the intervals of plans hold the truth: python bench/check.py [FLEETS] [KEYS] [HOSTS...].

Plans so many known fleets of each size at each rate. Each plan comes true, and once more with three tenths of all shared contents gone, under
so many keys that the contents have which the plan was not made by. The standard error is that of the mean over plans.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from ksmith_fleet.check import Verdict
from ksmith_fleet.simulate.executed import plan_known, shared_lost
from ksmith_fleet.simulate.known import make_known

fleets, keys, *sizes = (int(word) for word in sys.argv[1:]) if len(sys.argv) > 2 else (100, 20)
for hosts in sizes or (3, 10):
    for bits in (4, 6, 8):
        random = np.random.default_rng((hosts, bits))
        true: list[list[str]] = []
        false: list[list[str]] = []
        held: dict[str, list[float]] = {}
        for _ in range(fleets):
            fleet = make_known(hosts, random, scale=0.5)
            with tempfile.TemporaryDirectory() as directory:
                planned = plan_known(fleet, bits, random, Path(directory))
            assert planned.plan.steps, "a plan without moves promises what is"
            less = shared_lost(fleet)
            each = [planned.with_new_held_out(random) for _ in range(keys)]
            true.append([one.execute(fleet).verdict for one in each])
            false.append([one.execute(less).verdict for one in each])
            of_plan: dict[str, list[bool]] = {}
            for figure in (figure for one in each for figure in one.figures()):
                of_plan.setdefault(figure.name, []).append(figure.is_held)
            for name, found in of_plan.items():
                held.setdefault(name, []).append(float(np.mean(found)))
        print(f"{hosts} hosts, 1/{2**bits}")
        for said, verdicts in (("came true", true), ("did not", false)):
            parts = {verdict: np.mean(np.array(verdicts) == verdict, axis=1) for verdict in Verdict}
            texts = (f"{verdict} {part.mean():.1%} (se {part.std() / np.sqrt(fleets):.1%})" for verdict, part in parts.items())
            print(f"  {said}: " + ", ".join(texts))
        for name, parts_held in held.items():
            print(f"  {name}: held {np.mean(parts_held):.1%} (se {np.std(parts_held) / np.sqrt(len(parts_held)):.1%})", flush=True)
