"""Messages on standard error, by the standard `logging`, and the exit codes."""

import argparse
import logging
import sys
from enum import IntEnum

from ksmith_fleet.model import Fleet
from ksmith_fleet.text import shown

LOG = logging.getLogger("ksmith_fleet")


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    DONE = 0
    FAULT = 1
    """A fault in the input, a refusal, or a promise that was not kept."""
    USAGE = 2
    """Wrong options."""
    CANNOT_TELL = 3
    """`check` has too little to judge by."""
    WARNED = 4
    """A warning under `--strict`. No plan or report was written, and nothing was moved."""
    INTERRUPTED = 130


class StrictError(Exception):
    """A warning that `--strict` makes an error."""


class _TerminalFormatter(logging.Formatter):
    """One message after the name of the program, without control characters and secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats the message."""
        return "ksmith-fleet: " + shown(super().format(record))


def add_messages(parser: argparse.ArgumentParser) -> None:
    """Adds the options on messages, which each command has."""
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say what is done; twice: where an error came from, too")
    parser.add_argument("-q", "--quiet", action="store_true", help="say errors alone")
    parser.add_argument("--strict", action="store_true", help="end with the exit code 4 if something is left out or a broken rule stays")


def set_up_messages(options: argparse.Namespace) -> None:
    """Sends the messages of the whole package to standard error, from the level on that the options name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TerminalFormatter())
    LOG.handlers = [handler]
    LOG.propagate = False
    LOG.setLevel(logging.ERROR if options.quiet else max(logging.DEBUG, logging.WARNING - 10 * options.verbose))


def name_left_out(fleet: Fleet, is_strict: bool) -> None:
    """Warns of each file, host and guest that is left out. Raises `StrictError` if there is any and none may be."""
    for left in fleet.left_out:
        LOG.warning("left out: %s", left)
    if fleet.left_out and is_strict:
        raise StrictError(f"{len(fleet.left_out)} files, hosts or guests are left out, and --strict allows none: mend or remove them")
