"""A file that unpacks to more than it says, or than its rows explain, is left out before memory is taken for it."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made import guest

from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.files import read_sketch
from ksmith_fleet.pages import check_pages
from ksmith_fleet.simulate.write import MadeHost, write_sketch


@pytest.fixture
def sketch(tmp_path: Path) -> Path:
    path = tmp_path / "h1.parquet"
    write_sketch(MadeHost("h1", [guest("a", [(1, 5000)])]), path)
    return path


def write_again(path: Path, change: dict[str, pa.Array] | None = None, rows: int | None = None, **more: Any) -> None:
    """Writes a sketch anew with other columns, or with its first row as often as `rows`."""
    table = pq.read_table(path)
    if rows is not None:
        table = table.take(pa.array(np.zeros(rows, dtype=np.int64)))
    for name, column in (change or {}).items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table, path, **{"compression": "zstd", **more})


@pytest.mark.parametrize(
    "how",
    [
        {"compression": "snappy", "use_dictionary": False},
        {"compression": "gzip", "data_page_version": "2.0"},
        {"compression": "none", "row_group_size": 100},
        {"compression": "zstd", "data_page_size": 512, "use_dictionary": ["host", "boot"], "write_page_checksum": True},
    ],
)
def test_a_sketch_is_read_however_it_is_packed(sketch: Path, how: dict[str, Any]) -> None:
    before = read_sketch(str(sketch))
    write_again(sketch, **how)
    assert np.array_equal(read_sketch(str(sketch)).fingerprints, before.fingerprints)


def test_more_rows_than_bytes_are_refused(sketch: Path) -> None:
    write_again(sketch, rows=4_000_000)
    with pytest.raises(BadSketchError, match="4000000 rows in"):
        read_sketch(str(sketch))


def test_more_guests_than_a_host_has_are_refused_before_they_become_objects(sketch: Path) -> None:
    table = pq.read_table(sketch)
    guest_row = table.take(pa.array(np.zeros(20_000, dtype=np.int64)))
    entries = json.dumps([{"guest_id": str(number)} for number in range(20_000)])
    pq.write_table(guest_row.replace_schema_metadata(table.schema.metadata | {b"ksmith.guests": entries}), sketch)
    with pytest.raises(BadSketchError, match="20000 guests, and 16384 are read at most"):
        read_sketch(str(sketch))


@pytest.mark.parametrize("key", ["ksmith.host", "ksmith.guests"])
def test_metadata_of_more_objects_than_its_guests_explain_are_refused_before_they_are_read(sketch: Path, key: str) -> None:
    table = pq.read_table(sketch)
    endless = "[" + "[]," * 500_000 + "[]]"
    pq.write_table(table.replace_schema_metadata(table.schema.metadata | {key.encode(): endless}), sketch)
    with pytest.raises(BadSketchError, match=f"metadata {key} has 1464 KiB, and 10"):
        read_sketch(str(sketch))


def test_texts_by_their_differences_are_refused(sketch: Path) -> None:
    write_again(sketch, use_dictionary=False, column_encoding={"kind": "DELTA_BYTE_ARRAY"})
    with pytest.raises(BadSketchError, match="in encoding 7"):
        read_sketch(str(sketch))


PROGRAM = """
import resource, sys
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.files import read_sketch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_sketch(sys.argv[1])
except BadSketchError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_file_of_kilobytes_that_unpacks_to_gigabytes_takes_no_memory(sketch: Path) -> None:
    rows = pq.read_metadata(sketch).num_rows
    texts = pa.array([f"{number:04}" * 50_000 for number in range(rows)][:200] * (rows // 200) + ["x"] * (rows % 200))
    write_again(sketch, {"kind": texts}, use_dictionary=False)
    assert sketch.stat().st_size < 4 << 20
    _claim_little(sketch)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(sketch)], capture_output=True, text=True, check=True)
    why, kilobytes = done.stdout.splitlines()
    assert "unpack to more than" in why
    assert int(kilobytes) < 64 << 10


def _claim_little(path: Path) -> None:
    """Replaces the sizes in the footer, which nothing checks: the column's and the row group's."""
    data = bytearray(path.read_bytes())
    size = pq.read_metadata(path).row_group(0).total_byte_size
    group = _zigzag(size)
    at = data.rindex(group)
    data[at : at + len(group)] = _zigzag(1, len(group))
    path.write_bytes(data)
    assert pq.read_metadata(path).row_group(0).total_byte_size == 1


def _zigzag(number: int, length: int = 0) -> bytes:
    """Writes a number of Thrift's compact protocol, in as many bytes as another takes."""
    value = number << 1
    out: list[int] = []
    while value > 0x7F or len(out) + 1 < length:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, kind: int, value: bytes) -> bytes:
    """Writes a field of Thrift's compact protocol with its number in full."""
    return bytes([kind]) + _zigzag(number) + value


def i32(number: int, value: int) -> bytes:
    return field(number, 5, _zigzag(value))


def head(number: int, count: int, encoding_field: int = 2) -> bytes:
    return field(number, 12, i32(1, count) + i32(encoding_field, 0) + b"\0")


def page(*fields: bytes, kind: int = 0, size: int = 4) -> bytes:
    return i32(1, kind) + i32(2, size) + i32(3, 0) + b"".join(fields) + b"\0"


@dataclass
class Chunk:
    """One column as a footer describes it."""

    num_values: int
    total_compressed_size: int
    data_page_offset: int = 0
    path_in_schema: str = "kind"
    has_dictionary_page: bool = False
    dictionary_page_offset: int | None = None


@dataclass
class Group:
    num_rows: int
    chunks: list[Chunk]

    @property
    def num_columns(self) -> int:
        return len(self.chunks)

    def column(self, index: int) -> Chunk:
        return self.chunks[index]


@dataclass
class Footer:
    groups: list[Group]
    num_rows: int

    @property
    def num_row_groups(self) -> int:
        return len(self.groups)

    def row_group(self, number: int) -> Group:
        return self.groups[number]


def check(data: bytes, values: int = 10, rows: int = 10, groups: int = 1, group_rows: int = 10) -> None:
    group = Group(group_rows, [Chunk(values, len(data))])
    check_pages(data, cast(pq.FileMetaData, Footer([group] * groups, rows)))


def test_a_page_with_the_head_of_its_type_is_counted() -> None:
    check(page(head(5, 10)))
    check(page(head(7, 0), kind=2) + page(head(8, 10, 4), kind=3))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (page(head(5, 10), head(8, 5, 4)), "another head"),
        (page(head(8, 10, 4)), "another head"),
        (page(head(6, 10), kind=1), "another head"),
        (page(field(5 + (1 << 16), 12, i32(1, 10) + i32(2, 0) + b"\0")), "more than 16 bits"),
        (page(head(5, 10), i32(2, 4)), "field 2 twice"),
        (page(head(5, 10), size=4 + (1 << 32)), "more than 32 bits"),
        (page(head(5, 10 + (1 << 32))), "more than 32 bits"),
        (page(head(5, 11)), "more values in its pages"),
        (page(head(5, 10), field(9, 9, b"\xf1\x7f")), "a value of type 9"),
    ],
)
def test_a_page_header_that_may_be_understood_otherwise_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check(data)


def test_a_footer_that_contradicts_itself_is_refused() -> None:
    data = page(head(5, 10)) + bytes(20)
    with pytest.raises(ValueError, match="row groups have other numbers"):
        check(data, rows=20)
    with pytest.raises(ValueError, match="row groups have other numbers"):
        check(data, rows=10, groups=2)
    with pytest.raises(ValueError, match="other numbers of values"):
        check(data, values=5)
    with pytest.raises(ValueError, match="columns overlap"):
        check(data, rows=20, groups=2)


def test_pages_without_values_are_read_within_a_bound() -> None:
    with pytest.raises(ValueError, match="page headers have more than 4 MiB"):
        check(page(head(5, 0), size=0) * 300_000)


def test_a_text_that_each_guest_would_have_a_copy_of_is_refused(sketch: Path) -> None:
    rows = pq.read_metadata(sketch).num_rows
    write_again(sketch, {"kind": pa.array(["x" * 4097] * rows)})
    with pytest.raises(BadSketchError, match="kind has a text of 4097 bytes"):
        read_sketch(str(sketch))
    write_again(sketch, {"kind": pa.array(["x" * 4096] * rows)})
    read_sketch(str(sketch))


def test_the_limit_is_above_what_a_row_takes(sketch: Path) -> None:
    write_again(sketch, use_dictionary=False, compression="none")
    assert sketch.stat().st_size / pq.read_metadata(sketch).num_rows < 400
