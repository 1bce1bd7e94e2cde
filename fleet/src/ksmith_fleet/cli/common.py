"""Options and steps that several commands have in common."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ksmith_fleet.cli.numbers import amount, count
from ksmith_fleet.consistency import Rules as JoinRules
from ksmith_fleet.dataset import EngineChoice, engine_over, read_fleet
from ksmith_fleet.engines import Engine, Settings
from ksmith_fleet.estimate import Alone, alone
from ksmith_fleet.files import Sketch
from ksmith_fleet.incidence import Incidence, from_answer
from ksmith_fleet.model import Fleet

MOST_CELLS = 1 << 30
"""Contents times hosts that a plan keeps numbers of, in two bytes each. Beyond it contents are thinned, which makes intervals wider."""


@dataclass(frozen=True)
class Read:
    """A fleet that was read, with what planning needs."""

    fleet: Fleet
    incidence: Incidence
    alone: Alone


def add_source(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which sketches are read, and by which engine."""
    parser.add_argument("sketches", help="directory, file or URL (s3://bucket/prefix) of the sketches")
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb", help="what runs the queries (default: duckdb)")
    parser.add_argument("--master", help="URL of the Spark master (default: local[*])")
    parser.add_argument("--memory", help="memory limit of the engine, such as 4GB")
    parser.add_argument("--work-dir", help="directory for rows on their way; workers of Spark must reach it")
    add_ages(parser)
    parser.add_argument("--common-rate", action="store_true", help="thin finer sketches to the coarsest rate")
    parser.add_argument("--popular-above", type=count, default=200, metavar="N", help="count contents of more guests apart (200)")
    parser.add_argument("--min-common", type=count, default=8, metavar="N", help="list pairs from so many sampled contents on (8)")


def add_ages(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say how old sketches may be."""
    parser.add_argument("--max-apart", type=amount, default=3600, metavar="S", help="leave out sketches further from the median (3600)")
    parser.add_argument("--max-age", type=amount, default=86400, metavar="S", help="leave out older sketches (86400)")


def join_rules(options: argparse.Namespace, contents: bool) -> JoinRules:
    """Gives what sketches may differ in, and how old they may be now.

    The age of guests and the rate of the file matter where contents do.
    """
    return JoinRules(
        max_apart_s=options.max_apart,
        now_ms=time.time_ns() // 1_000_000,
        max_age_s=options.max_age,
        max_guest_age_s=options.max_age if contents else None,
        common_rate=getattr(options, "common_rate", False) or not contents,
    )


def read_named(options: argparse.Namespace, contents: bool = False) -> tuple[Fleet, list[Sketch]]:
    """Reads the sketches, and names what is left out on standard error."""
    fleet, sketches = read_fleet(options.sketches, join_rules(options, contents))
    for left in fleet.left_out:
        print(f"left out: {left}", file=sys.stderr)
    return fleet, sketches


def settings(options: argparse.Namespace, fleet: Fleet) -> Settings:
    """Gives the values that the questions take. Where hosts have different limits of sharing, the smallest promises least."""
    sharing = min(host.max_page_sharing for host in fleet.hosts)
    return Settings(popular_above=options.popular_above, min_common=options.min_common, max_sharing=sharing)


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[tuple[Fleet, list[Sketch], Engine]]:
    """Reads the sketches and opens the engine."""
    fleet, sketches = read_named(options, contents=True)
    choice = EngineChoice(options.engine, options.master, options.memory, options.work_dir)
    with engine_over(sketches, choice, settings(options, fleet)) as engine:
        yield fleet, sketches, engine


def read(options: argparse.Namespace) -> Read:
    """Reads all that planning needs."""
    with opened(options) as (fleet, _, engine):
        incidence = from_answer(engine.ask("incidence"), len(fleet.guests), fleet.rate)
        # A placement has a number for each content and host.
        incidence = incidence.thinned(max(1, MOST_CELLS // len(fleet.hosts)))
        return Read(fleet, incidence, alone(fleet.guests, engine.ask("alone"), fleet.rate))


def mib(value: float) -> str:
    """Writes bytes as MiB."""
    return f"{value / 2**20:,.1f} MiB"
