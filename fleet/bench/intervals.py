"""Says how often the intervals of 95 % hold the truth: python bench/intervals.py [FLEETS] [KEYS].

Makes so many fleets of each size, of which every content is known (`ksmith_fleet.simulate.known`), and sketches of each under so many keys.
The standard error is that of the mean over fleets.
"""

import sys

import numpy as np

from ksmith_fleet.simulate.drawn import draw
from ksmith_fleet.simulate.figures import Figures
from ksmith_fleet.simulate.known import make_known

fleets, keys = (int(word) for word in (sys.argv[1:] + ["200", "10"][len(sys.argv) - 1 :]))
for hosts in (3, 10, 50):
    held: dict[tuple[str, int], list[list[bool]]] = {}
    random = np.random.default_rng(hosts)
    for _ in range(fleets):
        figures = Figures(make_known(hosts, random))
        for bits in (4, 6, 8):
            of_fleet: dict[str, list[bool]] = {}
            for _ in range(keys):
                for figure in figures.of(draw(figures.fleet, bits, random), bits, with_image=True):
                    of_fleet.setdefault(figure.name, []).append(figure.is_held)
            for name, one in of_fleet.items():
                held.setdefault((name, bits), []).append(one)
    for name in dict.fromkeys(name for name, _ in held):
        means = {bits: np.mean(held[name, bits], axis=1) for bits in (4, 6, 8)}
        said = (f"1/{2**bits} {each.mean():.1%} (se {each.std() / np.sqrt(fleets):.1%})" for bits, each in means.items())
        print(f"{hosts} hosts, {name}: " + ", ".join(said), flush=True)
