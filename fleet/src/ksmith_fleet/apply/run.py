"""Runs a plan's moves in their order, resumes them, and undoes them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ksmith_fleet.apply.backend import Action, ApplyError, Backend, Run, reverse
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.plan_file import Plan, Step

Say = Callable[[str], None]

ASK_AGAIN_S = 10.0
"""The pause between two questions whether a target has room."""
ASK_ENDED_S = 2.0
"""The pause between two questions whether a move has ended."""
CLOCK_S = 60.0
"""The time by which clocks may differ."""
BREAK_OFF_S = 60.0
"""The time that a command has to end after it was interrupted."""


ASK_MOST_S = 180.0
"""The longest time that a question may take. A host that hangs answers never, and its tool would wait for ever."""


def ask_command(argv: Sequence[str], stdin: str | None) -> str:
    """Runs a command that moves nothing, for a limited time."""
    return run_command(argv, stdin, ASK_MOST_S)


def run_command(argv: Sequence[str], stdin: str | None, most_s: float | None = None) -> str:
    """Runs a command, and raises what it said if it fails, or that it has not ended after a time."""
    source = None if stdin is None else subprocess.PIPE
    # Tools answer in one language, whatever the operator's is.
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    try:
        process = subprocess.Popen(
            argv, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace", env=environment
        )
    except OSError as error:
        raise ApplyError(f"{argv[0]} cannot be started: {error}") from error
    try:
        said, complaint = process.communicate(stdin, most_s)
    except subprocess.TimeoutExpired as error:
        # A child of the tool, such as ssh, may hold the pipes on: nothing is read from them any more.
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        raise ApplyError(f"{' '.join(argv)} gave no answer in {most_s:.0f} s") from error
    except KeyboardInterrupt:
        _break_off(process)
        raise
    if process.returncode:
        raise ApplyError(f"{' '.join(argv)} failed: {(complaint or said).strip()[:500]}")
    return said


def _break_off(process: subprocess.Popen[str]) -> None:
    """Waits for the end of an interrupted command: virsh first breaks its migration off, and killing it would leave that running."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=BREAK_OFF_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def show(line: str) -> None:
    """Prints a line at once, also into a pipe."""
    print(line, flush=True)


def to_undo(plan: Plan, journal: Journal) -> list[Step]:
    """Gives the moves back, the last move first."""
    return [reverse(step) for step in reversed(plan.steps) if journal.state(step.number) not in ("new", "undone")]


def script(steps: Sequence[Step], backend: Backend) -> list[str]:
    """Gives the commands of moves, for a dry run."""
    lines = []
    for step in steps:
        lines.append(f"# {step.number}. {step.guest}: {step.source} to {step.target}")
        lines += [action.shell() for action in backend.actions(step)]
    return lines


@dataclass(frozen=True)
class Runner:
    """A plan that is carried out on a platform, and what that needs of the world."""

    plan: Plan
    backend: Backend
    journal: Journal
    run: Run = run_command
    ask: Run | None = None
    """What asks where a guest is and what is free. `None`: as `run` does."""
    wait_s: float = 600.0
    """The longest wait for room on a target."""
    max_age_s: float = 86400.0
    """The age of a plan's sketches up to which its first move is made."""
    say: Say = show
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    def apply(self, settle_s: float = 0.0) -> int:
        """Carries out all moves that the journal does not have as done, and waits after each. Gives the number of moves made.

        Each guest must be where the plan has it, and its target must have its memory free. Otherwise no further move is made.
        """
        made = 0
        if not self.journal.states:
            self._check_age()
        for step in self.plan.steps:
            state = self.journal.state(step.number)
            if state == "done":
                continue
            if state in ("undoing", "undone"):
                raise ApplyError(f"move {step.number} was undone: make a new plan")
            if self._move(step, "begun"):
                made += 1
                if settle_s:
                    self.sleep(settle_s)
            self.journal.note(step.number, "done")
        return made

    def _check_age(self) -> None:
        """Refuses to begin an old plan: guests have come and gone since its sketches, and their contents have changed."""
        age = self.clock() - self.plan.time_ms / 1000
        if age < -CLOCK_S:
            raise ApplyError(f"the plan's sketches are {-age:.0f} s in the future: set the clock of this host")
        if not age <= self.max_age_s:
            raise ApplyError(f"the plan's sketches are {age:.0f} s old: make a new plan, or allow their age with --max-age")

    def undo(self) -> int:
        """Moves every guest back, the last move first. Gives the number of moves made."""
        made = 0
        for step in to_undo(self.plan, self.journal):
            self.journal.note(step.number, "undoing")
            made += self._move(step, None)
            self.journal.note(step.number, "undone")
        return made

    def _move(self, step: Step, note: str | None) -> bool:
        """Makes one move, unless the guest is there already. `note` goes into the journal before the first command."""
        where = self.backend.where(step, self._ask)
        if where == step.target:
            self.say(f"{step.number}. {step.guest} is on {step.target} already")
            return False
        if where is None:
            raise ApplyError(f"{step.guest} runs neither on {step.source} nor on {step.target}: take new sketches and make a new plan")
        self._await_room(step)
        if note is not None:
            self.journal.note(step.number, note)
        self.say(f"{step.number}. {step.guest}: {step.source} to {step.target}")
        for action in self.backend.actions(step):
            self._carry_out(action)
        if self.backend.where(step, self._ask) != step.target:
            raise ApplyError(f"{step.guest} is not on {step.target} after its move")
        return True

    @property
    def _ask(self) -> Run:
        return self.ask or self.run

    def _carry_out(self, action: Action) -> None:
        """Runs a command, or asks until what it waits for has come."""
        if action.ended is None:
            self.run(action.argv, action.stdin)
            return
        waited = 0.0
        while not action.ended(self._ask):
            if waited >= action.most_s:
                raise ApplyError(f"after {waited:.0f} s this still waits: {' '.join(action.argv)}")
            self.sleep(ASK_ENDED_S)
            waited += ASK_ENDED_S

    def _await_room(self, step: Step) -> None:
        """Waits until KSM on the target has made room for the guest's whole memory."""
        waited = 0.0
        while True:
            free = self.backend.free_bytes(step.target, self._ask)
            if free is None or free >= step.bytes:
                return
            if waited >= self.wait_s:
                raise ApplyError(
                    f"{step.target} has {free >> 20} MiB free and {step.guest} needs {step.bytes >> 20} MiB: "
                    "wait for KSM there, then run apply again, or undo it with --undo"
                )
            self.say(f"{step.target} has {free >> 20} MiB free of {step.bytes >> 20} MiB: waiting for KSM there")
            self.sleep(ASK_AGAIN_S)
            waited += ASK_AGAIN_S
