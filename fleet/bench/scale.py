"""Times whole commands over made-up sketches, each in a process of its own: python bench/scale.py DIR --millions 1 10 30 100 > RUN.jsonl.

A host has 10 guests, a guest 1000 rows at the rate 1/64: 50 contents that all guests hold, 50 that an eighth holds, 300 of an image of
20 guests, and 600 of its own. Prints a line of JSON for each command and size, with its seconds, those of the CPU, and the peak of its memory.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ksmith_fleet.simulate.write import MadeGuest, MadeHost, write_sketch

BITS = 6
HEAVY = np.repeat(np.arange(9, 18, dtype=np.int32), 2).reshape(-1, 2)
"""Heavy contents of each guest: as many as real guests have."""
GUESTS_OF_HOST = 10
COMMANDS = {
    "overlap": ["overlap"],
    "plan admit": ["plan", "admit", "--like", "g7"],
    "plan improve": ["plan", "improve"],
    "plan new": ["plan", "new", "--out", "PLAN"],
    "check": ["check", "PLAN"],
    "report": ["report", "--html", os.devnull, "--metrics", os.devnull],
}
"""The options of each command before the sketches. `check` reads the plan that `plan new` wrote, and the same sketches."""


def mixed(group: npt.NDArray[np.uint64], number: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Gives the fingerprints of these contents, below the threshold of the rate (the finalizer of SplitMix64)."""
    value = group * np.uint64(0x9E3779B97F4A7C15) + number * np.uint64(0xD1B54A32D192ED03)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return ((value ^ (value >> np.uint64(31))) >> np.uint64(BITS)).astype(np.int64)


def make(directory: Path, millions: float) -> Path:
    """Writes the sketches of all hosts."""
    sketches = directory / f"sketches-{millions:g}"
    if sketches.exists():
        return sketches
    part = sketches.with_name("part")
    guests = int(millions * 1000)
    row = np.arange(1000, dtype=np.uint64)
    now = time.time_ns() // 1_000_000
    for host in range(guests // GUESTS_OF_HOST):
        made = []
        for g in range(host * GUESTS_OF_HOST, (host + 1) * GUESTS_OF_HOST):
            group = np.where(row < 50, 0, np.where(row < 100, 1 + g % 8, np.where(row < 400, 100 + g % max(1, guests // 20), 10**9 + g)))
            held = np.unique(mixed(group.astype(np.uint64), row))
            copies = np.where(held % 5 == 0, 2, 1).astype(np.int32)
            made.append(MadeGuest(f"id-{g}", f"g{g}", held, copies, pages=80_000, heavy=HEAVY))
        write_sketch(MadeHost(f"h{host}", made, memory_bytes=16 << 30, rate_bits=BITS, time_ms=now), part / f"h{host}.parquet")
    part.rename(sketches)
    return sketches


def main() -> None:
    """Runs all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--millions", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--memory", help="as the option of the commands; `check` has none, and keeps no contents")
    options = parser.parse_args()
    for millions in options.millions:
        sketches = make(options.directory.resolve(), millions)
        for name in options.commands:
            plan = options.directory / f"plan-{millions:g}.json"
            command = [*(str(plan) if word == "PLAN" else word for word in COMMANDS[name]), str(sketches), "--max-age", "1e9"]
            command += ["--memory", options.memory] if options.memory and name != "check" else []
            begin = time.monotonic()
            child = os.fork()
            if not child:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.execv(sys.executable, [sys.executable, "-m", "ksmith_fleet.cli.main", *command])
            _, status, used = os.wait4(child, 0)
            said = {
                "command": name,
                "millions": millions,
                "seconds": round(time.monotonic() - begin, 1),
                "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
                "peak_mib": used.ru_maxrss // 1024,
            }
            print(json.dumps(said | {"code": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
