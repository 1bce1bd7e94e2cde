"""Made-up fleets with known contents."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ksmith_fleet.dataset import engine_over, read_fleet
from ksmith_fleet.engine import Settings
from ksmith_fleet.estimate import Alone, alone
from ksmith_fleet.incidence import Incidence, from_answer
from ksmith_fleet.model import Fleet
from ksmith_fleet.placement.build import Built, build
from ksmith_fleet.rules import Rules
from ksmith_fleet.simulate.write import MadeGuest, MadeHost, write_sketch

MIB_PAGES = 256


def contents(seed: int, count: int) -> np.ndarray:
    """Draws fingerprints; one seed gives one set, and a longer one contains a shorter one."""
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count, dtype=np.int64)


def guest(name: str, parts: Sequence[tuple[int, int]], zero: int = 0, **more: object) -> MadeGuest:
    """Makes a guest from sets of contents (seed, count), each held once."""
    held = np.unique(np.concatenate([contents(seed, count) for seed, count in parts]))
    return MadeGuest(
        id=f"id-{name}", name=name, fingerprints=held, copies=np.ones(len(held), dtype=np.int32),
        pages=len(held) + zero, zero_pages=zero, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def put(directory: Path, *hosts: MadeHost) -> None:
    """Writes each host's file under its name."""
    for host in hosts:
        write_sketch(host, directory / f"{host.name}.parquet")


def two_images(directory: Path, memory_bytes: int = 1 << 30) -> None:
    """Writes two hosts with six guests of two images mixed up: each image has 1000 contents, each guest 100 of its own."""
    image = {name: 1 if name in "ace" else 2 for name in "abcdef"}
    hosts = {"h1": "abc", "h2": "def"}
    for host, names in hosts.items():
        guests = [guest(n, [(image[n], 1000), (99, 50), (100 + ord(n), 100)]) for n in names]
        put(directory, MadeHost(host, guests, memory_bytes))


def load(directory: Path) -> tuple[Fleet, Incidence, Alone]:
    fleet, sketches = read_fleet(str(directory))
    with engine_over(sketches, Settings()) as opened:
        incidence = from_answer(opened.ask("incidence"), len(fleet.guests), fleet.rate)
        return fleet, incidence, alone(fleet.guests, opened.ask("alone"), fleet.rate, incidence, opened.settings.max_sharing)


def problem(directory: Path, rules: Rules | None = None) -> tuple[Fleet, Built, Alone]:
    fleet, incidence, single = load(directory)
    return fleet, build(fleet, incidence, single, rules or Rules()), single
