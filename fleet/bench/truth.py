"""Compares predictions from the guests' own sketches with what KSM merged: python bench/truth.py SKETCHES TRUTH.jsonl.

SKETCHES holds one file a guest, each taken while the guest did not merge with any other; TRUTH has what
testdata/fleet-guests/together measured. Each set is predicted at the sketches' rate and at lower ones.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from ksmith_fleet.consistency import thin
from ksmith_fleet.estimate import saved_together
from ksmith_fleet.files import Sketch, read_sketch

sketches = {path.stem: read_sketch(str(path)) for path in Path(sys.argv[1]).glob("*.parquet")}
truths = [json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines()]


def predict(parts: list[Sketch]) -> tuple[float, float, float]:
    """Predicts the pages that KSM merges if these guests share a host, without pages of zeros."""
    rate = 2.0 ** -parts[0].host.rate_bits
    everything = np.concatenate([part.fingerprints for part in parts])
    copies = np.concatenate([part.copies for part in parts])
    _, which = np.unique(everything, return_inverse=True)
    frames = np.ceil(np.bincount(which, weights=copies) / 256)
    guests = [replace(g, pages=g.pages - g.zero_pages, zero_pages=0) for part in parts for g in part.guests]
    found = saved_together(guests, frames.sum(), (frames**2).sum(), rate, True, 256, float(copies.sum()))
    return found.expected, found.low, found.high


finest = next(iter(sketches.values())).host.rate_bits
for bits in range(finest, 9):
    errors, whole, inside = [], [], 0
    for truth in truths:
        if truth["foreign"]:
            continue
        parts = [thin(sketches[name], bits) for name in truth["guests"]]
        expected, low, high = predict(parts)
        errors.append(expected / truth["sharing"] - 1)
        inside += low <= truth["sharing"] <= high
        zeros = sum(guest.zero_pages for part in parts for guest in part.guests)
        if "unmapped" in truth:
            whole.append((expected + zeros) / (truth["sharing"] + truth["unmapped"]) - 1)
        if bits == finest:
            print(
                f"{', '.join(truth['guests'])}: KSM merged {truth['sharing']} pages, predicted {expected:.0f} "
                f"({low:.0f} to {high:.0f}), {errors[-1]:+.1%}; zeros: {truth.get('unmapped', '?')} freed, predicted {zeros}"
            )
    print(
        f"rate 1/{2**bits}: {len(errors)} sets, mean {np.mean(errors):+.1%}, mean absolute {np.mean(np.abs(errors)):.1%}, "
        f"worst {max(errors, key=abs):+.1%}, {sum(abs(e) <= 0.05 for e in errors)} within 5 %, {inside} in the interval; "
        f"with zeros {len(whole)} sets, worst {max(whole, key=abs, default=0):+.1%}"
    )
