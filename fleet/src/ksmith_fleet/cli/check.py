"""`ksmith-fleet check` says whether a plan came true."""

import argparse

from ksmith_fleet.check import check
from ksmith_fleet.cli.common import add_ages, mib, read_named
from ksmith_fleet.cli.numbers import amount
from ksmith_fleet.plan_file import read_plan

HELP = "compare what a plan promised with what hosts save by newer sketches"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("plan", help="file that `plan --out` wrote")
    parser.add_argument("sketches", help="sketches that were taken after the moves, once KSM had merged")
    parser.add_argument("--within", type=amount, default=10.0, metavar="PERCENT", help="how far a saving may be off (10)")
    add_ages(parser)


def run(options: argparse.Namespace) -> int:
    """Prints a line for each host. The exit code is 1 if a promise was not kept."""
    plan = read_plan(options.plan)
    fleet, _ = read_named(options)
    if fleet.hosts[0].key_id != plan.key_id:
        raise ValueError("the sketches have another key than the plan")
    broken = 0
    for kept in check(plan, fleet):
        holds = kept.holds(options.within / 100)
        broken += not holds
        if kept.saved is None:
            verdict = f"unknown, since {kept.why}"
        else:
            verdict = "kept" if holds else "the plan is not carried out" if kept.missing else "less than promised"
        saved = "?" if kept.saved is None else mib(kept.saved)
        off = "" if kept.distance is None else f" ({kept.distance:+.1%})"
        print(f"{kept.host}: promised {mib(kept.promised.expected)}, saves {saved}{off}: {verdict}")
        for name in kept.missing:
            print(f"  {name} is not there")
        for name in kept.strangers:
            print(f"  {name} is there, and the plan has it elsewhere")
    return 1 if broken else 0
