"""`ksmith-fleet check` says whether a plan came true."""

import argparse
from dataclasses import asdict

from ksmith_fleet.check import WITHIN, Checked, Kept, Verdict, check
from ksmith_fleet.cli.common import add_ages, add_json, mib, mib_interval, print_json, read_named
from ksmith_fleet.cli.messages import ExitCode
from ksmith_fleet.cli.numbers import amount
from ksmith_fleet.plan_file import read_plan

HELP = "compare what a plan promised with what hosts save by newer sketches"
CODES = {Verdict.KEPT: ExitCode.DONE, Verdict.NOT_KEPT: ExitCode.FAULT, Verdict.CANNOT_TELL: ExitCode.CANNOT_TELL}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("plan", help="file that `plan --out` wrote")
    parser.add_argument("sketches", help="sketches that were taken after the moves, once KSM had merged")
    parser.add_argument("--within", type=amount, default=100 * WITHIN, metavar="PERCENT", help="what guests may have changed since the plan (5)")
    add_json(parser)
    add_ages(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the verdict, and a line for each host. The exit code is 0, 1 if a promise was not kept, or 3 if that cannot be told."""
    plan = read_plan(options.plan)
    fleet, _ = read_named(options)
    if fleet.hosts[0].key_id != plan.key_id:
        raise ValueError("the sketches have another key than the plan")
    checked = check(plan, fleet, options.within / 100)
    if options.json:
        print_json({"verdict": checked.verdict} | asdict(checked))
    else:
        _show(checked)
    return CODES[checked.verdict]


def _show(checked: Checked) -> None:
    print(f"the plan: {checked.verdict}")
    for kept in (checked.whole, *checked.hosts):
        saved = "?" if kept.saved is None else mib(kept.saved)
        off = "" if kept.distance is None else f" ({kept.distance:+.1%})"
        print(f"{kept.host}: promised {mib_interval(kept.promised)}, saves {saved}{off}: {_verdict(kept)}")
        for name in kept.missing:
            print(f"  {name} is not there")
        for name in kept.strangers:
            print(f"  {name} is there, and the plan has it elsewhere")


def _verdict(kept: Kept) -> str:
    if kept.saved is None and kept.verdict is Verdict.CANNOT_TELL:
        return f"{kept.verdict}, since {kept.why}"
    if kept.unverified and kept.verdict is Verdict.CANNOT_TELL:
        return f"{kept.verdict}, since no page tables confirm {mib(kept.unverified)} of that: take the sketch beside `ksmith daemon`"
    return str(kept.verdict)
