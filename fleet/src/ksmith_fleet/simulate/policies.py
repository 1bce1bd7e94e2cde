"""Policies that place guests as they arrive, one after the other."""

from collections.abc import Callable

import numpy as np

from ksmith_fleet.placement.arrival import best
from ksmith_fleet.placement.state import State

Policy = Callable[[State, int, np.random.Generator], int]
"""Gives the bin for an item, or -1 if it fits nowhere. KSM merges under every policy; only the choice differs."""


def random_fit(state: State, item: int, random: np.random.Generator) -> int:
    """Takes any host with room."""
    fits = np.flatnonzero(state.fits(item, state.gains(item)))
    return int(random.choice(fits)) if len(fits) else -1


def first_fit(state: State, item: int, random: np.random.Generator) -> int:
    """Takes the first host with room."""
    del random
    fits = np.flatnonzero(state.fits(item, state.gains(item)))
    return int(fits[0]) if len(fits) else -1


def best_fit(state: State, item: int, random: np.random.Generator) -> int:
    """Takes the fullest host with room, without regard to contents."""
    del random
    fits = np.flatnonzero(state.fits(item, state.gains(item)))
    return int(fits[np.argmax(state.need[fits])]) if len(fits) else -1


def spread(state: State, item: int, random: np.random.Generator) -> int:
    """Takes the emptiest host."""
    del random
    fits = np.flatnonzero(state.fits(item, state.gains(item)))
    return int(fits[np.argmin(state.need[fits])]) if len(fits) else -1


def memory_buddies(state: State, item: int, random: np.random.Generator) -> int:
    """Takes the host with the most sharing, as Memory Buddies places a new guest (Wood et al., VEE 2009, section 4)."""
    del random
    gains = state.gains(item)
    fits = np.flatnonzero(state.fits(item, gains))
    return int(fits[np.argmax(gains[fits])]) if len(fits) else -1


def ksmith_admit(state: State, item: int, random: np.random.Generator) -> int:
    """Takes the host that `plan admit` names first: this tool's own decision on arrival, which moves no guest."""
    del random
    gains = state.gains(item)
    return best(state, item, gains, state.fits(item, gains))


POLICIES: dict[str, Policy] = {
    "random": random_fit,
    "first-fit": first_fit,
    "best-fit": best_fit,
    "spread": spread,
    "memory-buddies": memory_buddies,
    "ksmith-admit": ksmith_admit,
}
"""The policies that decide on arrival. `ksmith` plans all guests together, and is not among these."""
