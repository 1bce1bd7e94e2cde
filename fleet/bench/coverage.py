"""Says how often the interval of a prediction, with the pages that change, holds what KSM merged: python bench/coverage.py [PATTERNS.json] [KEYS].

Sketches of each set of guests are drawn at each rate under many keys (`ksmith_fleet.simulate.patterns`).
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from ksmith_fleet.simulate.patterns import foretell, read_patterns

KEPT = Path(__file__).parent.parent / "testdata" / "truth" / "patterns.json"
patterns = read_patterns(Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT)
keys = int(sys.argv[2]) if len(sys.argv) > 2 else 200
random = np.random.default_rng(1)
for bits in (0, 3, 4, 5, 6, 7, 8):
    errors, inside, width = [], [], []
    for truth in patterns.truths:
        drawn = [foretell(patterns, truth.guests, bits, random) for _ in range(keys if bits else 1)]
        found = [replace(one, low=one.low - changing, high=one.high + changing) for one, changing in drawn]
        errors.append([one.expected / truth.sharing - 1 for one in found])
        inside.append([one.low <= truth.sharing <= one.high for one in found])
        width.append([(one.high - one.low) / 2 / truth.sharing for one in found])
        if not bits:
            names, one = ", ".join(patterns.names[g] for g in truth.guests), found[0]
            print(f"{names}: KSM merged {truth.sharing}, foretold {one.expected:.0f} ({one.low:.0f} to {one.high:.0f}), {errors[-1][0]:+.2%}")
    e, i = np.array(errors), np.array(inside)
    worst = e.ravel()[np.abs(e).argmax()]
    print(
        f"rate 1/{2**bits}: {e.shape[0]} sets x {e.shape[1]} keys, mean {e.mean():+.2%}, mean absolute {np.abs(e).mean():.2%}, "
        f"worst {worst:+.1%}, within 5 %: {(np.abs(e) <= 0.05).mean():.1%}, in the interval: {i.mean():.1%} "
        f"(worst set {i.mean(axis=1).min():.1%}), half width {np.median(width):.1%}"
    )
