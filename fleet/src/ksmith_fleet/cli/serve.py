"""`ksmith-fleet serve` answers over HTTP."""

import argparse
import re
import sys
import threading
from datetime import time
from importlib import resources
from pathlib import Path
from typing import NoReturn

from ksmith_fleet.cli import common
from ksmith_fleet.cli.messages import LOG, ExitCode
from ksmith_fleet.cli.numbers import amount
from ksmith_fleet.secret_file import read_secret

HELP = "answer admission as JSON and metrics over HTTP, and make a plan each night"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,}")
"""What a bearer token may have (RFC 6750), and so long that none is guessed."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    common.add_source(parser)
    parser.add_argument("--unit", action=PrintUnit, nargs=0, help="print a hardened unit of systemd for the service, and do nothing else")
    parser.add_argument("--rules", help="TOML file of rules, as for `plan`")
    parser.add_argument("--listen", type=address, default=("127.0.0.1", 9732), metavar="ADDRESS:PORT", help="where to answer (127.0.0.1:9732)")
    parser.add_argument("--token-file", metavar="FILE", help="file of the tokens, one a line, that requests may bear; needed beyond 127.0.0.1")
    parser.add_argument("--refresh", type=amount, default=300.0, metavar="S", help="seconds between two reads of the sketches (300)")
    parser.add_argument("--plan-at", type=time_of_day, metavar="HH:MM", help="make a plan each day at this local time (needs --plans)")
    parser.add_argument("--plan-option", action="append", default=[], metavar="OPTION", help="one more option of that plan: --plan-option=--moves=20")
    parser.add_argument("--plans", type=Path, metavar="DIR", help="directory of the plans: plan-YYYY-MM-DD.json")


class PrintUnit(argparse.Action):
    """Prints the unit with the path of this program, as `--help` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Ends the program with code 0."""
        text = resources.files("ksmith_fleet").joinpath("serve", "ksmith-fleet.service").read_text(encoding="utf-8")
        # Not resolved: an environment's program is known by its place.
        program = Path(sys.argv[0]).absolute()
        sys.stdout.write(text.replace("@PROGRAM@", str(program).replace("%", "%%")))
        parser.exit()


def address(text: str) -> tuple[str, int]:
    """Takes an address and a port."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no ADDRESS:PORT")
    return host.strip("[]"), int(port)


def time_of_day(text: str) -> time:
    """Takes hours and minutes."""
    try:
        return time.fromisoformat(text).replace(tzinfo=None)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time of day, such as 02:30") from error


def read_bearer_tokens(path: str) -> list[str]:
    """Reads the tokens, one a line, from a file of which others can read nothing. Servers take each of them, and clients send the first."""
    tokens = read_secret(path).split()
    if not tokens or not all(_TOKEN.fullmatch(token) for token in tokens):
        raise ValueError(f"{path} has no token: write 16 or more letters and digits, such as those of `openssl rand -hex 32`")
    return tokens


def run(options: argparse.Namespace) -> int:
    """Answers until SIGINT or SIGTERM."""
    try:
        from ksmith_fleet.serve.app import LOOPBACK, make_app
        from ksmith_fleet.serve.server import make_server
    except ImportError as error:
        raise RuntimeError("the service needs more packages: pip install 'ksmith-fleet[serve]'") from error
    from ksmith_fleet.serve.night import plan_always
    from ksmith_fleet.serve.state import FleetState

    host, port = options.listen
    tokens = read_bearer_tokens(options.token_file) if options.token_file else []
    if not tokens and host not in LOOPBACK:
        raise ValueError(f"{host} can be asked by other machines: give --token-file")
    if options.plan_at is not None and not (options.plans and options.plans.is_dir()):
        raise ValueError("--plan-at needs a directory: give --plans")
    state = FleetState(options, options.plans)
    threading.Thread(target=state.refresh_always, args=(options.refresh,), daemon=True).start()
    if options.plan_at is not None:
        threading.Thread(target=plan_always, args=(state, options.plans, options.plan_at), daemon=True).start()
    LOG.info("answering on %s:%d", host, port)
    server = make_server(make_app(state, tokens), host, port)
    try:
        server.run()
    finally:
        state.stopped.set()
    # A port that cannot be had ends the server before it begins.
    return ExitCode.DONE if server.started else ExitCode.FAULT
