"""The questions over made-up and real sketches."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from made import guest, load, put, two_images

from ksmith_fleet.consistency import Rules
from ksmith_fleet.dataset import engine_over, opened_engine, read_fleet, stored_samples
from ksmith_fleet.engine import QUESTIONS, Settings
from ksmith_fleet.incidence import from_answer, mask_for
from ksmith_fleet.overlap import overlap
from ksmith_fleet.simulate.write import MadeHost, write_sketch

DEBIAN = Path(__file__).parent.parent / "testdata" / "debian"


def rows(where: Path, settings: Settings) -> dict[str, list[tuple[float, ...]]]:
    _, sketches = read_fleet(str(where))
    with engine_over(sketches, settings) as engine:
        answers = {question: engine.ask(question) for question in QUESTIONS if question != "popular_pairs"}
    return {q: sorted(tuple(int(value) for value in row.values()) for row in table.to_pylist()) for q, table in answers.items()}


def test_the_questions_say_what_the_sets_say(tmp_path: Path) -> None:
    two_images(tmp_path)
    found = rows(tmp_path, Settings(popular_above=3, min_common=8, ranking_mask=0))
    assert found["popular"] == [(50,)]
    assert sorted(common for _, _, common, _ in found["pairs"]) == [1000] * 6
    assert found["totals"] == [(2050 + 600, 6 * 1150, 6 * 1150 - (2 * 2050 + 600), 4 * 2050 + 600, 2050, 2050)]
    assert [row[0] for row in found["alone"]] == list(range(6)) and {row[1] for row in found["alone"]} == {1150}


def test_popular_contents_count_for_listed_pairs(tmp_path: Path) -> None:
    two_images(tmp_path)
    fleet, sketches = read_fleet(str(tmp_path))
    found = []
    for popular_above in (3, 200):
        settings = Settings(popular_above=popular_above, ranking_mask=0)
        with engine_over(sketches, settings) as engine:
            found.append(overlap(fleet, engine, settings))
    names = "abcdef"
    image = {(p.a, p.b): p.pages.expected for p in found[1].pairs if p.pages.expected > 500}
    assert {(p.a, p.b): p.pages.expected for p in found[0].pairs} == image
    assert {f"{names[a]}{names[b]}" for a, b in image} == {"ac", "ae", "ce", "bd", "bf", "df"}
    assert found[0].popular == 50 and found[1].popular == 0
    assert sorted(sorted(names[g] for g in image.guests) for image in found[0].images) == [list("ace"), list("bdf")]


def test_work_grows_with_rows_although_one_content_is_everywhere(tmp_path: Path) -> None:
    # 300 guests with 40 contents in common have 44,850 pairs; none is joined, since these contents are set aside.
    for host in range(30):
        guests = [guest(f"{host}-{n}", [(1, 40), (100 + host * 10 + n, 20)]) for n in range(10)]
        write_sketch(MadeHost(f"h{host}", guests), tmp_path / f"{host}.parquet")
    found = rows(tmp_path, Settings(popular_above=200))
    assert found["pairs"] == [] and found["popular"] == [(40,)]


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


def test_a_part_of_the_contents_stands_for_all(tmp_path: Path) -> None:
    for host in range(4):
        write_sketch(MadeHost(f"h{host}", [guest(f"{host}", [(1, 8000), (10 + host, 1000)])]), tmp_path / f"h{host}.parquet")
    fleet, sketches = read_fleet(str(tmp_path))
    found = []
    for mask in (0, mask_for(36_000, 10_000)):
        with engine_over(sketches, Settings(incidence_mask=mask)) as engine:
            found.append(from_answer(engine.ask("incidence"), len(fleet.guests), 1.0, mask))
    whole, part = found
    assert (part.weight, whole.weight) == (4.0, 1.0) and whole.number == 8000
    # Binomial: four standard deviations of the 2000 contents that are expected.
    assert abs(part.number - 2000) < 4 * np.sqrt(8000 * 0.25 * 0.75)


def test_a_guest_that_is_left_out_has_no_rows(tmp_path: Path) -> None:
    with stored_samples(None) as store:
        for name in "ab":
            write_sketch(MadeHost(f"h{name}", [guest("both", [(1, 100)]), guest(name, [(2, 50)])]), tmp_path / f"h{name}.parquet")
        fleet, sketches = read_fleet(str(tmp_path), keep=store.put)
        assert [guest.name for guest in fleet.guests] == ["a", "b"] and not any(len(sketch.fingerprints) for sketch in sketches)
        with opened_engine(store, sketches, Settings(ranking_mask=0)) as engine:
            assert sorted(map(tuple, (row.values() for row in engine.ask("pairs").to_pylist()))) == [(0, 1, 50, 50)]
            assert engine.ask("totals").column("pages")[0].as_py() == 100


def test_samples_of_a_higher_rate_are_those_of_the_lower_one_below_its_threshold(tmp_path: Path) -> None:
    whole = guest("a", [(1, 4000)])
    kept = whole.fingerprints[whole.fingerprints.view(np.uint64) < np.uint64(1 << 62)]
    half = replace(guest("b", [(1, 4000)]), fingerprints=kept, copies=np.ones(len(kept), dtype=np.int32))
    put(tmp_path, MadeHost("h1", [whole]), MadeHost("h2", [half], rate_bits=2))
    with stored_samples(None) as store:
        fleet, sketches = read_fleet(str(tmp_path), Rules(common_rate=True), store.put)
        with opened_engine(store, sketches, Settings(ranking_mask=0)) as engine:
            assert fleet.rate == 0.25 and engine.ask("pairs").column("common").to_pylist() == [len(kept)]
