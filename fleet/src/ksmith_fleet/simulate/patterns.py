"""Real guests as patterns of their contents, from which sketches at any rate and under any key are drawn again.

A pattern says with how many copies, and how many steady ones, each guest holds a content. Fingerprints are random numbers, so a sketch under
another key is a binomial draw of each pattern's contents.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ksmith_fleet.estimate import changing_pages, saved_together
from ksmith_fleet.interval import Estimate
from ksmith_fleet.model import Guest
from ksmith_fleet.schema import HEAVY_ABOVE

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Truth:
    """Guests that ran together, and the pages that KSM then merged (`pages_sharing`)."""

    guests: list[int]
    sharing: int


@dataclass(frozen=True)
class Patterns:
    """All contents of some guests: a row for each pattern, a column for each guest."""

    names: list[str]
    nonzero: Counts
    """The pages of each guest, without pages of zeros."""
    counts: Counts
    """The contents that have each pattern."""
    copies: Counts
    steady: Counts
    truths: list[Truth]


def read_patterns(path: Path) -> Patterns:
    """Reads what `bench/patterns.py` wrote."""
    said = json.loads(path.read_text(encoding="utf-8"))
    names = [guest["name"] for guest in said["guests"]]
    rows = said["patterns"]
    copies = np.zeros((len(rows), len(names)), dtype=np.int64)
    steady = np.zeros_like(copies)
    for at, row in enumerate(rows):
        held = np.array(row[1:]).reshape(-1, 3)
        copies[at, held[:, 0]] = held[:, 1]
        steady[at, held[:, 0]] = held[:, 2]
    nonzero = np.array([guest["pages"] - guest["zero_pages"] for guest in said["guests"]], dtype=np.int64)
    truths = [Truth([names.index(name) for name in truth["guests"]], truth["sharing"]) for truth in said["truths"]]
    return Patterns(names, nonzero, np.array([row[0] for row in rows], dtype=np.int64), copies, steady, truths)


def foretell(
    patterns: Patterns, guests: Sequence[int], bits: int, random: np.random.Generator, max_sharing: int = 256, is_counted: bool = True
) -> tuple[Estimate, float]:
    """Draws sketches of these guests at the rate `2^-bits` under a new key, and foretells what KSM merges of them, without zero pages.

    Heavy contents are counted, or not as in files of format 1. Gives the pages that change besides.
    """
    rate = 2.0**-bits
    drawn = random.binomial(patterns.counts, rate)
    copies, steady = patterns.copies[:, guests], patterns.steady[:, guests]
    stays = (drawn @ steady) / np.maximum(1, drawn @ copies)
    said = [
        Guest(patterns.names[g], patterns.names[g], "h", "qemu", None, "silver", int(patterns.nonzero[g]), 0, 1.0 - part, None, None, None, True, 0)
        for g, part in zip(guests, stays.tolist(), strict=True)
    ]
    frames = -(-steady // max_sharing)
    joined = frames.sum(axis=1) - -(-steady.sum(axis=1) // max_sharing)
    is_heavy = copies > HEAVY_ABOVE if is_counted else np.zeros_like(copies, dtype=bool)
    deviations = np.where(is_heavy, 0.0, steady - frames - (0.0 if is_counted else copies * stays))
    counted = patterns.counts @ np.where(is_heavy, steady - frames, 0.0) if is_counted else np.full(len(guests), np.nan)
    single = counted + drawn @ deviations / rate if is_counted else patterns.nonzero[guests] * stays - drawn @ frames / rate
    squares = float(drawn @ (deviations.sum(axis=1) + joined) ** 2)
    found = saved_together(said, np.asarray(single, np.float64), np.asarray(counted, np.float64), float(drawn @ joined), squares, rate)
    return found, changing_pages(said)
