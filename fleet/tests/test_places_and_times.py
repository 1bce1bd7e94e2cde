"""Which file speaks for a host, what time a file has, and how old its guests may be."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made import guest, put, two_images

from ksmith_fleet.cli.main import main
from ksmith_fleet.dataset import read_fleet
from ksmith_fleet.files import read_sketch
from ksmith_fleet.simulate.write import MadeHost, write_sketch


def set_time(path: Path, unit: str = "ms", zone: str | None = "UTC", later_ms: int = 0) -> None:
    """Writes the column of times as another type, or as other times."""
    table = pq.read_table(path)
    at = table.schema.get_field_index("time")
    times = [value + later_ms for value in table.column("time").cast(pa.int64()).to_pylist()]
    column = pa.array(times, pa.int64()).cast(pa.timestamp("ms")).cast(pa.timestamp(unit), safe=False).cast(pa.int64()).cast(pa.timestamp(unit, zone))
    pq.write_table(table.set_column(at, "time", column).replace_schema_metadata(table.schema.metadata), path)


@pytest.fixture
def far_west() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "America/Los_Angeles")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "+14:00", "Evil/Zone", "../../etc/passwd"])
def test_the_zone_of_a_file_and_that_of_the_planner_change_no_time(tmp_path: Path, far_west: None, zone: str) -> None:
    two_images(tmp_path)
    before = [one.time_ms for one in read_sketch(str(tmp_path / "h2.parquet")).guests]
    set_time(tmp_path / "h2.parquet", zone=zone)
    found = read_sketch(str(tmp_path / "h2.parquet"))
    assert [one.time_ms for one in found.guests] == before == [found.host.time_ms] * 3


@pytest.mark.parametrize(("unit", "zone"), [("ms", None), ("us", "UTC"), ("ns", None)])
def test_a_time_without_zone_or_in_another_unit_is_left_out(tmp_path: Path, unit: str, zone: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    set_time(tmp_path / "h2.parquet", unit, zone)
    assert main(["plan", "new", str(tmp_path)]) == 0
    assert "h2.parquet: column time has type timestamp[" in capsys.readouterr().err


def test_guests_that_were_read_long_before_their_file_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "s")
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "new", str(tmp_path / "s"), "--out", plan]) == 0
    set_time(tmp_path / "s" / "h2.parquet", later_ms=-90_000_000)
    capsys.readouterr()
    for command in (["plan", "new"], ["overlap"], ["report", "--html", str(tmp_path / "page")]):
        assert main([*command, str(tmp_path / "s")]) == 0
        said = capsys.readouterr().err
        for name in "def":
            assert f"h2: {name}: its pages were read 25.0 hours before the sketch: raise max_cpu_percent there" in said
    assert main(["plan", "new", str(tmp_path / "s"), "--max-age", "100000"]) == 0
    assert capsys.readouterr().err == ""
    # What KSM saves is as new as the file, so `check` takes all guests.
    main(["check", plan, str(tmp_path / "s")])
    assert "its pages were read" not in capsys.readouterr().err


def test_old_guests_still_count_on_their_host(tmp_path: Path) -> None:
    from ksmith_fleet.consistency import Rules

    two_images(tmp_path)
    set_time(tmp_path / "h2.parquet", later_ms=-90_000_000)
    fleet, sketches = read_fleet(str(tmp_path), Rules(max_guest_age_s=86_400))
    assert [one.name for one in fleet.guests] == ["a", "b", "c"] and fleet.host("h2").skipped == ("d", "e", "f")
    assert len(sketches[1].fingerprints) == 0


def hosts_read(directory: Path) -> dict[str, set[str]]:
    fleet, _ = read_fleet(str(directory))
    return {host.name: {one.name for one in fleet.guests if one.host == host.name} for host in fleet.hosts}


def named(name: str, guest_name: str, later_ms: int = 0) -> MadeHost:
    made = MadeHost(name, [guest(guest_name, [(1, 100)])])
    return replace(made, time_ms=made.time_ms + later_ms)


def test_a_file_below_cannot_speak_for_a_host_above(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, named("h1", "true"), named("h2", "other"))
    write_sketch(named("h1", "trap", 30_000), tmp_path / "h2" / "h1.parquet")
    assert hosts_read(tmp_path) == {"h1": {"true"}, "h2": {"other"}}
    assert main(["overlap", str(tmp_path)]) == 0
    assert "h2/h1.parquet: h1 has a file of its own name in a directory above or of its name" in capsys.readouterr().err


def test_a_directory_for_each_host_speaks_for_that_host(tmp_path: Path) -> None:
    write_sketch(named("h1", "true"), tmp_path / "h1" / "h1.parquet")
    write_sketch(named("h2", "other"), tmp_path / "h2" / "h2.parquet")
    write_sketch(named("h1", "trap", 30_000), tmp_path / "h2" / "deep" / "h1.parquet")
    assert hosts_read(tmp_path) == {"h1": {"true"}, "h2": {"other"}}


def test_of_directories_with_dates_the_newest_counts(tmp_path: Path) -> None:
    for day, later in (("monday", 0), ("tuesday", 60_000)):
        write_sketch(named("h1", day, later), tmp_path / day / "h1.parquet")
    assert hosts_read(tmp_path) == {"h1": {"tuesday"}}


def test_a_name_in_other_letters_is_no_second_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, named("h1", "true"))
    write_sketch(named("H1", "trap", 30_000), tmp_path / "h9.parquet")
    assert hosts_read(tmp_path) == {"h1": {"true"}}
    # Where no file proves its host, both are of one time or the newer one counts.
    (tmp_path / "h1.parquet").rename(tmp_path / "h8.parquet")
    assert hosts_read(tmp_path) == {"H1": {"trap"}}
