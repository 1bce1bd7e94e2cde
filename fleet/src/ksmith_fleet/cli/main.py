"""The entry point of `ksmith-fleet`."""

import argparse
import os
import sys
from typing import Protocol, cast

import duckdb

from ksmith_fleet.cli import apply, check, overlap, plan, report, simulate
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.plan_file import BadPlanError
from ksmith_fleet.rules import BadRulesError
from ksmith_fleet.text import shown


class Command(Protocol):
    """A module with one command."""

    HELP: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options."""

    def run(self, options: argparse.Namespace) -> int:
        """Runs the command, and gives the exit code."""


COMMANDS: dict[str, Command] = {
    "overlap": cast(Command, overlap),
    "plan": cast(Command, plan),
    "apply": cast(Command, apply),
    "check": cast(Command, check),
    "simulate": cast(Command, simulate),
    "report": cast(Command, report),
}


def parser() -> argparse.ArgumentParser:
    """Makes the parser with all commands."""
    top = argparse.ArgumentParser(prog="ksmith-fleet", description="Puts guests where their pages are equal, over any number of hosts.")
    commands = top.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        command.add(commands.add_parser(name, help=command.HELP, description=command.HELP))
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs a command. Exit codes: 0, 1 for a fault in the input or a refusal, 2 for wrong options."""
    options = parser().parse_args(arguments)
    try:
        code = COMMANDS[options.command].run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of the output has gone. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("ksmith-fleet: interrupted", file=sys.stderr)
        return 130
    except (BadSketchError, BadPlanError, BadRulesError, OSError, RuntimeError, ValueError, duckdb.Error) as error:
        print(f"ksmith-fleet: {shown(str(error))}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
