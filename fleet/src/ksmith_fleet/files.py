"""Reads one sketch and refuses it if anything in it contradicts the format or itself."""

import json
from dataclasses import dataclass, replace
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ksmith_fleet import schema
from ksmith_fleet.estimate import changing_variance
from ksmith_fleet.model import Guest, Host


class BadSketchError(Exception):
    """A file is no sketch that can be trusted; the text says why."""


@dataclass(frozen=True)
class Sketch:
    """One file: its host, its guests, and the rows of fingerprints."""

    path: str
    host: Host
    guests: list[Guest]
    guest_of_row: npt.NDArray[np.int32]
    """For each row the position in `guests`."""
    fingerprints: npt.NDArray[np.int64]
    copies: npt.NDArray[np.int32]
    """The pages of each content that did not change between two looks."""


def list_sketches(where: str) -> list[str]:
    """Lists the Parquet files of a directory or of a prefix in an object store, in the order of their names."""
    fs, root = fsspec.core.url_to_fs(where)
    if fs.isfile(root):
        return [where]
    if not fs.exists(root):
        raise BadSketchError(f"{where} does not exist; name a directory or prefix that holds sketches")
    found = sorted(str(path) for path in fs.find(root) if str(path).endswith(".parquet"))
    return [str(fs.unstrip_protocol(path)) for path in found]


def read_sketch(path: str) -> Sketch:
    """Reads and checks one file. Raises `BadSketchError` with the reason, or `FileNotFoundError`."""
    try:
        with fsspec.open(path, "rb") as file:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            meta = _metadata(parquet.schema_arrow)
            _check_columns(parquet.schema_arrow)
            table = parquet.read(columns=list(schema.COLUMNS))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise BadSketchError(f"it is damaged or no Parquet file ({_first_line(error)})") from error
    for name in schema.COLUMNS:
        if name not in schema.NULLABLE and table.column(name).null_count:
            raise BadSketchError(f"column {name} lacks values")
    try:
        host = _host(meta)
        guests = _guests(table, meta, host)
        rows = _rows(table, guests, host)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadSketchError(f"its metadata does not have the form of format {schema.FORMAT} ({error!r})") from error
    return Sketch(path, host, guests, *rows)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:160]


def _metadata(arrow: pa.Schema) -> dict[str, str]:
    raw = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in (arrow.metadata or {}).items()}
    if schema.META_FORMAT not in raw:
        raise BadSketchError("it is no sketch of ksmith: the key ksmith.format is not there")
    if raw[schema.META_FORMAT] != schema.FORMAT:
        raise BadSketchError(f"it has format {raw[schema.META_FORMAT]!r}; this ksmith-fleet reads {schema.FORMAT}")
    missing = [key for key in schema.META_ALL if key not in raw]
    if missing:
        raise BadSketchError(f"metadata {', '.join(missing)} is not there")
    return raw


def _check_columns(arrow: pa.Schema) -> None:
    for name, kind in schema.COLUMNS.items():
        if name not in arrow.names:
            raise BadSketchError(f"column {name} is not there")
        found = arrow.field(name).type
        if pa.types.is_dictionary(found):
            found = found.value_type
        same = found == kind or (pa.types.is_timestamp(found) and pa.types.is_timestamp(kind))
        if not same:
            raise BadSketchError(f"column {name} has type {found}, not {kind}")


def _host(meta: dict[str, str]) -> Host:
    try:
        said: dict[str, Any] = json.loads(meta[schema.META_HOST])
        bits = int(meta[schema.META_RATE_BITS])
        page = int(meta[schema.META_PAGE])
    except ValueError as error:
        raise BadSketchError(f"its metadata cannot be read ({_first_line(error)})") from error
    if not 0 <= bits <= schema.MAX_RATE_BITS:
        raise BadSketchError(f"rate_bits {bits} is outside 0 to {schema.MAX_RATE_BITS}")
    if page < 4096 or page & (page - 1):
        raise BadSketchError(f"page_size {page} is no power of two from 4096 on")
    memory = said["memory_bytes"]
    if not isinstance(memory, int) or memory <= 0:
        raise BadSketchError("the host does not say how much memory it has")
    available = said.get("available_bytes")
    if available is not None and not 0 <= available <= memory:
        raise BadSketchError(f"the host says that {available} of {memory} bytes are available")
    ksm: dict[str, Any] = said.get("ksm") or {}
    across = ksm.get("merge_across_nodes")
    return Host(
        name=str(said["host"]),
        boot=str(said["boot"]),
        time_ms=int(said["time_ms"]),
        page_size=page,
        rate_bits=bits,
        key_id=meta[schema.META_KEY],
        memory_bytes=memory,
        available_bytes=available,
        reserved_bytes=int(said.get("reserved_bytes") or 0),
        cpus=said.get("cpus"),
        numa_bytes=tuple(int(node["memory_bytes"]) for node in said.get("numa") or []),
        merge_across_nodes=across is None or bool(across),
        use_zero_pages=bool(ksm.get("use_zero_pages")),
        max_page_sharing=max(2, int(ksm.get("max_page_sharing") or 256)),
        saved_bytes=ksm.get("saved_bytes"),
        skipped=tuple(f"{skip.get('guest')} ({skip.get('why')})" for skip in said.get("skipped") or []),
    )


def _guests(table: pa.Table, meta: dict[str, str], host: Host) -> list[Guest]:
    try:
        said = {entry["guest_id"]: entry for entry in json.loads(meta[schema.META_GUESTS])}
    except ValueError as error:
        raise BadSketchError(f"metadata {schema.META_GUESTS} cannot be read ({_first_line(error)})") from error
    rows = table.filter(pc.is_null(table.column("fingerprint"))).to_pylist()
    if set(pc.unique(table.column("host")).to_pylist()) - {host.name}:
        raise BadSketchError(f"it has rows of other hosts than {host.name}")
    guests: list[Guest] = []
    for row in rows:
        entry = said.get(row["guest_id"])
        if entry is None:
            raise BadSketchError(f"guest {row['guest_id']} is not in the metadata")
        if not 0 <= row["zero_pages"] <= row["pages"]:
            raise BadSketchError(f"guest {row['guest_id']} has {row['zero_pages']} zero pages of {row['pages']}")
        changing = row["changing"]
        if changing is not None and not 0 <= changing <= 1:
            raise BadSketchError(f"guest {row['guest_id']} has a changing part of {changing}")
        if row["pages"] * host.page_size > 4 * host.memory_bytes:
            raise BadSketchError(f"guest {row['guest_id']} has more than four times the memory of its host")
        guests.append(
            Guest(
                id=row["guest_id"],
                name=row["guest_name"],
                host=host.name,
                kind=row["kind"],
                domain=row["domain"],
                klass=row["class"],
                pages=row["pages"],
                zero_pages=row["zero_pages"],
                changing=changing or 0.0,
                memory_bytes=entry.get("memory_bytes"),
                rss_bytes=entry.get("rss_bytes"),
                saved_bytes=entry.get("saved_bytes"),
                verified=bool(entry.get("verified")),
                time_ms=int(row["time"].timestamp() * 1000),
            )
        )
    if len({guest.id for guest in guests}) != len(guests) or len(guests) != len(said):
        raise BadSketchError("it does not have exactly one row without a fingerprint for each guest")
    return guests


def _rows(table: pa.Table, guests: list[Guest], host: Host) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    rates = pc.unique(table.column("rate")).to_pylist()
    if any(rate != 2.0**-host.rate_bits for rate in rates):
        raise BadSketchError(f"rows have rates {rates}, the file has 2^-{host.rate_bits}")
    rows = table.filter(pc.is_valid(table.column("fingerprint")))
    if rows.column("copies").null_count:
        raise BadSketchError("a fingerprint has no number of copies")
    position = pa.array([guest.id for guest in guests], pa.string())
    which = pc.index_in(rows.column("guest_id").cast(pa.string()), value_set=position)
    if which.null_count:
        raise BadSketchError("a fingerprint belongs to a guest that is not there")
    guest_of_row = which.to_numpy().astype(np.int32)
    fingerprints: npt.NDArray[np.int64] = rows.column("fingerprint").to_numpy()
    copies = rows.column("copies").to_numpy().astype(np.int64)
    steady = pc.coalesce(rows.column("steady"), rows.column("copies")).to_numpy().astype(np.int64)
    if host.rate_bits and len(fingerprints) and fingerprints.view(np.uint64).max() >= 1 << (64 - host.rate_bits):
        raise BadSketchError(f"a fingerprint is above the threshold of the rate 2^-{host.rate_bits}")
    if (copies < 1).any() or (steady < 0).any() or (steady > copies).any():
        raise BadSketchError("numbers of copies are out of bounds")
    rate = 2.0**-host.rate_bits
    for at, guest in enumerate(guests):
        own = guest_of_row == at
        guests[at] = replace(guest, changing_variance=changing_variance(copies[own].astype(float), steady[own].astype(float), rate))
    order = np.lexsort((fingerprints, guest_of_row))
    again = (np.diff(guest_of_row[order]) == 0) & (np.diff(fingerprints[order]) == 0)
    if again.any():
        raise BadSketchError("a guest has the same fingerprint twice")
    _check_sums(guests, guest_of_row, copies, host)
    return guest_of_row, fingerprints, steady.astype(np.int32)


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
