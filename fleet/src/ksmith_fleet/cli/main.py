"""The entry point of `ksmith-fleet`."""

import argparse
import logging
import os
import sys
import time
from importlib.metadata import version
from typing import Protocol, cast

import duckdb

from ksmith_fleet.cli import apply, check, fetch, overlap, plan, report, serve, simulate
from ksmith_fleet.cli.limits import process_age
from ksmith_fleet.cli.messages import LOG, ExitCode, StrictError, add_messages, set_up_messages
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.plan_file import BadPlanError
from ksmith_fleet.rules import BadRulesError
from ksmith_fleet.text import reason


class Command(Protocol):
    """A module with one command."""

    HELP: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options."""

    def run(self, options: argparse.Namespace) -> int:
        """Runs the command, and gives the exit code."""


COMMANDS: dict[str, Command] = {
    "fetch": cast(Command, fetch),
    "overlap": cast(Command, overlap),
    "plan": cast(Command, plan),
    "apply": cast(Command, apply),
    "check": cast(Command, check),
    "simulate": cast(Command, simulate),
    "report": cast(Command, report),
    "serve": cast(Command, serve),
}


def parser() -> argparse.ArgumentParser:
    """Makes the parser with all commands."""
    top = argparse.ArgumentParser(prog="ksmith-fleet", description="Puts guests where their pages are equal, over any number of hosts.")
    top.add_argument("--version", action="version", version=f"ksmith-fleet {version('ksmith-fleet')}")
    commands = top.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        one = commands.add_parser(name, help=command.HELP, description=command.HELP)
        command.add(one)
        add_messages(one)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs a command, and gives its `ExitCode`. Without arguments they are the program's, and its time began with the process."""
    options = parser().parse_args(arguments)
    options.begun = time.monotonic() - (process_age() if arguments is None else 0.0)
    set_up_messages(options)
    try:
        code = COMMANDS[options.command].run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of the output has gone. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAULT
    except KeyboardInterrupt:
        LOG.error("interrupted")
        return ExitCode.INTERRUPTED
    except StrictError as error:
        LOG.error("%s", error)
        return ExitCode.WARNED
    except (BadSketchError, BadPlanError, BadRulesError, OSError, RuntimeError, ValueError, duckdb.Error) as error:
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename and error.strerror else ""
        LOG.error("%s%s", where, reason(error), exc_info=LOG.isEnabledFor(logging.DEBUG))
        return ExitCode.FAULT


if __name__ == "__main__":
    sys.exit(main())
