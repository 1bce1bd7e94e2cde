"""Thins sketches to a lower rate, for test data: python bench/thin.py FROM TO BITS."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

source, target, bits = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
target.mkdir(parents=True, exist_ok=True)
for path in sorted(source.glob("*.parquet")):
    table = pq.read_table(path)
    fingerprints = table.column("fingerprint").fill_null(0).to_numpy()
    table = table.filter(pa.array(fingerprints.view(np.uint64) < np.uint64(1 << (64 - bits))))
    table = table.set_column(table.schema.get_field_index("rate"), table.schema.field("rate"), pa.array(np.full(table.num_rows, 2.0**-bits)))
    assert pc.is_null(table.column("fingerprint")).to_pylist().count(True) >= 1
    meta = dict(table.schema.metadata) | {b"ksmith.rate_bits": str(bits).encode()}
    pq.write_table(table.replace_schema_metadata(meta), target / path.name, compression="zstd", compression_level=19, write_page_checksum=True)
