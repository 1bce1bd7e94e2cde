"""Writes sketches of made-up hosts in the format of `ksmith sketch`."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ksmith_fleet import schema


@dataclass(frozen=True)
class MadeGuest:
    """A guest to write: its sampled contents, and what its sketch says besides."""

    id: str
    name: str
    fingerprints: npt.NDArray[np.int64]
    copies: npt.NDArray[np.int32]
    pages: int
    zero_pages: int = 0
    domain: str | None = None
    klass: str = "silver"
    changing: float | None = None
    verified: bool = True
    kind: str = "qemu"
    more: dict[str, Any] = field(default_factory=dict)
    steady: npt.NDArray[np.int32] | None = None
    """The copies that stayed at the second look. Without them there was none."""
    heavy: npt.NDArray[np.int32] | None = None
    """Copies and steady copies of each heavy content, in rows. `None`: they were not counted."""


@dataclass(frozen=True)
class MadeHost:
    """A host to write."""

    name: str
    guests: Sequence[MadeGuest]
    memory_bytes: int = 64 << 30
    rate_bits: int = 0
    key_id: str = "0" * 32
    next_key_id: str | None = None
    time_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    page_size: int = 4096
    more: dict[str, Any] = field(default_factory=dict)


def write_sketch(host: MadeHost, path: Path) -> None:
    """Writes one host's file."""
    # The first row of each guest says what it is, and has neither fingerprint nor copies. Heavy contents follow, without fingerprints.
    parts: list[pa.Table] = []
    for guest in host.guests:
        order = np.argsort(guest.fingerprints)
        same: dict[str, Any] = {
            "host": host.name, "boot": "boot-" + host.name, "time": host.time_ms, "guest_id": guest.id,
            "guest_name": guest.name, "kind": guest.kind, "domain": guest.domain, "class": guest.klass, "pages": guest.pages,
            "zero_pages": guest.zero_pages, "changing": guest.changing, "rate": 2.0**-host.rate_bits,
        }  # fmt: skip
        held: dict[str, Any] = {"fingerprint": guest.fingerprints, "copies": guest.copies, "steady": guest.steady}
        heavy = np.zeros((0, 2), dtype=np.int32) if guest.heavy is None else guest.heavy
        count = 1 + len(heavy) + len(order)
        columns = []
        for name, kind in schema.COLUMNS.items():
            values = held.get(name)
            if name in same:
                columns.append(pa.repeat(pa.scalar(same[name], kind), count))
            elif values is None:
                columns.append(pa.nulls(count, kind))
            else:
                of_heavy = pa.nulls(len(heavy), kind) if name == "fingerprint" else pa.array(heavy[:, int(name == "steady")], kind)
                columns.append(pa.concat_arrays([pa.nulls(1, kind), of_heavy, pa.array(values[order], kind)]))
        parts.append(pa.table(columns, names=list(schema.COLUMNS)))
    empty = pa.schema(list(schema.COLUMNS.items())).empty_table()
    table = pa.concat_tables([empty, *parts]).combine_chunks()
    used = sum(guest.pages for guest in host.guests) * host.page_size
    said_host = {
        "host": host.name, "boot": "boot-" + host.name, "time_ms": host.time_ms, "memory_bytes": host.memory_bytes,
        "available_bytes": max(0, host.memory_bytes - used), "reserved_bytes": None, "cpus": 16, "numa": [],
        "ksm": {"merge_across_nodes": 1, "use_zero_pages": 1, "max_page_sharing": 256, "ksm_zero_pages": 0}, "skipped": [],
    } | host.more  # fmt: skip
    said_guests = [
        {
            "guest_id": guest.id, "name": guest.name, "verified": guest.verified, "memory_bytes": guest.pages * host.page_size,
            "rss_bytes": guest.pages * host.page_size, "saved_bytes": 0, "looked_at": len(guest.fingerprints),
            "heavy": None if guest.heavy is None else len(guest.heavy),
        } | guest.more
        for guest in host.guests
    ]  # fmt: skip
    meta = {
        schema.META_FORMAT: schema.FORMAT, schema.META_KEY: host.key_id, schema.META_RATE_BITS: str(host.rate_bits),
        schema.META_PAGE: str(host.page_size), schema.META_COMPLETE: "true", schema.META_HOST: json.dumps(said_host),
        schema.META_GUESTS: json.dumps(said_guests),
    } | ({schema.META_NEXT_KEY: host.next_key_id} if host.next_key_id else {})  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(meta), path, compression="zstd", write_page_checksum=True)
