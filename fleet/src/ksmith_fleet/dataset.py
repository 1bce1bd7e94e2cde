"""The fleet on disk for the engine: the rows of all sketches that were kept, with numbers instead of names."""

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ksmith_fleet.consistency import Rules, join
from ksmith_fleet.engine import Engine, Settings
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.files import Sketch, StoredRows, is_remote, list_sketches, read_sketch, whole_file, without_rows
from ksmith_fleet.model import Fleet, LeftOut
from ksmith_fleet.text import reason

ROWS = pa.schema(
    [("file", pa.int32()), ("stored_guest", pa.int32()), ("fingerprint", pa.int64()), ("copies", pa.int32()), ("residual", pa.float32())]
)
"""The schema of the samples: guests are numbered in each file, copies are steady ones."""


FETCHES = 8
"""The files of an object store that are read at once. Each may take `files.MOST_BYTES`."""


def read_fleet(where: str, rules: Rules | None = None, keep: Callable[[Sketch], Sketch] = lambda sketch: sketch) -> tuple[Fleet, list[Sketch]]:
    """Reads all sketches of a place. Files that are refused are named in `Fleet.left_out`.

    `keep` takes each sketch as it has been read, and may put its rows elsewhere.
    """
    sketches: list[Sketch] = []
    left_out: list[LeftOut] = []
    paths = list_sketches(where)
    if not paths:
        raise BadSketchError(f"{where} holds no sketch: there is no file that ends in .parquet")
    for path, data in zip(paths, _fetched(paths), strict=True):
        try:
            sketches.append(keep(read_sketch(path, data)))
        except FileNotFoundError:
            left_out.append(LeftOut(path, "it vanished while the others were read"))
        except BadSketchError as error:
            left_out.append(LeftOut(path, str(error)))
    return join(sketches, rules or Rules(), left_out)


def _fetched(paths: Sequence[str]) -> Iterator[Callable[[], bytes]]:
    """Gives for each file what waits for its bytes. Those of an object store come some at a time: each takes a turn of the network."""
    if not any(is_remote(path) for path in paths):
        yield from (partial(whole_file, path) for path in paths)
        return
    with ThreadPoolExecutor(FETCHES) as pool:
        waiting: deque[Future[bytes]] = deque()
        for at in range(len(paths) + FETCHES):
            if at < len(paths):
                waiting.append(pool.submit(whole_file, paths[at]))
            if at >= FETCHES - 1 and waiting:
                yield waiting.popleft().result


class SampleStore:
    """A directory for the rows of sketches, with a file for each, so that memory does not grow with them."""

    def __init__(self, directory: Path) -> None:
        """Begins with no rows."""
        self.directory = directory
        self.files = 0
        self.rows = 0
        directory.mkdir(parents=True, exist_ok=True)

    def put(self, sketch: Sketch) -> Sketch:
        """Writes the rows, and gives the sketch without them."""
        columns = [
            pa.array(np.full(len(sketch.fingerprints), self.files, dtype=np.int32)),
            pa.array(sketch.guest_of_row),
            pa.array(sketch.fingerprints),
            pa.array(sketch.copies),
            # Heavy contents have none.
            pa.array(sketch.residuals, from_pandas=True),
        ]
        try:
            pq.write_table(pa.table(columns, schema=ROWS), self.directory / f"{self.files:06}.parquet", compression="zstd")
        except OSError as error:
            raise OSError(f"cannot write below {self.directory.parent}: {reason(error)}; name another directory with --work-dir") from error
        self.files += 1
        self.rows += len(sketch.fingerprints)
        return replace(without_rows(sketch), stored=StoredRows(self.files - 1, np.arange(len(sketch.guests), dtype=np.int32)))


def _places(sketches: Sequence[Sketch]) -> pa.Table:
    """Gives for each guest of the files its number in the fleet and that of its host."""
    stored = [sketch.stored or StoredRows(-1, np.zeros(0, dtype=np.int32)) for sketch in sketches]
    sizes = [len(one.guests) for one in stored]
    columns = {
        "file": np.repeat([one.file for one in stored], sizes).astype(np.int32),
        "stored_guest": np.concatenate([one.guests for one in stored]).astype(np.int32),
        "guest": np.arange(sum(sizes), dtype=np.int32),
        "host": np.repeat(np.arange(len(stored)), sizes).astype(np.int32),
    }
    return pa.table(columns)


@contextmanager
def engine_over(sketches: Sequence[Sketch], settings: Settings, work_dir: str | None = None, memory_bytes: int | None = None) -> Iterator[Engine]:
    """Writes the samples below `work_dir` and opens the engine over them for the time of a `with`."""
    with stored_samples(work_dir) as store, opened_engine(store, [store.put(sketch) for sketch in sketches], settings, memory_bytes) as engine:
        yield engine


@contextmanager
def stored_samples(work_dir: str | None) -> Iterator[SampleStore]:
    """Makes a store below `work_dir` for the time of a `with`."""
    with tempfile.TemporaryDirectory(prefix="ksmith-fleet-", dir=work_dir) as directory:
        yield SampleStore(Path(directory) / "samples")


@contextmanager
def opened_engine(store: SampleStore, sketches: Sequence[Sketch], settings: Settings, memory_bytes: int | None = None) -> Iterator[Engine]:
    """Opens the engine over stored sketches, in the order of the fleet, for the time of a `with`."""
    bits = sketches[0].host.rate_bits if sketches else 0
    engine = Engine(store.directory, _places(sketches), bits, settings, memory_bytes)
    try:
        yield engine
    finally:
        engine.close()
