"""The fleet on disk for an engine: the rows of all sketches that were kept, with numbers instead of names."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ksmith_fleet.consistency import Rules, join
from ksmith_fleet.engines import Engine, Settings, open_engine
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.files import Sketch, list_sketches, read_sketch
from ksmith_fleet.model import Fleet, LeftOut

ROWS = pa.schema([("guest", pa.int32()), ("host", pa.int32()), ("fingerprint", pa.int64()), ("copies", pa.int32())])
"""The schema of the samples: guest and host are positions in the lists of the fleet."""


@dataclass(frozen=True)
class EngineChoice:
    """Which engine answers, and where it works."""

    name: str = "duckdb"
    master: str | None = None
    memory: str | None = None
    work_dir: str | None = None
    """A directory that all workers of Spark reach. Without it a temporary one is used."""


def read_fleet(where: str, rules: Rules | None = None) -> tuple[Fleet, list[Sketch]]:
    """Reads all sketches of a place. Files that are refused are named in `Fleet.left_out`."""
    sketches: list[Sketch] = []
    left_out: list[LeftOut] = []
    paths = list_sketches(where)
    if not paths:
        raise BadSketchError(f"{where} holds no sketch: there is no file that ends in .parquet")
    for path in paths:
        try:
            sketches.append(read_sketch(path))
        except FileNotFoundError:
            left_out.append(LeftOut(path, "it vanished while the others were read"))
        except BadSketchError as error:
            left_out.append(LeftOut(path, str(error)))
    return join(sketches, rules or Rules(), left_out)


def write_samples(sketches: Sequence[Sketch], directory: Path) -> None:
    """Writes one Parquet file for each host."""
    directory.mkdir(parents=True, exist_ok=True)
    first = 0
    for number, sketch in enumerate(sketches):
        size = len(sketch.fingerprints)
        columns = [
            pa.array(sketch.guest_of_row + np.int32(first)),
            pa.array(np.full(size, number, dtype=np.int32)),
            pa.array(sketch.fingerprints),
            pa.array(sketch.copies),
        ]
        pq.write_table(pa.table(columns, schema=ROWS), directory / f"{number:06}.parquet", compression="zstd")
        first += len(sketch.guests)


@contextmanager
def engine_over(sketches: Sequence[Sketch], choice: EngineChoice, settings: Settings) -> Iterator[Engine]:
    """Writes the samples and opens an engine over them for the time of a `with`."""
    with tempfile.TemporaryDirectory(prefix="ksmith-fleet-", dir=choice.work_dir) as directory:
        samples = Path(directory) / "samples"
        try:
            write_samples(sketches, samples)
        except OSError as error:
            raise OSError(f"cannot write below {directory}: {error}; name another directory with --work-dir") from error
        engine = open_engine(choice.name, str(samples), settings, choice.master, choice.memory)
        try:
            yield engine
        finally:
            engine.close()
