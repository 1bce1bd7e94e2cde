"""The entry point of `ksmith-fleet`."""

import argparse
import sys
from typing import Protocol, cast

from ksmith_fleet.cli import apply, check, overlap, plan, report, simulate
from ksmith_fleet.files import BadSketchError
from ksmith_fleet.plan_file import BadPlanError
from ksmith_fleet.rules import BadRulesError


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
        return COMMANDS[options.command].run(options)
    except (BadSketchError, BadPlanError, BadRulesError, RuntimeError, ValueError) as error:
        print(f"ksmith-fleet: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
