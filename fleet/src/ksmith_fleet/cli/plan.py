"""`ksmith-fleet plan` says where guests should be."""

import argparse
import math
from pathlib import Path
from typing import cast

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.proxmox import Proxmox
from ksmith_fleet.apply.proxmox_rules import with_cluster
from ksmith_fleet.cli import common
from ksmith_fleet.cli.admission import admission
from ksmith_fleet.cli.limits import SEARCH_S, Deadline
from ksmith_fleet.cli.messages import LOG, ExitCode, StrictError
from ksmith_fleet.cli.numbers import amount, count
from ksmith_fleet.cli.proxmox import add_proxmox, api_of
from ksmith_fleet.interval import Estimate
from ksmith_fleet.placement.build import build
from ksmith_fleet.placement.goal import KINDS, PRICE, Budget, Goal, Kind
from ksmith_fleet.plan_file import Plan, make_plan, plan_json, write_plan
from ksmith_fleet.planner import plan_goal
from ksmith_fleet.rules import Rules, read_rules
from ksmith_fleet.summary import summary
from ksmith_fleet.write import check_directory

HELP = "plan a new placement, an improvement by few moves, or the place of one more guest"
MOVES = {"new": 200, "improve": 10}
"""The most moves of each mode, if no option says another number."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("mode", choices=("new", "improve", "admit"))
    common.add_source(parser)
    common.add_json(parser)
    parser.add_argument("--goal", type=goal, default=("save", ""), help="save, relieve, balance, empty or drain=HOST (save)")
    parser.add_argument("--rules", help="TOML file of rules: pins, groups together and apart, hosts, limits, divergence")
    parser.add_argument("--out", help="write the plan to this file, for `apply` and `check`")
    parser.add_argument("--moves", type=count, help="moves at most (improve: 10, new: 200)")
    parser.add_argument("--gib", type=amount, default=math.inf, help="GiB moved at most, with move_price of rules")
    parser.add_argument(
        "--least-gain",
        type=amount,
        default=PRICE * 1024,
        metavar="MIB",
        help=f"MiB that a plan must save for each GiB moved, beside repairs and other goals ({PRICE * 1024:.0f})",
    )
    parser.add_argument("--like", help="admit: the guest that the new one will be like")
    parser.add_argument("--on", choices=("proxmox",), help="respect what the platform demands: HA rules, storage and the nodes' devices")
    add_proxmox(parser)
    parser.add_argument("--seconds", type=amount, help=f"time for the whole command (without it: {SEARCH_S:g} for the search)")


def goal(text: str) -> tuple[Kind, str]:
    """Takes a goal, and the host that it names."""
    kind, _, host = text.partition("=")
    if kind not in KINDS or bool(host) != (kind == "drain"):
        raise argparse.ArgumentTypeError(f"{text!r} is no goal: give save, relieve, balance, empty or drain=HOST")
    return cast(Kind, kind), host


def run(options: argparse.Namespace) -> int:
    """Makes and prints the plan."""
    deadline = Deadline(options.seconds, options.begun)
    if options.out and options.mode == "admit":
        raise ValueError("admit moves no guest and writes no plan: leave out --out")
    if options.out:
        check_directory(Path(options.out))
    rules = read_rules(options.rules)
    read = common.read(options, deadline)
    fleet = read.fleet
    if options.mode == "admit":
        return _admit(options, rules, read)
    if options.on == "proxmox":
        try:
            rules = with_cluster(rules, fleet, Proxmox(api_of(options)), LOG.info)
        except ApplyError as error:
            raise RuntimeError(str(error)) from error
    built = build(fleet, read.incidence, read.alone, rules)
    kind, drained = options.goal
    if drained:
        built = built.drained(fleet, [drained])
    wanted = Goal(kind, options.least_gain / 1024 * built.problem.kept, built.may_be_emptied(fleet))
    moves = MOVES[options.mode] if options.moves is None else options.moves
    budget = Budget(moves, options.gib * 2**30 / fleet.page_size)
    outcome = plan_goal(built.problem, wanted, budget, deadline.search_seconds())
    plan = make_plan(fleet, built, read.alone, outcome, kind)
    LOG.info("planned in %.1f s", outcome.seconds)
    for left in built.left_out:
        LOG.info("%s", left)
    if options.json:
        common.print_json(plan_json(plan))
    else:
        show(plan)
        if not plan.steps and kind == "save" and moves:
            print(f"no move saves {options.least_gain:.0f} MiB for each GiB that it moves: --least-gain takes less")
        if len(plan.steps) >= moves:
            print(f"the plan has as many moves as it may have: --moves {4 * moves} finds more, if they pay")
    if plan.faults and options.strict:
        raise StrictError(f"{len(plan.faults)} broken rules stay, and --strict allows none")
    if options.out:
        write_plan(plan, options.out)
    return 0


def _admit(options: argparse.Namespace, rules: Rules, read: common.Read) -> int:
    """Prints the hosts for one more guest, the best first. The exit code is 1 if no host has room."""
    like = options.like
    if like is None:
        raise ValueError("admit needs --like with the name of a guest that has a sketch")
    found = admission(read, rules, like)
    hosts = found["hosts"]
    if options.json:
        common.print_json(found)
        return ExitCode.DONE if hosts else ExitCode.FAULT
    for host in hosts:
        print(f"{host['host']}: shares {common.mib_interval(Estimate(**host['shared_bytes']))}, {common.mib(host['free_bytes'])} stay free")
    if not hosts:
        print("no host has room for it")
    return ExitCode.DONE if hosts else ExitCode.FAULT


def show(plan: Plan) -> None:
    """Prints a plan for people: three lines that sum it up, its moves, and the hosts that it changes."""
    print("\n".join(summary(plan)))
    for step in plan.steps:
        note = ", for a while" if step.temporary else ""
        print(
            f"{step.number}. {step.guest}: {step.source} to {step.target}{note}; moves {common.mib(step.bytes)}, "
            f"gains {common.mib(step.gain_bytes)} ({step.gain_per_gib:.0f} MiB a GiB)"
        )
    changed = {host for step in plan.steps for host in (step.source, step.target)}
    for host in plan.hosts:
        if host.host in changed:
            print(
                f"{host.host}: {host.guests_before} to {host.guests_after} guests; saves {common.mib(host.saved_before.expected)} to "
                f"{common.mib(host.saved_after.expected)} ({common.mib(host.saved_after.low)} to {common.mib(host.saved_after.high)}); "
                f"needs {common.mib(host.need_after)} of {common.mib(host.room)}"
            )
    if len(plan.hosts) > len(changed):
        print(f"hosts that stay as they are: {len(plan.hosts) - len(changed)}")
    for fault in plan.faults:
        print(f"not repaired: {fault}")
