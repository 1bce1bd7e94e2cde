"""`ksmith-fleet plan` says where guests should be."""

import argparse
import math

from ksmith_fleet.cli import common
from ksmith_fleet.cli.numbers import amount, count
from ksmith_fleet.placement.build import build
from ksmith_fleet.placement.named import Names
from ksmith_fleet.plan_file import Plan, make_plan, write_plan
from ksmith_fleet.planner import plan_admit, plan_improve, plan_new
from ksmith_fleet.rules import Rules, read_rules

HELP = "plan a new placement, an improvement by few moves, or the place of one more guest"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("mode", choices=("new", "improve", "admit"))
    common.add_source(parser)
    parser.add_argument("--rules", help="TOML file of rules: pins, groups together and apart, hosts, divergence")
    parser.add_argument("--out", help="write the plan to this file, for `apply` and `check`")
    parser.add_argument("--moves", type=count, default=10, help="improve: moves at most (10)")
    parser.add_argument("--gib", type=amount, default=math.inf, help="improve: GiB moved at most")
    parser.add_argument(
        "--least-gain",
        type=amount,
        default=20.0,
        metavar="MIB",
        help="improve: MiB that a move must save for each GiB moved (20)",
    )
    parser.add_argument("--like", help="admit: the guest that the new one will be like")
    parser.add_argument("--seconds", type=amount, default=30.0, help="time for the search (30)")


def run(options: argparse.Namespace) -> int:
    """Makes and prints the plan."""
    rules = read_rules(options.rules)
    read = common.read(options)
    fleet = read.fleet
    if options.mode == "admit":
        return _admit(options.like, rules, read)
    built = build(fleet, read.incidence, read.alone, rules)
    if options.mode == "new":
        outcome = plan_new(built.problem, options.seconds)
    else:
        pages = options.gib * 2**30 / fleet.page_size
        outcome = plan_improve(built.problem, options.moves, pages, options.least_gain / 1024 * built.problem.kept, options.seconds)
    plan = make_plan(options.mode, fleet, built, read.alone, outcome, rules.divergence)
    show(plan)
    if options.out:
        write_plan(plan, options.out)
    return 0


def _admit(like: str | None, rules: Rules, read: common.Read) -> int:
    """Prints the hosts for one more guest, the best first. The exit code is 1 if no host has room."""
    fleet = read.fleet
    if like is None:
        raise ValueError("admit needs --like with the name of a guest that has a sketch")
    built = build(fleet, read.incidence, read.alone, rules.for_admission(), is_admission=True)
    places = plan_admit(built, built.items.index([Names(fleet).guest(like)]))
    for place in places:
        scale = fleet.page_size / max(built.problem.kept, 1e-9)
        print(
            f"{fleet.hosts[built.bins[place.where].host].name}: shares {common.mib(place.shared * scale)}, "
            f"{common.mib(place.free * fleet.page_size)} stay free"
        )
    if not places:
        print("no host has room for it")
    return 0 if places else 1


def show(plan: Plan) -> None:
    """Prints a plan for people."""
    for step in plan.steps:
        note = ", for a while" if step.temporary else ""
        print(
            f"{step.number}. {step.guest}: {step.source} to {step.target}{note}; moves {common.mib(step.bytes)}, "
            f"gains {common.mib(step.gain_bytes)} ({step.gain_per_gib:.0f} MiB a GiB)"
        )
    for host in plan.hosts:
        print(
            f"{host.host}: {host.guests_before} to {host.guests_after} guests; saves {common.mib(host.saved_before.expected)} to "
            f"{common.mib(host.saved_after.expected)} ({common.mib(host.saved_after.low)} to {common.mib(host.saved_after.high)}); "
            f"needs {common.mib(host.need_after)} of {common.mib(host.room)}"
        )
    for name in plan.refused:
        print(f"no better place was found for {name}: it stays")
    for fault in plan.faults:
        print(f"not repaired: {fault}")
    print(
        f"gain: {common.mib(plan.gain_bytes)}; shared across guests {common.mib(plan.shared_bytes)}, at most "
        f"{common.mib(plan.bound_bytes)} by any placement ({plan.distance:.1%} away); {plan.seconds:.1f} s"
    )
