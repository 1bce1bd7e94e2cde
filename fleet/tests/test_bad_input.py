"""Bad input is refused or left out by name, and never becomes a plan."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made import contents, guest, put

from ksmith_fleet.cli.main import main
from ksmith_fleet.consistency import Rules
from ksmith_fleet.dataset import read_fleet
from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.files import list_sketches, read_sketch
from ksmith_fleet.simulate.write import MadeGuest, MadeHost, write_sketch


def host(name: str, directory: Path, **more: object) -> MadeHost:
    made = MadeHost(name, [guest(f"{name}-a", [(1, 500), (len(name) + ord(name[-1]), 100)])], **more)  # type: ignore[arg-type]
    write_sketch(made, directory / f"{name}.parquet")
    return made


def left_out(directory: Path, rules: Rules | None = None) -> dict[str, str]:
    fleet, _ = read_fleet(str(directory), rules)
    return {left.what.rsplit("/", 1)[-1]: left.why for left in fleet.left_out}


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for name in ("h1", "h2", "h3"):
        host(name, tmp_path)
    return tmp_path


def test_a_whole_fleet_leaves_out_nothing(fleet: Path) -> None:
    assert left_out(fleet) == {}


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_left_out_by_name(fleet: Path, part: float) -> None:
    whole = (fleet / "h2.parquet").read_bytes()
    (fleet / "h2.parquet").write_bytes(whole[: int(len(whole) * part)])
    assert "damaged" in left_out(fleet)["h2.parquet"]


def test_changed_bytes_never_change_fingerprints_unnoticed(fleet: Path) -> None:
    whole = bytearray((fleet / "h2.parquet").read_bytes())
    random = np.random.default_rng(3)
    first = read_sketch(str(fleet / "h2.parquet"))
    noticed = 0
    for at in random.integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        (fleet / "h2.parquet").write_bytes(damaged)
        try:
            found = read_sketch(str(fleet / "h2.parquet"))
            assert np.array_equal(found.fingerprints, first.fingerprints) and np.array_equal(found.copies, first.copies)
        except BadSketchError:
            noticed += 1
    assert noticed > 10


def test_foreign_files_are_left_out_by_name(fleet: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), fleet / "other.parquet")
    (fleet / "text.parquet").write_text("no Parquet at all")
    found = left_out(fleet)
    assert "no sketch of ksmith" in found["other.parquet"]
    assert "damaged" in found["text.parquet"]


def test_another_format_is_left_out(fleet: Path) -> None:
    table = pq.read_table(fleet / "h3.parquet")
    meta = dict(table.schema.metadata) | {b"ksmith.format": b"3"}
    pq.write_table(table.replace_schema_metadata(meta), fleet / "h3.parquet")
    assert "format '3'" in left_out(fleet)["h3.parquet"]


@pytest.mark.parametrize("column", ["fingerprint", "pages", "guest_id", "steady"])
def test_a_missing_column_or_a_wrong_type_is_left_out(fleet: Path, column: str) -> None:
    table = pq.read_table(fleet / "h3.parquet")
    pq.write_table(table.drop_columns([column]), fleet / "h3.parquet")
    assert column in left_out(fleet)["h3.parquet"]
    at = table.schema.get_field_index(column)
    wrong = pa.array([1.5] * table.num_rows)
    pq.write_table(table.set_column(at, column, wrong), fleet / "h3.parquet")
    assert column in left_out(fleet)["h3.parquet"]


def test_another_key_is_left_out_and_without_a_majority_all_is_refused(fleet: Path) -> None:
    host("h3", fleet, key_id="1" * 32)
    assert "another key" in left_out(fleet)["h3"]
    (fleet / "h1.parquet").unlink()
    with pytest.raises(BadSketchError, match=r"disagree on the key.*(h2; h3|h3; h2)"):
        read_fleet(str(fleet))


def test_mixed_rates_are_left_out_or_thinned_to_the_coarsest(tmp_path: Path) -> None:
    held = contents(5, 4000).view(np.uint64)
    for name, bits in (("h1", 2), ("h2", 2), ("h3", 0)):
        sampled = held[held < np.uint64(2 ** (64 - bits) - 1)].view(np.int64)
        made = MadeGuest(f"id-{name}", name, sampled, np.ones(len(sampled), dtype=np.int32), pages=4000)
        put(tmp_path, MadeHost(name, [made], rate_bits=bits))
    assert "another rate" in left_out(tmp_path)["h3"]
    fleet, sketches = read_fleet(str(tmp_path), Rules(common_rate=True))
    assert fleet.left_out == [] and fleet.rate == 0.25
    assert {tuple(np.sort(sketch.fingerprints)) for sketch in sketches} == {tuple(np.sort(sketches[0].fingerprints))}


def test_clocks_that_are_apart_are_left_out(fleet: Path) -> None:
    host("h1", fleet, time_ms=1_790_000_000_000)
    host("h2", fleet, time_ms=1_790_000_000_000 - 7_200_000)
    host("h3", fleet, time_ms=1_790_000_000_000 + 10_000)
    host("h4", fleet, time_ms=1_790_000_000_000 + 7_200_000)
    found = left_out(fleet)
    assert "2.0 hours before" in found["h2"] and "after" in found["h4"] and set(found) == {"h2", "h4"}
    now = Rules(now_ms=1_790_000_000_000 - 600_000)
    with pytest.raises(BadSketchError, match="future"):
        read_fleet(str(fleet), now)


def test_two_sketches_of_one_host_leave_the_newer_or_none(fleet: Path) -> None:
    made = host("h3", fleet)
    (fleet / "h3.parquet").rename(fleet / "new.parquet")
    write_sketch(replace(made, time_ms=made.time_ms - 1000), fleet / "old.parquet")
    assert left_out(fleet) == {"old.parquet": "h3 has a newer sketch"}
    write_sketch(made, fleet / "old.parquet")
    assert set(left_out(fleet)) == {"old.parquet", "new.parquet"}


def lie(directory: Path, more: dict[str, object] | None = None, rate_bits: int = 0, **guest_more: object) -> str:
    """Writes a host that lies, and gives the reason for which it is left out."""
    made = replace(guest("liar", [(1, 500)]), **guest_more)  # type: ignore[arg-type]
    put(directory, MadeHost("h9", [made], rate_bits=rate_bits, more=more or {}))
    return left_out(directory)["h9.parquet"]


def test_hosts_that_lie_are_left_out_by_name(fleet: Path) -> None:
    many = np.full(500, 7, dtype=np.int32)
    assert "pages" in lie(fleet, pages=499)
    assert "zero pages of" in lie(fleet, zero_pages=501)
    assert "changing" in lie(fleet, changing=1.5)
    assert "sampled pages of only" in lie(fleet, copies=many)
    assert "out of bounds" in lie(fleet, copies=np.zeros(500, dtype=np.int32))
    assert "above the threshold" in lie(fleet, rate_bits=4)
    assert "four times the memory" in lie(fleet, more={"memory_bytes": 4096 * 100, "available_bytes": 0})
    assert "available" in lie(fleet, more={"available_bytes": 1 << 50})
    assert "memory" in lie(fleet, more={"memory_bytes": -5})
    twice = np.repeat(contents(1, 250), 2)
    assert "same fingerprint twice" in lie(fleet, fingerprints=twice)


def test_more_sampled_contents_than_pages_explain_are_a_lie(fleet: Path) -> None:
    small = np.arange(1, 5001, dtype=np.int64)
    liar = MadeGuest("id-liar", "liar", small, np.ones(5000, dtype=np.int32), pages=20_000)
    for name in ("h1", "h2", "h3"):
        put(fleet, MadeHost(name, [replace(liar, id=f"id-{name}", pages=80_000)], rate_bits=4))
    put(fleet, MadeHost("h9", [liar], rate_bits=4))
    assert "5000 sampled contents" in left_out(fleet)["h9.parquet"]
    assert "h1.parquet" not in left_out(fleet)


def test_a_guest_that_two_hosts_claim_is_left_out_on_both(fleet: Path) -> None:
    one = guest("wanderer", [(1, 500)])
    put(fleet, MadeHost("h4", [one, guest("d", [(2, 50)])]))
    put(fleet, MadeHost("h5", [one, guest("e", [(3, 50)])]))
    found, sketches = read_fleet(str(fleet))
    assert {left.what for left in found.left_out} == {"h4: wanderer", "h5: wanderer"}
    assert "wanderer" not in {g.name for g in found.guests}
    by_host = {sketch.host.name: sketch for sketch in sketches}
    assert len(by_host["h4"].fingerprints) == 50 and by_host["h4"].guests[0].name == "d"


def test_metadata_of_another_form_is_left_out(fleet: Path) -> None:
    for text in ("[]", "{", json.dumps({"host": "h3"}), "[" * 200_000):
        table = pq.read_table(fleet / "h1.parquet")
        pq.write_table(table.replace_schema_metadata(dict(table.schema.metadata) | {b"ksmith.host": text.encode()}), fleet / "h3.parquet")
        assert re.search("metadata|memory", left_out(fleet)["h3.parquet"])


def test_a_host_that_vanishes_in_the_middle_is_named(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = list_sketches(str(fleet))
    (fleet / "h2.parquet").unlink()
    monkeypatch.setattr("ksmith_fleet.dataset.list_sketches", lambda where: listed)
    assert "vanished" in left_out(fleet)["h2.parquet"]


def test_commands_say_what_they_left_out_and_refuse_what_they_cannot_use(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fleet / "h2.parquet").write_bytes(b"PAR1")
    assert main(["plan", "new", str(fleet)]) == 0
    assert "h2.parquet: it is damaged" in capsys.readouterr().err
    assert main(["plan", "new", str(fleet / "nowhere")]) == 1
    assert "does not exist" in capsys.readouterr().err
    (fleet / "empty").mkdir()
    assert main(["overlap", str(fleet / "empty")]) == 1
    assert "holds no sketch" in capsys.readouterr().err


def test_a_plan_at_a_common_rate_is_checked_and_begun_with_sketches_of_other_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = guest("a", [(1, 1000)])
    keep = whole.fingerprints.view(np.uint64) < np.uint64(1 << 63)
    half = replace(whole, id="id-b", name="b", fingerprints=whole.fingerprints[keep], copies=whole.copies[keep])
    put(tmp_path, MadeHost("h1", [whole]), MadeHost("h2", [half], rate_bits=1))
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "new", str(tmp_path), "--common-rate", "--out", plan]) == 0
    (step,) = json.loads(Path(plan).read_text())["steps"]
    assert {step["source"], step["target"]} == {"h1", "h2"}
    capsys.readouterr()
    assert main(["check", plan, str(tmp_path)]) == 3
    said = capsys.readouterr()
    assert "h1: promised" in said.out and "h2: promised" in said.out and "rate" not in said.err


def test_sketches_of_another_fleet_begin_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, key_id in (("ours", "0" * 32), ("theirs", "1" * 32)):
        put(tmp_path / name, *(MadeHost(h, [guest(f"{h}-a", [(1, 500)])], key_id=key_id) for h in ("h1", "h2")))
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "new", str(tmp_path / "ours"), "--out", plan]) == 0
    theirs, page = str(tmp_path / "theirs"), tmp_path / "page"
    for command in (["apply", plan, "--run", "--sketches", theirs], ["check", plan, theirs], ["report", theirs, "--plan", plan, "--html", str(page)]):
        capsys.readouterr()
        assert main(command) == 1
        assert "the sketches have another key than the plan" in capsys.readouterr().err
    assert not Path(plan + ".journal").exists() and not page.exists()


def test_sketches_from_before_a_plan_do_not_begin_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = MadeHost("h1", []).time_ms
    for name, time_ms in (("old", now - 60_000), ("new", now)):
        put(tmp_path / name, *(MadeHost(h, [guest(f"{h}-a", [(1, 500)])], time_ms=time_ms) for h in ("h1", "h2")))
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "new", str(tmp_path / "new"), "--out", plan]) == 0
    assert main(["apply", plan, "--run", "--sketches", str(tmp_path / "old")]) == 1
    assert "the sketch of h1 is older than the plan's" in capsys.readouterr().err and not Path(plan + ".journal").exists()
