"""Runs a plan's moves in their order, resumes them, and undoes them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ksmith_fleet.apply.backend import Action, ApplyError, Backend, Run, StaysError, reverse
from ksmith_fleet.apply.journal import Journal, State
from ksmith_fleet.plan_file import Plan, Step
from ksmith_fleet.text import reason

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
        raise ApplyError(f"{argv[0]} cannot be started: {reason(error)}") from error
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


@dataclass(frozen=True)
class ScriptedMove:
    """A move of a dry run: its commands, or why the guest stays."""

    number: int
    guest: str
    source: str
    target: str
    commands: list[str]
    stays: str | None

    def lines(self) -> list[str]:
        """Gives the move as a piece of a shell script."""
        stays = [] if self.stays is None else [f"# it stays: {self.stays}"]
        return [f"# {self.number}. {self.guest}: {self.source} to {self.target}", *self.commands, *stays]


def script(steps: Sequence[Step], backend: Backend) -> list[ScriptedMove]:
    """Gives the commands of moves, for a dry run."""
    moves = []
    for step in steps:
        commands, stays = [], None
        try:
            commands = [action.shell() for action in backend.actions(step)]
        except ApplyError as error:
            stays = str(error)
        moves.append(ScriptedMove(step.number, step.guest, step.source, step.target, commands, stays))
    return moves


class _NoRoomError(StaysError):
    """A target has had no room for as long as is waited."""


@dataclass
class _Skipped:
    """Moves that are left out because a guest stays where it is."""

    guests: set[str] = field(default_factory=set)
    keeping: dict[str, str] = field(default_factory=dict)
    """Hosts with a guest that was to leave, by its name. What was to come reckons with its room, and may have to be apart from it."""
    full: dict[str, str] = field(default_factory=dict)
    """Hosts that never had room, with what they said."""
    reasons: list[str] = field(default_factory=list)

    def why(self, step: Step) -> str | None:
        """Says why a move cannot be made after those that were left out."""
        if step.guest_id in self.guests:
            return "it did not make its last move"
        if step.target in self.keeping:
            return f"{step.target} still has {self.keeping[step.target]}"
        return self.full.get(step.target)

    def add(self, step: Step, why: str) -> None:
        """Leaves a move out."""
        self.guests.add(step.guest_id)
        self.keeping.setdefault(step.source, step.guest)
        self.reasons.append(f"{step.number}. {step.guest}: {why}")


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

        Each guest must be where the plan has it, or no further move is made. A guest that cannot be moved stays, the moves that reckon with
        its leaving are left out, and the others are made. Raises `ApplyError` at the end if any was left out.
        """
        made, skipped = 0, _Skipped()
        if not self.journal.states:
            self._check_age()
        for step in self.plan.steps:
            state = self.journal.state(step.number)
            if state == "done":
                continue
            if state in ("undoing", "undone"):
                raise ApplyError(f"move {step.number} was undone: make a new plan")
            try:
                is_made = self._move_unless(step, skipped)
            except StaysError as error:
                skipped.add(step, str(error))
                self.say(f"{step.number}. {step.guest} stays on {step.source}: {error}")
                continue
            self.journal.note(step.number, "done")
            skipped.full.pop(step.source, None)
            made += is_made
            if is_made and settle_s:
                self.sleep(settle_s)
        if skipped.reasons:
            raise ApplyError(f"{made} moves were made, and {len(skipped.reasons)} not:\n" + "\n".join(skipped.reasons))
        return made

    def _move_unless(self, step: Step, skipped: _Skipped) -> bool:
        why = skipped.why(step)
        if why is not None:
            raise StaysError(why)
        try:
            return self._move(step, "begun")
        except _NoRoomError as error:
            skipped.full[step.target] = str(error)
            raise

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

    def _move(self, step: Step, note: State | None) -> bool:
        """Makes one move, unless the guest is there already. `note` goes into the journal before the first command."""
        where = self.backend.where(step, self._ask)
        if where == step.target:
            self.say(f"{step.number}. {step.guest} is on {step.target} already")
            return False
        if where is None:
            raise ApplyError(f"{step.guest} runs neither on {step.source} nor on {step.target}: take new sketches and make a new plan")
        try:
            actions = self.backend.actions(step)
        except ApplyError as error:
            raise StaysError(str(error)) from error
        if obstacle := self.backend.obstacle(step, self._ask):
            raise StaysError(obstacle)
        # Moves back make the host what it was before, which may have been fuller than any plan makes it.
        self._await_room(step, 0 if note is None else self._reserved.get(step.target, 0))
        if note is not None:
            self.journal.note(step.number, note)
        self.say(f"{step.number}. {step.guest}: {step.source} to {step.target}")
        try:
            for action in actions:
                self._carry_out(action)
        except ApplyError as error:
            if self.backend.where(step, self._ask) == step.source:
                raise StaysError(str(error)) from error
            raise
        if self.backend.where(step, self._ask) != step.target:
            raise ApplyError(f"{step.guest} is not on {step.target} after its move")
        return True

    @property
    def _reserved(self) -> dict[str, int]:
        return {host.host: host.reserved_bytes for host in self.plan.hosts}

    @property
    def _ask(self) -> Run:
        return self.ask or self.run

    def _carry_out(self, action: Action) -> None:
        """Runs a command, or asks until what it waits for has come."""
        if action.ended is None:
            self.run(action.argv, action.stdin)
            return
        if action.begin is not None:
            action.begin()
        try:
            self._await_end(action, action.ended)
        except KeyboardInterrupt:
            if action.stop is not None:
                action.stop()
            raise

    def _await_end(self, action: Action, ended: Callable[[Run], bool]) -> None:
        waited = 0.0
        while not ended(self._ask):
            if waited >= action.most_s:
                raise ApplyError(f"after {waited:.0f} s this still waits: {' '.join(action.argv)}")
            self.sleep(ASK_ENDED_S)
            waited += ASK_ENDED_S

    def _await_room(self, step: Step, reserved: int) -> None:
        """Waits until KSM on the target has made room for the guest's whole memory, beside what stays free there."""
        waited = 0.0
        needed = step.bytes + reserved
        said = f"{step.bytes >> 20} MiB" + (f" beside {reserved >> 20} MiB that stay free" if reserved else "")
        while True:
            free = self.backend.free_bytes(step.target, self._ask)
            if free is None or free >= needed:
                return
            if waited >= self.wait_s:
                raise _NoRoomError(f"{step.target} has {free >> 20} MiB free and {step.guest} needs {said}")
            self.say(f"{step.target} has {free >> 20} MiB free, and {step.guest} needs {said}: waiting for KSM there")
            self.sleep(ASK_AGAIN_S)
            waited += ASK_AGAIN_S
