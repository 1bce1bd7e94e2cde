"""Says how often `check` is right: python bench/check.py [FLEETS].

Plans so many known fleets of each size at each rate. Each plan comes true, and once more with three tenths of all shared contents gone.
"""

import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from ksmith_fleet.simulate.executed import execute, plan_known
from ksmith_fleet.simulate.known import make_known

for hosts in (3, 10):
    for bits in (4, 6, 8):
        random = np.random.default_rng((hosts, bits))
        true: Counter[str] = Counter()
        false: Counter[str] = Counter()
        held: list[bool] = []
        for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100):
            fleet = make_known(hosts, random, scale=0.5)
            with tempfile.TemporaryDirectory() as directory:
                plan, read = plan_known(fleet, bits, random, Path(directory))
            is_shared = (fleet.steady > 0).sum(axis=1) > 1
            less = replace(fleet, counts=np.where(is_shared, fleet.counts * 7 // 10, fleet.counts))
            checked = execute(fleet, plan, read, fleet)
            true[checked.verdict] += 1
            false[execute(fleet, plan, read, less).verdict] += 1
            held += [kept.promised.low <= (kept.saved or 0) <= kept.promised.high for kept in checked.hosts]
        print(f"{hosts} hosts, 1/{2**bits}: came true {dict(true)}, did not {dict(false)}, intervals held {np.mean(held):.1%}", flush=True)
