"""What a sketch says beside its rows: the host, and an entry for each guest."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ksmith_fleet import schema, values
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.model import Host
from ksmith_fleet.text import clean, is_host_name


def keys_of(arrow: pa.Schema) -> dict[str, str]:
    """Takes the key-value metadata of a file, if they are of a sketch of this format."""
    raw = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in (arrow.metadata or {}).items()}
    if schema.META_FORMAT not in raw:
        raise BadSketchError("it is no sketch of ksmith: the key ksmith.format is not there")
    if raw[schema.META_FORMAT] != schema.FORMAT:
        raise BadSketchError(f"it has format {raw[schema.META_FORMAT]!r}; this ksmith-fleet reads {schema.FORMAT}")
    missing = [key for key in schema.META_ALL if key not in raw]
    if missing:
        raise BadSketchError(f"metadata {', '.join(missing)} is not there")
    return raw


def _json(meta: Mapping[str, str], key: str) -> Any:
    try:
        return json.loads(meta[key])
    except (ValueError, RecursionError) as error:
        raise BadSketchError(f"metadata {key} cannot be read ({str(error)[:160]})") from error


def host_of(meta: Mapping[str, str]) -> Host:
    """Reads the host's entry."""
    said = values.table(_json(meta, schema.META_HOST), schema.META_HOST)
    page, name = _whole(meta, schema.META_PAGE), values.text(said, "host")
    bits = _whole(meta, schema.META_RATE_BITS)
    if bits > schema.MAX_RATE_BITS:
        raise BadSketchError(f"rate_bits {bits} is outside 0 to {schema.MAX_RATE_BITS}")
    if not 4096 <= page <= 1 << 30 or page & (page - 1):
        raise BadSketchError(f"page_size {page} is no power of two from 4096 on")
    if not is_host_name(name):
        raise BadSketchError(f"{name[:80]!r} is no name of a host: set `host` in its table [sketch]")
    memory = values.number(said, "memory_bytes", 1)
    if memory is None:
        raise BadSketchError("the host does not say how much memory it has")
    available = values.number(said, "available_bytes")
    if available is not None and available > memory:
        raise BadSketchError(f"the host says that {available} of {memory} bytes are available")
    ksm = values.table(said.get("ksm") or {}, "ksm")
    zero = values.number(ksm, "ksm_zero_pages")
    return Host(
        name=name,
        boot=clean(values.text(said, "boot")),
        time_ms=values.needed(said, "time_ms"),
        page_size=page,
        rate_bits=bits,
        key_id=clean(meta[schema.META_KEY]),
        memory_bytes=memory,
        available_bytes=available,
        reserved_bytes=values.number(said, "reserved_bytes") or 0,
        cpus=values.number(said, "cpus"),
        numa_bytes=_nodes(said),
        merge_across_nodes=values.flag(ksm, "merge_across_nodes", True),
        use_zero_pages=values.flag(ksm, "use_zero_pages", False),
        max_page_sharing=max(2, values.number(ksm, "max_page_sharing") or 256),
        zero_bytes=(zero or 0) * page,
        shmem_bytes=values.number(said, "shmem_bytes") or 0,
        skipped=tuple(f"{clean(str(skip.get('guest')))} ({clean(str(skip.get('why')))})" for skip in values.entries(said, "skipped")),
    )


def _nodes(said: Mapping[str, Any]) -> tuple[int, ...]:
    """Gives the memory of each NUMA node. If one has none, or does not say, nothing is known of the nodes."""
    found = [values.number(node, "memory_bytes") for node in values.entries(said, "numa")]
    return tuple(size for size in found if size) if all(found) else ()


def _whole(meta: Mapping[str, str], key: str) -> int:
    if not meta[key].isascii() or not meta[key].isdigit() or len(meta[key]) > 12:
        raise BadSketchError(f"metadata {key} is no number")
    return int(meta[key])


def guest_entries(meta: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
    """Reads the entries of the guests, by id."""
    said = values.entries({"guests": _json(meta, schema.META_GUESTS)}, "guests")
    found = {values.text(entry, "guest_id"): entry for entry in said}
    if len(found) != len(said):
        raise BadSketchError("two guests of its metadata have one id")
    return found
