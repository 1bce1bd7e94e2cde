"""Predictions against what KSM merged of real guests."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ksmith_fleet.consistency import thin
from ksmith_fleet.files import read_sketch
from ksmith_fleet.simulate.patterns import Patterns, foretell, read_patterns

TRUTH = Path(__file__).parent.parent / "testdata" / "truth"
KEYS = 60
"""Keys under which each set of guests is sampled."""


@pytest.fixture(scope="module")
def patterns() -> Patterns:
    return read_patterns(TRUTH / "patterns.json")


@pytest.mark.parametrize("bits", [3, 4, 5, 6])
def test_intervals_and_what_changes_hold_what_ksm_merged_in_95_of_100_cases(patterns: Patterns, bits: int) -> None:
    random = np.random.default_rng(bits)
    held = [truth_in(patterns, set_, bits, random) for set_ in range(len(patterns.truths)) for _ in range(KEYS)]
    assert len(held) >= 600 and 0.93 <= np.mean(held) <= 0.97


def truth_in(patterns: Patterns, number: int, bits: int, random: np.random.Generator) -> bool:
    truth = patterns.truths[number]
    found, changing = foretell(patterns, truth.guests, bits, random)
    return found.low - changing <= truth.sharing <= found.high + changing


def rms_error(patterns: Patterns, private: int, is_counted: bool) -> float:
    """Gives the relative error at 1/64 beside the full rate, if each guest has so many times the pages of its own that none has twice."""
    alone = (patterns.copies.sum(axis=1) == 1) & (patterns.steady.sum(axis=1) == 1)
    counts = np.where(alone, patterns.counts * private, patterns.counts)
    known = replace(patterns, counts=counts, nonzero=counts @ patterns.copies)
    random = np.random.default_rng(5)
    errors = []
    for truth in patterns.truths:
        exact = foretell(known, truth.guests, 0, random, is_counted=is_counted)[0].expected
        errors += [foretell(known, truth.guests, 6, random, is_counted=is_counted)[0].expected / exact - 1 for _ in range(KEYS)]
    return float(np.sqrt(np.mean(np.square(errors))))


def test_counted_heavy_contents_halve_the_error_and_free_it_of_private_memory(patterns: Patterns) -> None:
    counted, sampled = rms_error(patterns, 1, True), rms_error(patterns, 1, False)
    assert counted < 0.05 and counted < 0.6 * sampled, f"{counted:.1%} instead of {sampled:.1%}"
    assert rms_error(patterns, 10, True) < 1.15 * counted
    assert rms_error(patterns, 10, False) > 1.5 * sampled


def test_at_the_full_rate_idle_guests_are_foretold_to_half_a_per_cent(patterns: Patterns) -> None:
    random = np.random.default_rng(1)
    for truth in patterns.truths:
        busy = any("jvm" in patterns.names[g] for g in truth.guests)
        found, _ = foretell(patterns, truth.guests, 0, random)
        assert abs(found.expected / truth.sharing - 1) < (0.08 if busy else 0.005), truth


def test_predictions_have_no_bias(patterns: Patterns) -> None:
    random = np.random.default_rng(2)
    truth = patterns.truths[0]
    exact = foretell(patterns, truth.guests, 0, random)[0].expected
    found = np.array([foretell(patterns, truth.guests, 5, random)[0].expected for _ in range(400)])
    assert abs(found.mean() - exact) < 3.5 * found.std() / np.sqrt(len(found))


def test_the_kept_sketches_and_the_patterns_are_of_the_same_guests(patterns: Patterns) -> None:
    rate = 1 / 8
    for at, name in enumerate(patterns.names):
        sketch = read_sketch(str(TRUTH / f"{name}.parquet"))
        expected = patterns.counts[patterns.copies[:, at] > 0].sum() * rate
        assert abs(len(sketch.fingerprints) - expected) < 5 * np.sqrt(expected)
        assert sketch.guests[0].pages - sketch.guests[0].zero_pages == patterns.nonzero[at]
        assert len(thin(sketch, 6).fingerprints) < len(sketch.fingerprints) / 4
    lines = [json.loads(line) for line in (TRUTH.parent / "truth.jsonl").read_text().splitlines()]
    assert [line["sharing"] for line in lines] == [truth.sharing for truth in patterns.truths]
