"""Options and steps that several commands have in common."""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ksmith_fleet.cli.limits import Deadline, capped_memory, peak_bytes, share_memory
from ksmith_fleet.cli.messages import LOG, name_left_out
from ksmith_fleet.cli.numbers import amount, count
from ksmith_fleet.consistency import Rules as JoinRules
from ksmith_fleet.dataset import SampleStore, opened_engine, read_fleet, stored_samples
from ksmith_fleet.engine import Engine, Settings
from ksmith_fleet.estimate import Alone, alone
from ksmith_fleet.files import Sketch, without_rows
from ksmith_fleet.incidence import Incidence, from_answer, mask_for
from ksmith_fleet.interval import Estimate
from ksmith_fleet.model import Fleet

ENDLESS = Deadline(None, 0.0)


@dataclass(frozen=True)
class Read:
    """A fleet that was read, with what planning needs."""

    fleet: Fleet
    incidence: Incidence
    alone: Alone


def add_source(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which sketches are read, and with what means."""
    parser.add_argument("sketches", help="directory, file or URL (s3://bucket/prefix) of the sketches")
    parser.add_argument("--memory", help="memory that the whole command may take, such as 4GB")
    parser.add_argument("--work-dir", help="directory for rows on their way")
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


def read_named(options: argparse.Namespace, store: SampleStore | None = None, deadline: Deadline = ENDLESS) -> tuple[Fleet, list[Sketch]]:
    """Reads the sketches, and warns of what is left out. Their contents go to the store, if they matter."""
    begin = time.monotonic()

    def keep(sketch: Sketch) -> Sketch:
        deadline.check()
        return store.put(sketch) if store else without_rows(sketch)

    fleet, sketches = read_fleet(options.sketches, join_rules(options, store is not None), keep)
    name_left_out(fleet, options.strict)
    LOG.info("read %d hosts with %d guests in %.1f s", len(fleet.hosts), len(fleet.guests), time.monotonic() - begin)
    return fleet, sketches


def settings(options: argparse.Namespace, fleet: Fleet, rows: int, most_rows: int) -> Settings:
    """Gives the values that the questions take. Where hosts have different limits of sharing, the smallest promises least."""
    sharing = min(host.max_page_sharing for host in fleet.hosts)
    # At the full rate nothing is estimated, and no choice has a bias.
    mask = Settings.ranking_mask if fleet.rate < 1 else 0
    return Settings(options.popular_above, options.min_common, sharing, ranking_mask=mask, incidence_mask=mask_for(rows, most_rows))


@contextmanager
def opened(options: argparse.Namespace, deadline: Deadline = ENDLESS) -> Iterator[tuple[Fleet, list[Sketch], Engine]]:
    """Reads the sketches and opens the engine, within the limits of the command."""
    memory = share_memory(options.memory)
    with capped_memory(options.memory), stored_samples(options.work_dir) as store:
        fleet, sketches = read_named(options, store, deadline)
        chosen = settings(options, fleet, store.rows, memory.incidence_rows)
        with opened_engine(store, sketches, chosen, memory.engine_bytes) as engine, deadline.stopping(engine.interrupt):
            yield fleet, sketches, engine
    LOG.info("peak of memory: %s", mib(peak_bytes()))


def read(options: argparse.Namespace, deadline: Deadline = ENDLESS) -> Read:
    """Reads all that planning needs."""
    with opened(options, deadline) as (fleet, _, engine):
        result = read_opened(options, fleet, engine)
    deadline.check()
    return result


def read_opened(options: argparse.Namespace, fleet: Fleet, engine: Engine) -> Read:
    """Asks an open engine for all that planning needs."""
    incidence = from_answer(engine.ask("incidence"), len(fleet.guests), fleet.rate, engine.settings.incidence_mask)
    # A placement has a number for each content and host.
    kept = incidence.thinned(max(1, share_memory(options.memory).cells // len(fleet.hosts)))
    LOG.info("planning with %d of %d fetched contents", kept.number, incidence.number)
    return Read(fleet, kept.for_planning(), alone(fleet.guests, engine.ask("alone"), fleet.rate, kept, engine.settings.max_sharing))


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds the option to print JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def print_json(value: Any) -> None:
    """Prints one value for programs."""
    print(json.dumps(value, indent=1))


def mib(value: float) -> str:
    """Writes bytes as MiB."""
    return f"{value / 2**20:,.1f} MiB"


def mib_interval(value: Estimate) -> str:
    """Writes an estimate in bytes as MiB with its interval."""
    return f"{mib(value.expected)} ({mib(value.low)} to {mib(value.high)})"
