"""Runs a plan's moves in their order, resumes them, and undoes them."""

import subprocess
import time
from collections.abc import Callable, Sequence

from ksmith_fleet.apply.backend import ApplyError, Backend, Run, reverse
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.plan_file import Plan, Step

Say = Callable[[str], None]


def run_command(argv: Sequence[str], stdin: str | None) -> str:
    """Runs a command, and raises what it said if it fails."""
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ApplyError(f"{argv[0]} cannot be started: {error}") from error
    if done.returncode:
        raise ApplyError(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()[:500]}")
    return done.stdout


def script(plan: Plan, backend: Backend) -> list[str]:
    """Gives the commands of all moves, for a dry run."""
    lines = []
    for step in plan.steps:
        lines.append(f"# {step.number}. {step.guest}: {step.source} to {step.target}")
        lines += [action.shell() for action in backend.actions(step)]
    return lines


def apply(
    plan: Plan,
    backend: Backend,
    journal: Journal,
    run: Run = run_command,
    settle_s: float = 0.0,
    wait_s: float = 600.0,
    say: Say = print,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Carries out all moves that the journal does not have as done. Gives the number of moves made.

    Each guest must be where the plan has it, and its target must have its memory free. Otherwise no further move is made.
    """
    made = 0
    for step in plan.steps:
        state = journal.state(step.number)
        if state == "done":
            continue
        if state in ("undoing", "undone"):
            raise ApplyError(f"move {step.number} was undone: make a new plan")
        if _move(step, backend, run, wait_s, say, sleep, lambda s=step: journal.note(s.number, "begun")):  # type: ignore[misc]
            made += 1
            if settle_s:
                sleep(settle_s)
        journal.note(step.number, "done")
    return made


def undo(
    plan: Plan,
    backend: Backend,
    journal: Journal,
    run: Run = run_command,
    wait_s: float = 600.0,
    say: Say = print,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Moves every guest back, the last move first. Gives the number of moves made."""
    made = 0
    for step in reversed(plan.steps):
        if journal.state(step.number) in ("new", "undone"):
            continue
        journal.note(step.number, "undoing")
        made += _move(reverse(step), backend, run, wait_s, say, sleep, lambda: None)
        journal.note(step.number, "undone")
    return made


def _move(step: Step, backend: Backend, run: Run, wait_s: float, say: Say, sleep: Callable[[float], None], begin: Callable[[], None]) -> bool:
    where = backend.where(step, run)
    if where == step.target:
        say(f"{step.number}. {step.guest} is on {step.target} already")
        return False
    if where is None:
        raise ApplyError(f"{step.guest} runs neither on {step.source} nor on {step.target}: take new sketches and make a new plan")
    _await_room(step, backend, run, wait_s, say, sleep)
    begin()
    say(f"{step.number}. {step.guest}: {step.source} to {step.target}")
    for action in backend.actions(step):
        run(action.argv, action.stdin)
    if backend.where(step, run) != step.target:
        raise ApplyError(f"{step.guest} is not on {step.target} after its move")
    return True


def _await_room(step: Step, backend: Backend, run: Run, wait_s: float, say: Say, sleep: Callable[[float], None]) -> None:
    """Waits until KSM on the target has made room for the guest's whole memory."""
    waited = 0.0
    while True:
        free = backend.free_bytes(step.target, run)
        if free is None or free >= step.bytes:
            return
        if waited >= wait_s:
            raise ApplyError(
                f"{step.target} has {free >> 20} MiB free and {step.guest} needs {step.bytes >> 20} MiB: "
                "wait for KSM there, then run apply again, or undo it with --undo"
            )
        say(f"{step.target} has {free >> 20} MiB free of {step.bytes >> 20} MiB: waiting for KSM there")
        sleep(10.0)
        waited += 10.0
