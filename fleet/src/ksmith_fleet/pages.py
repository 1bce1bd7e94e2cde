"""Bounds what a Parquet file unpacks to, by the headers of its pages: the footer may claim any size, and memory is taken for what they say.

A page header is a structure of Thrift's compact protocol (`parquet.thrift` of the format).
"""

from dataclasses import dataclass

import pyarrow.parquet as pq

from ksmith_fleet import schema
from ksmith_fleet.faults import BadSketchError

BYTES_OF_ROW = 512
"""The most bytes of one row in all columns. With every text written out, a row of `ksmith sketch` has some 250."""
BYTES_BESIDE = 16 << 20
"""The bytes that may come besides, as for dictionaries."""
ENCODINGS = frozenset({0, 2, 3, 4, 5, 8, 9})
"""Encodings that do not make a value longer than its bytes: all but those of strings by their differences (6 and 7)."""
DEEPEST = 8
"""The depth of structures in a page header. The format has three."""
MOST_HEADER_BYTES = 4 << 20
"""The bytes of all page headers of a file, without the texts in them. Some 20 are usual, for a page of up to 1 MiB."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12
HEADS = {0: (5, 2), 2: (7, 2), 3: (8, 4)}
"""For each type of page the field of its head, and in that the field of the encoding: data, dictionary, data of version 2."""
DICTIONARY = 2
HEAD_FIELDS = frozenset({5, 6, 7, 8})


@dataclass
class _Reader:
    """A position in the file. Whatever the reader of the file would understand otherwise is refused."""

    data: memoryview
    header_bytes: int = MOST_HEADER_BYTES
    """The bytes of headers that may still be read."""
    at: int = 0
    end: int = 0

    def byte(self) -> int:
        if not 0 <= self.at < self.end:
            raise ValueError("a page header is cut off")
        if not self.header_bytes:
            raise ValueError(f"its page headers have more than {MOST_HEADER_BYTES >> 20} MiB")
        self.header_bytes -= 1
        self.at += 1
        return self.data[self.at - 1]

    def varint(self, bits: int) -> int:
        value = 0
        for shift in range(0, bits + 6, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> bits:
                    break
                return value
        raise ValueError(f"a number in a page header has more than {bits} bits")

    def number(self, bits: int) -> int:
        value = self.varint(bits)
        return (value >> 1) ^ -(value & 1)

    def skip(self, length: int) -> None:
        if length > self.end - self.at:
            raise ValueError("a page is longer than its column")
        self.at += length

    def value(self, kind: int, depth: int) -> object:
        """Reads a value: numbers of 32 bits, and structures as tables by field number. Others are skipped."""
        if depth > DEEPEST:
            raise ValueError("a page header is too deep")
        if kind == I32:
            return self.number(32)
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (I16, I64):
            self.number(16 if kind == I16 else 64)
        elif kind == BINARY:
            self.skip(self.varint(31))
        elif kind in (TRUE, FALSE, BYTE, DOUBLE):
            self.skip({BYTE: 1, DOUBLE: 8}.get(kind, 0))
        else:
            raise ValueError(f"a page header has a value of type {kind}")
        return None

    def struct(self, depth: int = 0) -> dict[int, object]:
        found: dict[int, object] = {}
        field = 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.number(16)
            if not 0 < field < 1 << 15 or field in found:
                raise ValueError(f"a page header has field {field} twice or out of bounds")
            found[field] = self.value(head & 15, depth)
        return found


FREE_ROWS = 1 << 20
"""Rows that any file may have. They take some 60 MB."""


def check_pages(data: bytes, found: pq.FileMetaData) -> None:
    """Refuses a file whose pages unpack to more than its rows explain, or that has more rows than bytes and many."""
    if found.num_rows > max(len(data), FREE_ROWS):
        # Fingerprints are random numbers, of which each takes some bytes however the file is packed. Rows of heavy contents may take none.
        raise BadSketchError(f"it has {found.num_rows} rows in {len(data)} bytes")
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    if sum(group.num_rows for group in groups) != found.num_rows or any(group.num_rows < 0 for group in groups):
        raise ValueError("its row groups have other numbers of rows than the file")
    most = found.num_rows * BYTES_OF_ROW + BYTES_BESIDE
    unpacked = packed = 0
    pages = _Reader(memoryview(data))
    for group in groups:
        for index in range(group.num_columns):
            chunk = group.column(index)
            packed += max(chunk.total_compressed_size, 0)
            if packed > len(data):
                raise ValueError("its columns overlap")
            if chunk.path_in_schema in schema.COLUMNS:
                if chunk.num_values != group.num_rows:
                    raise ValueError(f"column {chunk.path_in_schema} has other numbers of values than of rows")
                unpacked += _unpacked_bytes(pages, chunk, most - unpacked)
            if unpacked > most:
                raise BadSketchError(f"its {found.num_rows} rows unpack to more than {most >> 20} MiB")


def _unpacked_bytes(pages: _Reader, chunk: pq.ColumnChunkMetaData, most: int) -> int:
    """Adds up the pages of a column, until they are more than `most`."""
    start = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset
    if chunk.has_dictionary_page and dictionary is not None and 0 < dictionary < start:
        start = dictionary
    end = start + chunk.total_compressed_size
    if not 0 <= start <= end <= len(pages.data):
        raise ValueError(f"column {chunk.path_in_schema} lies outside of the file")
    pages.at, pages.end = start, end
    unpacked = values = 0
    while values < chunk.num_values and unpacked <= most:
        header = pages.struct()
        size, packed = header.get(2), header.get(3)
        if not isinstance(size, int) or not isinstance(packed, int) or size < 0 or packed < 0:
            raise ValueError("a page has no size")
        unpacked += size
        pages.skip(packed)
        kind = header.get(1)
        field, encoding_field = HEADS.get(kind, (0, 0)) if isinstance(kind, int) else (0, 0)
        head = header.get(field)
        # With heads of several types the reader of the file goes by the type.
        if not isinstance(head, dict) or HEAD_FIELDS & header.keys() != {field}:
            raise ValueError(f"a page of type {kind} has another head")
        count, encoding = head.get(1), head.get(encoding_field)
        if not isinstance(count, int) or count < 0 or encoding not in ENCODINGS:
            raise ValueError(f"a page has {count} values in encoding {encoding}")
        values += count if kind != DICTIONARY else 0
    if values > chunk.num_values:
        raise ValueError(f"column {chunk.path_in_schema} has more values in its pages than it says")
    return unpacked
