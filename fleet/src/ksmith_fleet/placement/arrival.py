"""Where one more guest goes, decided when it arrives and without moving any other."""

import numpy as np
import numpy.typing as npt

from ksmith_fleet.placement.problem import Floats, Ints
from ksmith_fleet.placement.state import State

OPEN_BELOW = 0.5
"""An empty bin is opened for an item that shares less than this part of its contents with any bin in use.

Items of different images have the base system in common, and a bin that takes them for that has no room left for their own kind. Parts
from 0.3 to 0.55 fill a fleet equally well (docs/measurements/2026-11-fleet.md).
"""


def ranked(state: State, item: int, gains: Floats, ok: npt.NDArray[np.bool_]) -> Ints:
    """Ranks the bins that are `ok` for an item, the best first.

    Bins in use come in the order of what the item shares there, the fullest first among equals. If the best shares too little,
    empty bins come before them, the one with the least room first.
    """
    room = state.problem.capacity - state.need
    used, empty = np.flatnonzero(ok & (state.load > 0)), np.flatnonzero(ok & (state.load == 0))
    used = used[np.lexsort((used, room[used], -gains[used]))]
    empty = empty[np.lexsort((empty, room[empty]))]
    is_opened = not len(used) or gains[used[0]] < _enough(state, item)
    return np.concatenate([empty, used] if is_opened else [used, empty]).astype(np.int64)


def best(state: State, item: int, gains: Floats, ok: npt.NDArray[np.bool_]) -> int:
    """Gives the first bin of `ranked`, or -1 if none is `ok`, without sorting them."""
    room = state.problem.capacity - state.need
    used, empty = ok & (state.load > 0), ok & (state.load == 0)
    most = float(gains[used].max(initial=-1.0))
    if empty.any() and most < _enough(state, item):
        return int(np.argmin(np.where(empty, room, np.inf)))
    return int(np.argmin(np.where(used & (gains == most), room, np.inf))) if most >= 0 else -1


def _enough(state: State, item: int) -> float:
    return OPEN_BELOW * len(state.problem.incidence.of(item)) * state.problem.page_value
