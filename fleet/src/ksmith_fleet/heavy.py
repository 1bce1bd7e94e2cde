"""The contents with many copies in a guest, which a sketch counts in full: a few of them make up most of what a guest saves alone."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ksmith_fleet import schema
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.metadata import GuestEntry
from ksmith_fleet.model import Guest


def positions(column: pa.ChunkedArray, ids: list[str]) -> npt.NDArray[np.int32]:
    """Gives for each row the position of its guest."""
    if not len(column):
        return np.zeros(0, dtype=np.int32)
    encoded = column.combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.dictionary_encode().unify_dictionaries().combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    which = pc.index_in(encoded.dictionary.cast(pa.string()), value_set=pa.array(ids, pa.string()))
    found: npt.NDArray[np.int32] = pc.fill_null(which, -1).to_numpy(zero_copy_only=False).astype(np.int32)[encoded.indices.to_numpy()]
    if (found < 0).any():
        raise BadSketchError("a row of a content belongs to a guest that is not there")
    return found


def heavy_copies(rows: pa.Table, ids: list[str], said: Sequence[GuestEntry | None]) -> list[tuple[int, ...] | None]:
    """Gives for each guest the steady copies of its heavy contents, or `None` where its entry counts none."""
    guest = positions(rows.column("guest_id"), ids)
    copies = rows.column("copies").to_numpy().astype(np.int64)
    steady = pc.coalesce(rows.column("steady"), rows.column("copies")).to_numpy().astype(np.int64)
    if (copies <= schema.HEAVY_ABOVE).any() or (steady < 0).any() or (steady > copies).any():
        raise BadSketchError("numbers of copies of heavy contents are out of bounds")
    order = np.argsort(guest, kind="stable")
    parts = np.split(steady[order], np.cumsum(np.bincount(guest, minlength=len(ids)))[:-1]) if ids else []
    wanted = [None if entry is None else entry.heavy for entry in said]
    for name, part, number in zip(ids, parts, wanted, strict=True):
        if len(part) != (number or 0):
            raise BadSketchError(f"guest {name[:80]!r} has {len(part)} rows of heavy contents, and says {number}")
    return [None if number is None else tuple(part.tolist()) for part, number in zip(parts, wanted, strict=True)]


def check_heavy(guests: Sequence[Guest], guest_of_row: npt.NDArray[np.int32], copies: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Says for each sampled content whether its guest's heavy contents have it, and refuses numbers that cannot be."""
    counted = np.array([guest.heavy is not None for guest in guests], dtype=bool)
    is_heavy: npt.NDArray[np.bool_] = counted[guest_of_row] & (copies > schema.HEAVY_ABOVE)
    sampled = np.bincount(guest_of_row[is_heavy], minlength=len(guests))
    for guest, number in zip(guests, sampled, strict=True):
        steady = guest.heavy or ()
        # A count may be too high by the pages of others before its ninth.
        if number > len(steady) or sum(steady) - schema.HEAVY_ABOVE * len(steady) > guest.pages - guest.zero_pages:
            raise BadSketchError(f"guest {guest.id} has heavy contents that its pages do not explain")
    return is_heavy


def heavy_saved(guest: Guest, max_sharing: int) -> int:
    """Gives the pages that merging its heavy contents frees if the guest is alone. A frame takes at most `max_sharing` pages."""
    return sum(steady - -(-steady // max_sharing) for steady in guest.heavy or ())
