"""The journal of an `apply`: each move is on disk before it begins and after it ended."""

import hashlib
import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.plan_file import Plan


class Journal:
    """A file of JSON lines, synchronised after each."""

    def __init__(self, path: Path, plan: Plan) -> None:
        """Opens the journal of a plan. A journal of another plan is refused."""
        self.path = path
        said = json.dumps([asdict(step) for step in plan.steps], sort_keys=True) + plan.key_id + str(plan.time_ms)
        self.plan = hashlib.sha256(said.encode()).hexdigest()
        self.states: dict[int, str] = {}
        if path.exists():
            self._read()
        else:
            self._write({"plan": self.plan})

    def _read(self) -> None:
        for number, line in enumerate(self.path.read_text(encoding="utf-8").split("\n")):
            try:
                said = json.loads(line)
            except ValueError:
                # The last line may be cut off by a crash. Then its move counts by the state before it.
                continue
            if number == 0 and said.get("plan") != self.plan:
                raise ApplyError(f"{self.path} is the journal of another plan: name another file with --journal")
            if "step" in said:
                self.states[int(said["step"])] = str(said["state"])

    def _write(self, line: dict[str, object]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            # Begins a line of its own, even if the last one was cut off.
            if file.tell() and not self.path.read_bytes().endswith(b"\n"):
                file.write("\n")
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def note(self, step: int, state: str) -> None:
        """Writes the state of a move: `begun`, `done`, `undoing` or `undone`."""
        self.states[step] = state
        self._write({"step": step, "state": state, "time": time.time()})

    def state(self, step: int) -> str:
        """Gives the last state of a move, or `new`."""
        return self.states.get(step, "new")
