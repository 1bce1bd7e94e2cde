"""What a sketch says beside its rows: the host, and an entry for each guest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

import pyarrow as pa
from pydantic import FailFast, Field, TypeAdapter

from ksmith_fleet import schema
from ksmith_fleet.declared import LARGEST, OPEN, Whole, parse_json
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.model import Host
from ksmith_fleet.text import clean, is_host_name

T = TypeVar("T")
MOST_GUESTS = 1 << 14
"""The most guests of one host."""
MOST_HOST_BYTES = 1 << 20
"""The longest text of a host's entry: with the names of all guests that it skipped."""
BYTES_OF_GUEST = 2048
"""The bytes of a guest's entry in the mean. Some 600 are usual."""
MOST_HEAVY = 1 << 14
"""The most heavy contents of a guest."""
MOST_VCPUS = 1 << 16
"""The most virtual CPUs of a guest that are believed."""
KernelFlag = Annotated[int, Field(ge=0, le=1)]
"""A truth value as the kernel's files have it."""


@dataclass(frozen=True)
class KsmEntry:
    """The settings and counters of KSM."""

    merge_across_nodes: KernelFlag | None = None
    use_zero_pages: KernelFlag | None = None
    max_page_sharing: Whole | None = None
    ksm_zero_pages: Whole | None = None
    unverified_bytes: Whole | None = None


@dataclass(frozen=True)
class NodeEntry:
    """A NUMA node."""

    memory_bytes: Whole | None = None


@dataclass(frozen=True)
class SkippedGuest:
    """A guest that the host left out."""

    guest: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class HostEntry:
    """The text `ksmith.host` of a sketch. Newer hosts say more."""

    __pydantic_config__ = OPEN

    host: str
    boot: str
    time_ms: Whole
    memory_bytes: Annotated[int, Field(ge=1, le=LARGEST)]
    available_bytes: Whole | None = None
    reserved_bytes: Whole | None = None
    cpus: Whole | None = None
    shmem_bytes: Whole | None = None
    swap_free_bytes: Whole | None = None
    numa: list[NodeEntry] | None = None
    ksm: KsmEntry | None = None
    skipped: list[SkippedGuest] | None = None


@dataclass(frozen=True)
class GuestEntry:
    """A guest in the text `ksmith.guests` of a sketch."""

    __pydantic_config__ = OPEN

    guest_id: str
    verified: bool | None = None
    memory_bytes: Whole | None = None
    rss_bytes: Whole | None = None
    swap_bytes: Whole | None = None
    configured_bytes: Whole | None = None
    saved_bytes: Whole | None = None
    zero_saved_bytes: Whole | None = None
    vcpus: Annotated[int, Field(ge=1, le=MOST_VCPUS)] | None = None
    heavy: Annotated[int, Field(ge=0, le=MOST_HEAVY)] | None = None
    """The number of its rows of heavy contents, if they were counted."""


_HOST_FORMAT = TypeAdapter(HostEntry)
# Reading ends at the first fault: each takes a kilobyte.
_GUESTS_FORMAT: TypeAdapter[list[GuestEntry]] = TypeAdapter(Annotated[list[GuestEntry], FailFast()])


def keys_of(arrow: pa.Schema) -> dict[str, str]:
    """Takes the key-value metadata of a file, if they are of a sketch of this format."""
    raw = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in (arrow.metadata or {}).items()}
    if schema.META_FORMAT not in raw:
        raise BadSketchError("it is no sketch of ksmith: the key ksmith.format is not there")
    if raw[schema.META_FORMAT] not in schema.FORMATS:
        raise BadSketchError(f"it has format {raw[schema.META_FORMAT]!r}; this ksmith-fleet reads {' and '.join(schema.FORMATS)}")
    missing = [key for key in schema.META_ALL if key not in raw]
    if missing:
        raise BadSketchError(f"metadata {', '.join(missing)} is not there")
    return raw


def _parsed(form: TypeAdapter[T], meta: Mapping[str, str], key: str, most_bytes: int) -> T:
    """Reads JSON of a bounded length. An object of it takes up to 30 times the bytes of its text."""
    if len(meta[key]) > most_bytes:
        raise BadSketchError(f"metadata {key} has {len(meta[key]) >> 10} KiB, and {most_bytes >> 10} are read at most")
    try:
        return parse_json(form, meta[key])
    except ValueError as error:
        raise BadSketchError(f"metadata {key}: {error}") from error


def host_of(meta: Mapping[str, str]) -> Host:
    """Reads the host's entry."""
    said = _parsed(_HOST_FORMAT, meta, schema.META_HOST, MOST_HOST_BYTES)
    page, bits = _whole(meta, schema.META_PAGE), _whole(meta, schema.META_RATE_BITS)
    if bits > schema.MAX_RATE_BITS:
        raise BadSketchError(f"rate_bits {bits} is outside 0 to {schema.MAX_RATE_BITS}")
    if not 4096 <= page <= 1 << 30 or page & (page - 1):
        raise BadSketchError(f"page_size {page} is no power of two from 4096 on")
    if not is_host_name(said.host):
        raise BadSketchError(f"{said.host[:80]!r} is no name of a host: set `host` in its table [sketch]")
    if said.available_bytes is not None and said.available_bytes > said.memory_bytes:
        raise BadSketchError(f"the host says that {said.available_bytes} of {said.memory_bytes} bytes are available")
    ksm = said.ksm or KsmEntry()
    nodes = [node.memory_bytes for node in said.numa or []]
    return Host(
        name=said.host,
        boot=clean(said.boot),
        time_ms=said.time_ms,
        page_size=page,
        rate_bits=bits,
        key_id=clean(meta[schema.META_KEY]),
        next_key_id=clean(meta.get(schema.META_NEXT_KEY, "")),
        memory_bytes=said.memory_bytes,
        available_bytes=said.available_bytes,
        reserved_bytes=said.reserved_bytes or 0,
        cpus=said.cpus,
        # If one node has no memory, or does not say, nothing is known of the nodes.
        numa_bytes=tuple(size for size in nodes if size) if all(nodes) else (),
        merge_across_nodes=ksm.merge_across_nodes != 0,
        use_zero_pages=ksm.use_zero_pages == 1,
        max_page_sharing=max(2, ksm.max_page_sharing or 256),
        zero_bytes=(ksm.ksm_zero_pages or 0) * page,
        unverified_bytes=ksm.unverified_bytes or 0,
        shmem_bytes=said.shmem_bytes or 0,
        swap_free_bytes=said.swap_free_bytes or 0,
        skipped=tuple(f"{clean(str(skip.guest))} ({clean(str(skip.why))})" for skip in said.skipped or []),
    )


def _whole(meta: Mapping[str, str], key: str) -> int:
    if not meta[key].isascii() or not meta[key].isdigit() or len(meta[key]) > 12:
        raise BadSketchError(f"metadata {key} is not a number")
    return int(meta[key])


def guest_entries(meta: Mapping[str, str], guests: int) -> dict[str, GuestEntry]:
    """Reads the entries of so many guests, by id."""
    if guests > MOST_GUESTS:
        raise BadSketchError(f"it has {guests} guests, and {MOST_GUESTS} are read at most")
    said = _parsed(_GUESTS_FORMAT, meta, schema.META_GUESTS, MOST_HOST_BYTES + guests * BYTES_OF_GUEST)
    found = {entry.guest_id: entry for entry in said}
    if len(found) != len(said):
        raise BadSketchError("two guests of its metadata have one id")
    return found
