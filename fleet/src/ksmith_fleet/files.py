"""Reads one sketch and refuses it if anything in it contradicts the format or itself."""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import fsspec
import fsspec.implementations.local
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ksmith_fleet import schema
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.heavy import check_heavy, heavy_copies, positions
from ksmith_fleet.metadata import GuestEntry, guest_entries, host_of, keys_of
from ksmith_fleet.model import Guest, Host
from ksmith_fleet.pages import check_pages
from ksmith_fleet.text import clean, reason

MOST_BYTES = 1 << 30
"""The largest file that is read, and a quarter of what may come of it when it is unpacked, by its own word."""
MOST_ROWS = 1 << 24
"""The most rows of one host: four thousand guests with 4096 sampled contents each."""
LONGEST_TEXT = 4096
"""The most bytes of a text, of which each row of a guest would have a copy."""
TEXTS = ["host", "boot", "guest_id", "guest_name", "kind", "domain", "class"]
"""Columns that repeat few texts, and are kept as numbers of these."""


@dataclass(frozen=True)
class StoredRows:
    """The rows of a sketch in a store: the number of the file, and for each guest of the sketch its number there."""

    file: int
    guests: npt.NDArray[np.int32]


@dataclass(frozen=True)
class Sketch:
    """One file: its host, its guests, and the rows of fingerprints, which may be stored elsewhere."""

    path: str
    host: Host
    guests: list[Guest]
    guest_of_row: npt.NDArray[np.int32]
    """For each row the position in `guests`."""
    fingerprints: npt.NDArray[np.int64]
    copies: npt.NDArray[np.int32]
    """The pages of each content that did not change between two looks."""
    residuals: npt.NDArray[np.float32]
    """These pages. Where heavy contents were not counted, less the guest's part of steady pages times all pages of the content; where they
    were, NaN for a heavy one."""
    stored: StoredRows | None = None


def list_sketches(where: str) -> list[str]:
    """Lists the Parquet files of a directory or of a prefix in an object store, in the order of their names."""
    try:
        fs, root = fsspec.core.url_to_fs(where)
        if fs.isfile(root):
            return [where]
        found = sorted(str(path) for path in fs.find(root) if str(path).endswith(".parquet")) if fs.exists(root) else None
    except Exception as error:
        # Each store's client has faults of its own types. A list that may lack hosts is none.
        raise BadSketchError(f"{where} cannot be listed ({_first_line(error)})") from error
    if found is None:
        raise BadSketchError(f"{where} does not exist; name a directory or prefix that holds sketches")
    return [str(fs.unstrip_protocol(path)) for path in found]


def without_rows(sketch: Sketch) -> Sketch:
    """Drops the rows."""
    return replace(
        sketch,
        guest_of_row=sketch.guest_of_row[:0].copy(),
        fingerprints=sketch.fingerprints[:0].copy(),
        copies=sketch.copies[:0].copy(),
        residuals=sketch.residuals[:0].copy(),
    )


def is_remote(path: str) -> bool:
    """Returns true if the file is in an object store."""
    return "://" in path and not path.startswith("file://")


def read_sketch(path: str, fetch: Callable[[], bytes] | None = None) -> Sketch:
    """Reads and checks one file, with its bytes from `fetch` or its path. Raises `BadSketchError` with the reason, or `FileNotFoundError`."""
    try:
        whole = fetch() if fetch else whole_file(path)
        data = pa.py_buffer(whole)
        parquet = pq.ParquetFile(pa.BufferReader(data))
        meta = keys_of(parquet.schema_arrow)
        _check_columns(parquet.schema_arrow)
        _check_size(parquet.metadata)
        check_pages(whole, parquet.metadata)
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, read_dictionary=TEXTS).read(list(schema.COLUMNS))
    except (FileNotFoundError, MemoryError):
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise BadSketchError(f"it is damaged or no Parquet file ({_first_line(error)})") from error
    for name in schema.COLUMNS:
        if name not in schema.NULLABLE and table.column(name).null_count:
            raise BadSketchError(f"column {name} lacks values")
    host = host_of(meta)
    _check_texts(table)
    try:
        raw_ids, guests = _guests(table, meta, host)
        return _with_rows(path, table, raw_ids, guests, host)
    except MemoryError:
        raise
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise BadSketchError(f"a value in it cannot be read ({_first_line(error)})") from error


def whole_file(path: str) -> bytes:
    """Reads all of a file in one request: it may be replaced meanwhile, and parts of two would be one wrong sketch."""
    try:
        fs, place = fsspec.core.url_to_fs(path)
        is_local = isinstance(fs, fsspec.implementations.local.LocalFileSystem)
        with _local_file(place) if is_local else fs.open(place, "rb", cache_type="none") as file:
            # Memory for all that may be read is taken first.
            size = os.fstat(file.fileno()).st_size if is_local else MOST_BYTES
            data: bytes = file.read(min(size, MOST_BYTES) + 1)
    except (FileNotFoundError, MemoryError):
        raise
    except Exception as error:
        raise BadSketchError(f"it cannot be read ({_first_line(error)})") from error
    if len(data) > MOST_BYTES:
        raise BadSketchError(f"it has more than {MOST_BYTES >> 20} MiB")
    return data


def _local_file(path: str) -> BinaryIO:
    """Opens a file of this host. A pipe, which another host may make in a shared directory, would have its reader wait for ever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("it is not a regular file")
    return os.fdopen(handle, "rb")


def _check_size(found: pq.FileMetaData) -> None:
    unpacked = sum(found.row_group(number).total_byte_size for number in range(found.num_row_groups))
    if found.num_rows > MOST_ROWS:
        raise BadSketchError(f"it has {found.num_rows} rows, and {MOST_ROWS} are read at most")
    if unpacked > 4 * MOST_BYTES:
        raise BadSketchError(f"it has {unpacked >> 20} MiB when unpacked, and {4 * MOST_BYTES >> 20} are read at most")


def _check_texts(table: pa.Table) -> None:
    for name in TEXTS:
        for chunk in table.column(name).chunks:
            texts = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            longest = pc.max(pc.binary_length(texts)).as_py() or 0
            if longest > LONGEST_TEXT:
                raise BadSketchError(f"column {name} has a text of {longest} bytes, and {LONGEST_TEXT} are read at most")


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {reason(error)}".strip().splitlines()[0][:160]


def _check_columns(arrow: pa.Schema) -> None:
    for name, kind in schema.COLUMNS.items():
        if name not in arrow.names:
            raise BadSketchError(f"column {name} is not there")
        found = arrow.field(name).type
        if pa.types.is_dictionary(found):
            found = found.value_type
        # A time without a zone would be one of the planner's own zone. With any zone it counts from 1970 in UTC.
        is_time = pa.types.is_timestamp(kind) and pa.types.is_timestamp(found) and found.unit == kind.unit and found.tz is not None
        if found != kind and not is_time:
            raise BadSketchError(f"column {name} has type {found}, not {kind}")


def _guests(table: pa.Table, meta: Mapping[str, str], host: Host) -> tuple[list[str], list[Guest]]:
    """Reads the guests, and their ids as the rows have them."""
    without = pc.is_null(table.column("fingerprint"))
    is_guest = pc.and_(without, pc.is_null(table.column("copies")))
    heavy = table.filter(pc.and_not(without, is_guest)).select(["guest_id", "copies", "steady"])
    # Before they become objects, of which each takes a kilobyte.
    said = guest_entries(meta, pc.sum(is_guest).as_py() or 0)
    if set(pc.unique(table.column("host")).to_pylist()) - {host.name}:
        raise BadSketchError(f"it has rows of other hosts than {host.name}")
    # Times stay numbers: a file chooses the name of its zone, and Python would look that up.
    times = table.column("time").cast(pa.int64())
    table = table.set_column(table.schema.get_field_index("time"), "time", times)
    not_one_each = "it does not have exactly one row without a fingerprint for each guest"
    if (pc.sum(is_guest).as_py() or 0) != len(said) or (len(heavy) and meta[schema.META_FORMAT] == schema.FORMATS[0]):
        raise BadSketchError(not_one_each)
    rows = table.filter(is_guest).to_pylist()
    ids = [str(row["guest_id"]) for row in rows]
    if len(set(ids)) != len(ids):
        raise BadSketchError(not_one_each)
    counted = heavy_copies(heavy, ids, [said.get(one) for one in ids])
    return ids, [replace(_guest(row, said, host), heavy=copies) for row, copies in zip(rows, counted, strict=True)]


def _guest(row: Mapping[str, Any], said: Mapping[str, GuestEntry], host: Host) -> Guest:
    name = clean(row["guest_id"])
    entry = said.get(row["guest_id"])
    if entry is None:
        raise BadSketchError(f"guest {name} is not in the metadata")
    if not 0 <= row["zero_pages"] <= row["pages"]:
        raise BadSketchError(f"guest {name} has {row['zero_pages']} zero pages of {row['pages']}")
    changing = row["changing"]
    if changing is not None and not 0 <= changing <= 1:
        raise BadSketchError(f"guest {name} has a changing part of {changing}")
    swap = entry.swap_bytes or 0
    if max(row["pages"] * host.page_size, entry.rss_bytes or 0, swap) > 4 * host.memory_bytes:
        raise BadSketchError(f"guest {name} has more than four times the memory of its host")
    return Guest(
        id=name,
        name=clean(row["guest_name"]),
        host=host.name,
        kind=clean(row["kind"]),
        domain=None if row["domain"] is None else clean(row["domain"]),
        klass=clean(row["class"]),
        pages=row["pages"],
        zero_pages=row["zero_pages"],
        changing=changing or 0.0,
        memory_bytes=entry.memory_bytes,
        rss_bytes=entry.rss_bytes,
        swap_bytes=swap,
        vcpus=entry.vcpus,
        configured_bytes=entry.configured_bytes,
        saved_bytes=entry.saved_bytes,
        zero_saved_bytes=entry.zero_saved_bytes,
        verified=entry.verified or False,
        time_ms=row["time"],
    )


def _with_rows(path: str, table: pa.Table, ids: list[str], guests: list[Guest], host: Host) -> Sketch:
    """Reads the rows of fingerprints, and checks that the guests can have them."""
    rates = pc.unique(table.column("rate")).to_pylist()
    if any(rate != 2.0**-host.rate_bits for rate in rates):
        raise BadSketchError(f"rows have rates {rates[:4]}, the file has 2^-{host.rate_bits}")
    rows = table.filter(pc.is_valid(table.column("fingerprint")))
    if rows.column("copies").null_count:
        raise BadSketchError("a fingerprint has no number of copies")
    guest_of_row = positions(rows.column("guest_id"), ids)
    fingerprints: npt.NDArray[np.int64] = rows.column("fingerprint").to_numpy()
    copies = rows.column("copies").to_numpy().astype(np.int64)
    steady = pc.coalesce(rows.column("steady"), rows.column("copies")).to_numpy().astype(np.int64)
    if host.rate_bits and len(fingerprints) and fingerprints.view(np.uint64).max() >= 1 << (64 - host.rate_bits):
        raise BadSketchError(f"a fingerprint is above the threshold of the rate 2^-{host.rate_bits}")
    if (copies < 1).any() or (steady < 0).any() or (steady > copies).any():
        raise BadSketchError("numbers of copies are out of bounds")
    order = np.lexsort((fingerprints, guest_of_row))
    again = (np.diff(guest_of_row[order]) == 0) & (np.diff(fingerprints[order]) == 0)
    if again.any():
        raise BadSketchError("a guest has the same fingerprint twice")
    _check_sums(guests, guest_of_row, copies, host)
    is_heavy = check_heavy(guests, guest_of_row, copies)
    # Where heavy contents are counted, the others say by themselves how many of their pages are steady.
    stays = np.array([1.0 - guest.changing if guest.heavy is None else 0.0 for guest in guests])
    residuals = np.where(is_heavy, np.nan, steady - stays[guest_of_row] * copies).astype(np.float32)
    return Sketch(path, host, guests, guest_of_row, fingerprints, steady.astype(np.int32), residuals)


def _check_sums(guests: list[Guest], guest_of_row: npt.NDArray[np.int32], copies: npt.NDArray[np.int64], host: Host) -> None:
    """Refuses sketches with numbers of pages that the sampled contents cannot have come from.

    The distinct contents of a guest are at most its nonzero pages, and their sample is binomial. Eight standard
    deviations are exceeded by chance in one of 10^15 files.
    """
    contents = np.bincount(guest_of_row, minlength=len(guests))
    sampled = np.bincount(guest_of_row, weights=copies, minlength=len(guests))
    rate = 2.0**-host.rate_bits
    for guest, distinct, pages in zip(guests, contents, sampled, strict=True):
        nonzero = guest.pages - guest.zero_pages
        most = nonzero * rate + 8 * (nonzero * rate * (1 - rate)) ** 0.5 + 16 * (rate < 1)
        if distinct > most:
            raise BadSketchError(f"guest {guest.id} has {distinct} sampled contents, and {nonzero} pages explain {most:.0f}")
        if pages > nonzero:
            raise BadSketchError(f"guest {guest.id} has {pages:.0f} sampled pages of only {nonzero}")
        if rate == 1.0 and pages != nonzero:
            raise BadSketchError(f"guest {guest.id} has {pages:.0f} pages in its contents, and says {nonzero}")
