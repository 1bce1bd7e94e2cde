"""What `apply` needs of a virtualization platform."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ksmith_fleet.plan_file import Step

Run = Callable[[Sequence[str], str | None], str]
"""Runs a command with a text on its standard input, and gives its output. Raises `ApplyError` if it fails."""


class ApplyError(Exception):
    """A move cannot be carried out; the text says why."""


class StaysError(ApplyError):
    """A guest cannot be moved and is still where it was."""


@dataclass(frozen=True)
class Action:
    """One command of a move."""

    argv: Sequence[str]
    stdin: str | None = None
    ended: Callable[[Run], bool] | None = None
    """For a wait: asks whether it is over, and raises `ApplyError` if it never will be.

    `apply --run` asks this again and again in the place of the command, which does not end early when a move fails.
    """
    begin: Callable[[], None] | None = None
    """Does what the command would, by a request. `ended` then waits for its end."""
    stop: Callable[[], None] | None = None
    """Breaks off what was begun."""
    most_s: float = 0.0
    """The longest wait."""

    def shell(self) -> str:
        """Writes the command as one would type it."""
        text = shlex.join(self.argv)
        return text if self.stdin is None else f"{text} <<'EOF'\n{self.stdin}EOF"


class Backend(Protocol):
    """A platform: how a guest is moved, and where it is."""

    def actions(self, step: Step) -> list[Action]:
        """Gives the commands of a move."""

    def where(self, step: Step, run: Run) -> str | None:
        """Gives the host on which the guest is: `step.source`, `step.target` or `None` for neither."""

    def obstacle(self, step: Step, run: Run) -> str | None:
        """Asks the platform, before anything is begun, why the guest cannot be moved. `None`: it can, or the platform says so only when it tries."""

    def free_bytes(self, host: str, run: Run) -> int | None:
        """Gives the memory that a host has free, or `None` where the platform does not say."""


def reverse(step: Step) -> Step:
    """Gives the move that undoes a move."""
    return replace(step, source=step.target, target=step.source, gain_bytes=-step.gain_bytes)


def json_of(text: str, tool: str) -> Any:
    """Reads what a tool printed as JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApplyError(f"{tool} gave no JSON: {text[:80]!r}") from error


def part(said: Any, key: str) -> dict[str, Any]:
    """Takes an object out of an object, or an empty one where there is none."""
    found = said.get(key) if isinstance(said, dict) else None
    return found if isinstance(found, dict) else {}
