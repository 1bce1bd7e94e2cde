"""`ksmith-fleet apply` carries out a plan."""

import argparse
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from ksmith_fleet.apply.backend import ApplyError, Backend
from ksmith_fleet.apply.fresh import changes
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.apply.kubevirt import KubeVirt
from ksmith_fleet.apply.libvirt import Libvirt
from ksmith_fleet.apply.lock import lock_directory, locked_hosts
from ksmith_fleet.apply.openstack import OpenStack
from ksmith_fleet.apply.proxmox import Proxmox
from ksmith_fleet.apply.run import Runner, ask_command, script, show, to_undo
from ksmith_fleet.cli.common import add_ages, add_json, print_json, read_named
from ksmith_fleet.cli.messages import LOG
from ksmith_fleet.cli.numbers import amount
from ksmith_fleet.cli.proxmox import add_proxmox, api_of
from ksmith_fleet.plan_file import Plan, Step, read_plan

GO_ON = "Run the same command again to go on, or with --undo to go back."
HELP = "print the moves of a plan as commands, or run them (--run)"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("plan", help="file that `plan --out` wrote")
    parser.add_argument("--on", choices=("libvirt", "proxmox", "kubevirt", "openstack"), default="libvirt", help="the platform (libvirt)")
    add_json(parser)
    parser.add_argument("--run", action="store_true", help="run the commands; without it they are only printed")
    parser.add_argument("--undo", action="store_true", help="move all guests back that were moved, or print how")
    parser.add_argument("--journal", help="file that remembers what was done (default: PLAN.journal)")
    parser.add_argument("--locks", metavar="DIR", help="locks of hosts in a file system that all who apply plans share (default: this user's)")
    parser.add_argument("--sketches", metavar="WHERE", help="newer sketches: nothing is moved if guests came to a target since the plan's")
    add_ages(parser)
    parser.add_argument("--settle", type=amount, default=60.0, metavar="S", help="seconds for KSM after each move (60)")
    parser.add_argument("--wait", type=amount, default=600.0, metavar="S", help="seconds to wait for room on a target (600)")
    parser.add_argument("--uri", action="append", default=[], metavar="HOST=URI", help="libvirt: URI of a host (qemu+ssh://HOST/system)")
    parser.add_argument("--option", action="append", default=[], metavar="OPTION", help="libvirt: one more option of virsh migrate")
    add_proxmox(parser)
    parser.add_argument(
        "--id",
        action="append",
        default=[],
        metavar="GUEST=ID",
        help="Proxmox: the VMID of a guest that the cluster does not know by its name; KubeVirt: its namespace",
    )


def run(options: argparse.Namespace) -> int:
    """Prints or runs the moves."""
    plan = read_plan(options.plan)
    path = Path(options.journal or options.plan + ".journal")
    try:
        backend = _backend(options, plan)
    except ApplyError as error:
        raise RuntimeError(str(error)) from error
    if not options.run:
        moves = script(_steps(options.undo, plan, path), backend)
        if options.json:
            print_json({"moves": [asdict(move) for move in moves]})
        else:
            print("\n".join(line for move in moves for line in move.lines()))
        return 0
    if options.sketches and not options.undo:
        changed = changes(plan, read_named(options)[0])
        if changed:
            raise RuntimeError(f"hosts have changed since the plan: {'; '.join(changed)}. Make a new plan.")
    try:
        made = _carry_out(options, plan, path, backend)
    except ApplyError as error:
        raise RuntimeError(f"{error}\n{GO_ON}") from error
    except (KeyboardInterrupt, OSError):
        LOG.error(GO_ON)
        raise
    if not options.json:
        print(f"{made} moves made")
    return 0


def _carry_out(options: argparse.Namespace, plan: Plan, path: Path, backend: Backend) -> int:
    """Runs the moves, and gives their number. With `--json` one object says at the end what became of each."""
    hosts = {host for step in plan.steps for host in (step.source, step.target)}
    with locked_hosts(hosts, lock_directory(options.locks)), closing(Journal(path, plan)) as journal:
        say = LOG.info if options.json else show
        runner = Runner(plan, backend, journal, ask=ask_command, wait_s=options.wait, max_age_s=options.max_age, say=say)
        error = None
        try:
            made = runner.undo() if options.undo else runner.apply(options.settle)
        except BaseException as fault:
            error = str(fault) or "interrupted"
            raise
        finally:
            if options.json:
                moves = [asdict(step) | {"state": journal.state(step.number)} for step in plan.steps]
                print_json({"moves": moves, "error": error})
    return made


def _steps(is_undo: bool, plan: Plan, path: Path) -> list[Step]:
    """Gives the moves that a dry run prints. Without a journal no move was made, and none is made back."""
    if not is_undo:
        return plan.steps
    if not path.exists():
        return []
    try:
        with closing(Journal(path, plan)) as journal:
            return to_undo(plan, journal)
    except ApplyError as error:
        raise RuntimeError(str(error)) from error


def _backend(options: argparse.Namespace, plan: Plan) -> Backend:
    ids = _pairs(options.id)
    shmem_bytes = {host.host: host.shmem_bytes for host in plan.hosts}
    backends: dict[str, Callable[[], Backend]] = {
        "libvirt": lambda: Libvirt(uris=_pairs(options.uri), options=options.option, shmem_bytes=shmem_bytes),
        # The cluster is asked for numbers in a dry run too: requests name guests by them.
        "proxmox": lambda: Proxmox(api_of(options), ids).with_vmids(plan.steps),
        "kubevirt": lambda: KubeVirt(namespaces=ids),
        "openstack": OpenStack,
    }
    return backends[options.on]()


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word} has no =: give NAME=VALUE")
        pairs[key] = value
    return pairs
