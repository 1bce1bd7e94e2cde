"""Says how often the intervals of 95 % hold the truth: python bench/intervals.py [FLEETS] [KEYS].

Makes so many fleets of each size, of which every content is known (`ksmith_fleet.simulate.known`), and sketches of each under so many keys.
"""

import sys

import numpy as np

from ksmith_fleet.simulate.known import draw_counts, foretell_known, make_known

fleets, keys = (int(word) for word in (sys.argv[1:] + ["200", "10"][len(sys.argv) - 1 :]))
for hosts in (3, 10, 50):
    held: dict[tuple[str, int], list[bool]] = {}
    random = np.random.default_rng(hosts)
    for _ in range(fleets):
        fleet = make_known(hosts, random)
        for bits in (4, 6, 8):
            for _ in range(keys):
                for figure in foretell_known(fleet, draw_counts(fleet, bits, random), bits, random):
                    held.setdefault((figure.name, bits), []).append(figure.is_held)
    for name in dict.fromkeys(name for name, _ in held):
        print(f"{hosts} hosts, {name}: " + ", ".join(f"1/{2**bits} {np.mean(held[name, bits]):.1%}" for bits in (4, 6, 8)), flush=True)
