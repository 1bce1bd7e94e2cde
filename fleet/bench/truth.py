"""Compares predictions from the guests' own sketches with what KSM merged: python bench/truth.py SKETCHES TRUTH.jsonl.

SKETCHES holds one file a guest, each taken while the guest did not merge with any other; TRUTH has what
testdata/fleet-guests/together measured. Each set is predicted at the sketches' rate and at lower ones.
"""

import json
import sys
from pathlib import Path

import numpy as np

from ksmith_fleet.consistency import thin
from ksmith_fleet.estimate import saved_together
from ksmith_fleet.files import Sketch, read_sketch

sketches = {path.stem: read_sketch(str(path)) for path in Path(sys.argv[1]).glob("*.parquet")}
truths = [json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines()]


def predict(parts: list[Sketch]) -> tuple[float, float, float]:
    """Predicts what KSM saves if these guests share a host, in pages."""
    rate = 2.0 ** -parts[0].host.rate_bits
    everything = np.concatenate([part.fingerprints for part in parts])
    copies = np.concatenate([part.copies for part in parts])
    _, which = np.unique(everything, return_inverse=True)
    frames = np.ceil(np.bincount(which, weights=copies) / 256)
    found = saved_together([g for part in parts for g in part.guests], frames.sum(), (frames**2).sum(), rate, True, 256, float(copies.sum()))
    return found.expected, found.low, found.high


for bits in range(parts.host.rate_bits if (parts := next(iter(sketches.values()))) else 0, 9):
    errors, inside = [], 0
    for truth in truths:
        if truth["foreign"]:
            continue
        expected, low, high = predict([thin(sketches[name], bits) for name in truth["guests"]])
        errors.append(expected / truth["saved"] - 1)
        inside += low <= truth["saved"] <= high
        if bits == parts.host.rate_bits:
            print(
                f"{len(truth['guests'])} guests, {', '.join(truth['guests'])}: KSM {truth['saved']} pages, "
                f"predicted {expected:.0f} ({low:.0f} to {high:.0f}), {errors[-1]:+.1%}"
            )
    worst = max(errors, key=abs)
    print(
        f"rate 1/{2**bits}: {len(errors)} sets, mean {np.mean(errors):+.1%}, mean absolute {np.mean(np.abs(errors)):.1%}, worst {worst:+.1%}, "
        f"{sum(abs(e) <= 0.05 for e in errors)} within 5 %, {inside} in the interval"
    )
