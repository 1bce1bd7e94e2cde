"""The plan of each night, which a process of its own makes: it has its own memory, and answers do not wait for it."""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from pathlib import Path

from ksmith_fleet.cli.messages import LOG
from ksmith_fleet.serve.state import FleetState

PASSED_ON = ("rules", "memory", "work_dir", "max_apart", "max_age", "popular_above", "min_common")
"""Options of the service that are the plan's, too."""


def seconds_until(at: time, now: datetime) -> float:
    """Gives the seconds to the next time of day, by the local clock."""
    today = datetime.combine(now.date(), at)
    then = today if today > now else datetime.combine(now.date() + timedelta(days=1), at)
    return then.timestamp() - now.timestamp()


def plan_command(options: argparse.Namespace, out: Path) -> list[str]:
    """Gives the command that makes a plan."""
    words = [sys.executable, "-m", "ksmith_fleet.cli.main", "plan", "improve", "--out", str(out)]
    for name in PASSED_ON:
        if (value := getattr(options, name)) is not None:
            words += ["--" + name.replace("_", "-"), str(value)]
    return [*words, *(["--common-rate"] if options.common_rate else []), *options.plan_option, "--", options.sketches]


def make_plan_of(state: FleetState, plans: Path, day: datetime) -> None:
    """Makes the plan of a day. A fault is kept for metrics and logged."""
    out = plans / f"plan-{day:%Y-%m-%d}.json"
    done = run(plan_command(state.options, out))
    state.plan_fault = (done.stderr.strip()[-500:] or f"exit code {done.returncode}") if done.returncode else None
    if state.plan_fault is None:
        LOG.info("made %s", out)
    else:
        LOG.error("no plan was made: %s", state.plan_fault)


def run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)


def plan_always(state: FleetState, plans: Path, at: time) -> None:
    """Makes a plan each day until the service stops."""
    while not state.stopped.wait(seconds_until(at, datetime.now())):
        make_plan_of(state, plans, datetime.now())
