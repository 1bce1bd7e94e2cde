"""Contents with many copies, which sketches of format 2 count in full."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made import guest, load, put

from ksmith_fleet.consistency import Rules, thin
from ksmith_fleet.dataset import read_fleet
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.files import read_sketch
from ksmith_fleet.simulate.write import MadeGuest, MadeHost

HEAVY = np.array([[1000, 1000], [600, 0], [9, 5]], dtype=np.int32)


def made(name: str, heavy: np.ndarray | None = HEAVY, pages: int = 40_000) -> MadeGuest:
    """Makes a guest at the rate 1/16: 1000 sampled contents of one page, 50 of two, and none that is heavy."""
    plain = guest(name, [(1, 1050)])
    prints = np.unique(plain.fingerprints.view(np.uint64) >> np.uint64(4)).astype(np.int64)
    copies = np.where(np.arange(len(prints)) < 50, 2, 1).astype(np.int32)
    return replace(plain, fingerprints=prints, copies=copies, steady=copies, changing=0.0, pages=pages, heavy=heavy)


def host(name: str, *guests: MadeGuest) -> MadeHost:
    return MadeHost(name, guests, rate_bits=4)


def test_what_a_guest_saves_alone_is_counted_and_only_the_rest_is_sampled(tmp_path: Path) -> None:
    put(tmp_path, host("h1", made("a")), host("h2", made("b", heavy=None)), host("h3", made("c", pages=400_000)))
    fleet, _, single = load(tmp_path)
    assert [guest.heavy for guest in fleet.guests] == [(1000, 0, 5), None, (1000, 0, 5)]
    # Of a frame for each 256 pages, 4 hold the first content and one the last. 50 sampled contents stand for 800.
    assert single.unbiased[0] == 1000 - 4 + 5 - 1 + 50 * 16
    assert single.unbiased[1] == 40_000 - 1050 * 16
    assert single.unbiased[2] == single.unbiased[0], "memory that no content has twice is not in it"
    assert (single.squares[0], single.squares[1]) == (50, 1050)


def test_a_heavy_content_that_is_sampled_does_not_count_twice(tmp_path: Path) -> None:
    one = made("a", heavy=np.array([[500, 500]], dtype=np.int32))
    copies = one.copies.copy()
    copies[-1] = 500
    put(tmp_path, host("h1", replace(one, copies=copies, steady=copies)))
    _, _, single = load(tmp_path)
    assert single.unbiased[0] == 500 - 2 + 50 * 16 and single.squares[0] == 50
    thinned = thin(read_sketch(str(tmp_path / "h1.parquet")), 8)
    assert thinned.guests[0].heavy == (500,), "a lower rate keeps all heavy contents"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: replace(one, heavy=np.array([[8, 8]], dtype=np.int32)), "numbers of copies of heavy contents are out of bounds"),
        (lambda one: replace(one, heavy=np.array([[20, 21]], dtype=np.int32)), "numbers of copies of heavy contents are out of bounds"),
        (lambda one: replace(one, heavy=np.array([[50_000, 50_000]], dtype=np.int32)), "heavy contents that its pages do not explain"),
        (lambda one: replace(one, more={"heavy": 2}), "has 3 rows of heavy contents, and says 2"),
        (lambda one: replace(one, more={"heavy": None}), "has 3 rows of heavy contents, and says None"),
        (lambda one: replace(one, more={"heavy": 1 << 20}), "it should be less than or equal to 16384"),
        (
            lambda one: replace(one, heavy=HEAVY[:0], copies=np.where(one.copies == 2, 9, 1).astype(np.int32)),
            "heavy contents that its pages do not explain",
        ),
    ],
)
def test_counts_that_cannot_be_are_refused(tmp_path: Path, change: Callable[[MadeGuest], MadeGuest], why: str) -> None:
    put(tmp_path, host("h1", change(made("a"))))
    with pytest.raises(BadSketchError, match=why):
        read_sketch(str(tmp_path / "h1.parquet"))


def test_files_of_format_1_are_read_and_have_no_heavy_contents(tmp_path: Path) -> None:
    put(tmp_path, host("h1", made("a")), host("h2", made("b", heavy=None)))
    for name in ("h1", "h2"):
        path = tmp_path / f"{name}.parquet"
        table = pq.read_table(path)
        pq.write_table(table.replace_schema_metadata(dict(table.schema.metadata) | {b"ksmith.format": b"1"}), path)
    fleet, _ = read_fleet(str(tmp_path), Rules())
    assert [one.name for one in fleet.hosts] == ["h2"] and "exactly one row" in str(fleet.left_out[0])
