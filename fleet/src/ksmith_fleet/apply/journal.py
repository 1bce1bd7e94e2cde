"""The journal of an `apply`: each move is on disk before it begins and after it ended."""

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.declared import CLOSED, LARGEST, Amount, parse_json
from ksmith_fleet.plan_file import Plan

_FIRST = re.compile(r"""|\{|\{"p?l?a?n?"?:?|\{"plan": ?|\{"plan": "[0-9a-f]*"?\}?""")
"""The first line of a journal, cut off anywhere before its end."""
State = Literal["begun", "done", "undoing", "undone"]


@dataclass(frozen=True)
class _Head:
    """The first line."""

    __pydantic_config__ = CLOSED

    plan: str


@dataclass(frozen=True)
class _Note:
    """A line of a move."""

    __pydantic_config__ = CLOSED

    step: Annotated[int, Field(ge=1, le=LARGEST)]
    state: State
    time: Amount


_HEAD, _NOTE = TypeAdapter(_Head), TypeAdapter(_Note)


class Journal:
    """A file of JSON lines, synchronised after each. One process at a time has it."""

    def __init__(self, path: Path, plan: Plan) -> None:
        """Opens the journal of a plan. A journal of another plan is refused, and so is one that another process has."""
        self.path = path
        said = json.dumps([asdict(step) for step in plan.steps], sort_keys=True) + plan.key_id + str(plan.time_ms)
        self.plan = hashlib.sha256(said.encode()).hexdigest()
        self.states: dict[int, State] = {}
        try:
            # A pipe would make the command wait, and a link in a directory of all users may lead to any file.
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise ApplyError(f"{path} is no file: name another with --journal") from error
            raise
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise ApplyError(f"{path} is no file: name another with --journal")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._begin(len(plan.steps))
        except BlockingIOError as error:
            self.close()
            raise ApplyError(f"{path} is in use: another apply of this plan runs") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets another process have the journal."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, steps: int) -> None:
        text = self.path.read_text(encoding="utf-8", errors="replace")
        lines = text.split("\n")
        whole = [line for line in lines if _is_object(line)]
        if _FIRST.fullmatch(text):
            # The file is new, or its first line was cut off before any move.
            os.ftruncate(self._file, 0)
            self._write({"plan": self.plan})
            directory = os.open(self.path.parent, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
            return
        try:
            plan = parse_json(_HEAD, whole[0] if whole else "").plan
        except ValueError as error:
            raise ApplyError(f"{self.path} is no journal, and stays as it is: name another file with --journal") from error
        if plan != self.plan:
            raise ApplyError(f"{self.path} is the journal of another plan: name another file with --journal")
        for line in whole[1:]:
            try:
                note = parse_json(_NOTE, line)
            except ValueError as error:
                raise ApplyError(f"{self.path} is damaged: {error}") from error
            if note.step > steps:
                raise ApplyError(f"{self.path} is damaged: it has the move {note.step} of {steps}")
            self.states[note.step] = note.state
        if lines[-1]:
            # The last line was cut off by a crash. Its move counts by the state before it.
            os.write(self._file, b"\n")

    def _write(self, line: dict[str, object]) -> None:
        data = (json.dumps(line) + "\n").encode()
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)

    def note(self, step: int, state: State) -> None:
        """Writes the state of a move."""
        self._write({"step": step, "state": state, "time": time.time()})
        self.states[step] = state

    def state(self, step: int) -> str:
        """Gives the last state of a move, or `new`."""
        return self.states.get(step, "new")


def _is_object(line: str) -> bool:
    """Says whether a line is whole: one that was cut off by a crash is no JSON."""
    try:
        return isinstance(from_json(line), dict)
    except ValueError:
        return False
