"""The Parquet schema of a sketch, as `ksmith sketch` writes it."""

from typing import Final

import pyarrow as pa

FORMAT: Final = "2"
"""The version of the format. Files of version 1 have no heavy contents, and are read, too."""
FORMATS: Final = ("1", FORMAT)
HEAVY_ABOVE: Final = 8
"""The copies that a content of a guest has at most without being heavy."""

COLUMNS: Final[dict[str, pa.DataType]] = {
    "host": pa.string(),
    "boot": pa.string(),
    "time": pa.timestamp("ms", tz="UTC"),
    "guest_id": pa.string(),
    "guest_name": pa.string(),
    "kind": pa.string(),
    "domain": pa.string(),
    "class": pa.string(),
    "pages": pa.int64(),
    "zero_pages": pa.int64(),
    "changing": pa.float64(),
    "rate": pa.float64(),
    "fingerprint": pa.int64(),
    "copies": pa.int32(),
    "steady": pa.int32(),
}
"""The columns that must be there, and the types that they are read as."""

NULLABLE: Final = frozenset({"domain", "changing", "fingerprint", "copies", "steady"})
"""The columns that may lack a value."""

META_FORMAT: Final = "ksmith.format"
META_KEY: Final = "ksmith.key_id"
META_NEXT_KEY: Final = "ksmith.next_key_id"
"""Not in all files: all guests have been read with the key that comes next."""
META_RATE_BITS: Final = "ksmith.rate_bits"
META_PAGE: Final = "ksmith.page_size"
META_COMPLETE: Final = "ksmith.complete"
META_HOST: Final = "ksmith.host"
META_GUESTS: Final = "ksmith.guests"
META_ALL: Final = (META_FORMAT, META_KEY, META_RATE_BITS, META_PAGE, META_COMPLETE, META_HOST, META_GUESTS)
"""The key-value metadata that each file must have."""

MAX_RATE_BITS: Final = 32
"""The rate is 2 to the minus `rate_bits`, which is at most this."""
