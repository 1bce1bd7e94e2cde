"""The same SQL on both engines."""

from pathlib import Path

import numpy as np
import pytest
from made import guest, load, two_images

from ksmith_fleet.dataset import EngineChoice, engine_over, read_fleet
from ksmith_fleet.engines import QUESTIONS, Settings
from ksmith_fleet.overlap import overlap
from ksmith_fleet.simulate.write import MadeHost, write_sketch

DEBIAN = Path(__file__).parent.parent / "testdata" / "debian"


def rows(engine_name: str, where: Path, settings: Settings) -> dict[str, list[tuple[float, ...]]]:
    _, sketches = read_fleet(str(where))
    with engine_over(sketches, EngineChoice(engine_name, "local[2]"), settings) as engine:
        answers = {question: engine.ask(question) for question in QUESTIONS}
    # Sums of integers are DECIMAL or HUGEINT, so they are compared as numbers.
    return {q: sorted(tuple(int(value) for value in row.values()) for row in table.to_pylist()) for q, table in answers.items()}


def test_the_questions_say_what_the_sets_say(tmp_path: Path) -> None:
    two_images(tmp_path)
    found = rows("duckdb", tmp_path, Settings(popular_above=3, min_common=8))
    assert len(found["contents"]) == 2050
    assert len(found["popular"]) == 50
    assert sorted(common for _, _, common in found["pairs"]) == [1000] * 6
    assert found["totals"] == [(6 * 1150, 2050 + 600, 2050, 2 * 2000 + 5 * 50, 2 * (2 * 1000 - 1000) + 4 * 50, 6)]
    assert [row[0] for row in found["alone"]] == list(range(6)) and {row[1] for row in found["alone"]} == {1150}


@pytest.mark.spark
def test_spark_gives_the_same_rows_as_duckdb() -> None:
    settings = Settings(popular_above=5, min_common=4)
    assert rows("spark", DEBIAN, settings) == rows("duckdb", DEBIAN, settings)


def test_popular_contents_count_for_listed_pairs(tmp_path: Path) -> None:
    two_images(tmp_path)
    fleet, sketches = read_fleet(str(tmp_path))
    found = []
    for popular_above in (3, 200):
        settings = Settings(popular_above=popular_above)
        with engine_over(sketches, EngineChoice(), settings) as engine:
            found.append(overlap(fleet, engine, settings))
    names = "abcdef"
    image = {(p.a, p.b): p.pages.expected for p in found[1].pairs if p.pages.expected > 500}
    assert {(p.a, p.b): p.pages.expected for p in found[0].pairs} == image
    assert {f"{names[a]}{names[b]}" for a, b in image} == {"ac", "ae", "ce", "bd", "bf", "df"}
    assert found[0].popular == 50 and found[1].popular == 0
    assert sorted(sorted(names[g] for g in group) for group in found[0].images) == [list("ace"), list("bdf")]


def test_work_grows_with_rows_although_one_content_is_everywhere(tmp_path: Path) -> None:
    # 300 guests with 40 contents in common have 44,850 pairs; none is joined, since these contents are set aside.
    for host in range(30):
        guests = [guest(f"{host}-{n}", [(1, 40), (100 + host * 10 + n, 20)]) for n in range(10)]
        write_sketch(MadeHost(f"h{host}", guests), tmp_path / f"{host}.parquet")
    found = rows("duckdb", tmp_path, Settings(popular_above=200))
    assert found["pairs"] == [] and len(found["popular"]) == 40


def test_estimates_from_samples_hold_the_truth(tmp_path: Path) -> None:
    """Intervals of 95 % hold the true overlap of two guests in at least 90 of 100 samples."""
    from ksmith_fleet.estimate import common_pages

    random = np.random.default_rng(11)
    for truth, rate in ((20_000, 1 / 64), (500, 1 / 16), (100_000, 1 / 256)):
        found = [common_pages(int(random.binomial(truth, rate)), rate) for _ in range(200)]
        assert sum(one.low <= truth <= one.high for one in found) >= 180
        assert abs(np.mean([one.expected for one in found]) / truth - 1) < 0.05


def test_the_real_sketches_can_be_read() -> None:
    fleet, incidence, single = load(DEBIAN)
    assert len(fleet.guests) == 30 and fleet.left_out == []
    assert incidence.number > 1000 and (single.saved > 0).all()
