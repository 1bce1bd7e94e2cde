"""`ksmith-fleet check` says whether a plan came true."""

import argparse
import sys

from ksmith_fleet.check import check
from ksmith_fleet.cli.common import mib
from ksmith_fleet.consistency import Rules
from ksmith_fleet.dataset import read_fleet
from ksmith_fleet.plan_file import read_plan

HELP = "compare what a plan promised with what hosts save by newer sketches"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("plan", help="file that `plan --out` wrote")
    parser.add_argument("sketches", help="sketches that were taken after the moves, once KSM had merged")
    parser.add_argument("--within", type=float, default=10.0, metavar="PERCENT", help="how far a saving may be off (10)")
    parser.add_argument("--max-apart", type=float, default=3600, metavar="S", help="leave out sketches further from the median (3600)")


def run(options: argparse.Namespace) -> int:
    """Prints a line for each host. The exit code is 1 if a promise was not kept."""
    plan = read_plan(options.plan)
    fleet, _ = read_fleet(options.sketches, Rules(max_apart_s=options.max_apart))
    for left in fleet.left_out:
        print(f"left out: {left}", file=sys.stderr)
    if fleet.hosts[0].key_id != plan.key_id:
        raise ValueError("the sketches have another key than the plan")
    broken = 0
    for kept in check(plan, fleet):
        if kept.saved is None or kept.distance is None:
            verdict = "unknown"
        elif kept.distance < -options.within / 100:
            verdict = "less than promised"
        else:
            verdict = "kept"
        broken += verdict != "kept" or bool(kept.missing)
        saved = "?" if kept.saved is None else mib(kept.saved)
        off = "" if kept.distance is None else f" ({kept.distance:+.1%})"
        print(f"{kept.host}: promised {mib(kept.promised.expected)}, saves {saved}{off}: {verdict}")
        for name in kept.missing:
            print(f"  {name} is not there")
        for name in kept.strangers:
            print(f"  {name} is there, and the plan has it elsewhere")
    return 1 if broken else 0
