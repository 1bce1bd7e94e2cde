"""A host that writes nonsense is left out by name, and no other host is."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made import guest, put, two_images

from ksmith_fleet import files
from ksmith_fleet.cli.main import main
from ksmith_fleet.dataset import read_fleet
from ksmith_fleet.simulate.write import MadeHost, write_sketch
from ksmith_fleet.text import clean, is_host_name, shown

TWO_NODES = [{"memory_bytes": 1 << 30}, {"memory_bytes": 1 << 30}]


def planned(directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Plans with whatever can be used, and gives what was left out."""
    capsys.readouterr()
    assert main(["plan", "new", str(directory)]) == 0
    said = capsys.readouterr()
    assert "h1: " in said.out and "h2: " in said.out
    return said.err


@pytest.mark.parametrize(
    "more",
    [
        {"time_ms": "noon"},
        {"time_ms": float("inf")},
        {"time_ms": 10**400},
        {"time_ms": None},
        {"reserved_bytes": -(1 << 40)},
        {"memory_bytes": True},
        {"memory_bytes": 1e12},
        {"available_bytes": float("nan")},
        {"numa": [{"memory_bytes": "much"}]},
        {"shmem_bytes": -1},
        {"numa": 3},
        {"ksm": {"max_page_sharing": "x"}},
        {"ksm": {"merge_across_nodes": 7}},
        {"ksm": [1]},
        {"skipped": "all"},
        {"skipped": [1]},
        {"host": None},
        {"host": "../h1"},
        {"host": "x/system?command=/tmp/evil"},
        {"host": "-oProxyCommand=x"},
        {"host": "h9;reboot"},
    ],
)
def test_a_host_that_says_nonsense_of_itself_is_left_out(tmp_path: Path, more: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    put(tmp_path, MadeHost("h9", [guest("liar", [(1, 500)])], more=more))
    assert "h9.parquet" in planned(tmp_path, capsys)


@pytest.mark.parametrize(
    "more",
    [
        {"rss_bytes": "x"},
        {"rss_bytes": float("nan")},
        {"rss_bytes": 1 << 50},
        {"rss_bytes": -1},
        {"saved_bytes": -5},
        {"swap_bytes": "x"},
        {"swap_bytes": 1 << 50},
        {"saved_bytes": 10**30},
        {"memory_bytes": []},
        {"verified": "yes"},
        {"guest_id": 5},
        {"guest_id": "another"},
    ],
)
def test_a_host_that_says_nonsense_of_a_guest_is_left_out(tmp_path: Path, more: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    put(tmp_path, MadeHost("h9", [guest("liar", [(1, 500)], more=more)]))
    assert "h9.parquet" in planned(tmp_path, capsys)


def test_nodes_without_memory_are_no_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    for nodes in ([{"memory_bytes": 0}, {"memory_bytes": 0}], [{"memory_bytes": None}, {"memory_bytes": 5}]):
        put(tmp_path, MadeHost("h9", [guest("g", [(1, 500)])], more={"numa": nodes, "ksm": {"merge_across_nodes": 0}}))
        assert planned(tmp_path, capsys) == ""


def test_names_are_no_commands_and_no_two_become_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\ntouch /tmp/pwned\n", "a\\ntouch /tmp/pwned\\n", "b\x1b[2J", "c\u202eevil", "--help", "$(reboot)", "';DROP TABLE samples;--", " d  e "
    put(tmp_path / "s", MadeHost("h1", [guest(name, [(1, 1000)]) for name in evil]), MadeHost("h2", [guest("x", [(1, 1000)])], 1 << 40))
    put(tmp_path / "s", MadeHost("h2", [guest(f"x{n}", [(1, 1000)]) for n in range(20)], 1 << 40))
    fleet, _ = read_fleet(str(tmp_path / "s"))
    assert len({one.name for one in fleet.guests}) == len(evil) + 20
    plan = tmp_path / "plan.json"
    rules = tmp_path / "rules.toml"
    rules.write_text("[hosts.h1]\nexclude = true\n" + "".join(f'[guests.x{n}]\nhost = "h2"\n' for n in range(20)))
    assert main(["plan", "new", str(tmp_path / "s"), "--least-gain", "0", "--out", str(plan), "--rules", str(rules)]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\u202e" not in said and "\\x1b[2J" in said
    assert main(["apply", str(plan)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(evil), "each move is one comment and one command"
    for comment, command in zip(lines[::2], lines[1::2], strict=True):
        assert comment.startswith("# ") and command.startswith("virsh -c qemu+ssh://h1/system migrate ")


def test_the_escape_of_a_name_is_one_to_one() -> None:
    assert clean("web-1 ü") == "web-1 ü" and clean("a\n") == "a\\n" and clean("a\\n") == "a\\\\n"
    assert shown("one\ntwo\x1b[0m") == "one\ntwo\\x1b[0m"
    assert is_host_name("node-1.example.org") and not any(map(is_host_name, ("", "a\n", "a b", "ä", "-x", "h" * 254)))


def test_a_host_that_writes_under_its_own_name_cannot_speak_for_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    later = MadeHost("h1", [guest("trap", [(1, 1000)])], time_ms=MadeHost("x", []).time_ms + 30_000)
    write_sketch(later, tmp_path / "h9.parquet")
    assert "h9.parquet: h1 has a file of its own name" in planned(tmp_path, capsys)


def test_a_guest_that_two_hosts_claim_in_other_letters_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, MadeHost("h1", [guest("A", [(1, 100)])]), MadeHost("h2", [guest("a", [(1, 100)])]), MadeHost("h3", [guest("b", [(1, 100)])]))
    fleet, _ = read_fleet(str(tmp_path))
    assert [one.name for one in fleet.guests] == ["b"] and len(fleet.left_out) == 2
    assert [host.skipped for host in fleet.hosts] == [("A",), ("a",), ()]


def test_files_without_end_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    two_images(tmp_path)
    table = pq.read_table(tmp_path / "h1.parquet")
    # A million equal rows take a few kilobytes.
    bomb = table.take(pa.array([0] * 1_000_000)).replace_schema_metadata(table.schema.metadata)
    pq.write_table(bomb, tmp_path / "h9.parquet")
    assert (tmp_path / "h9.parquet").stat().st_size < 1 << 20
    monkeypatch.setattr(files, "MOST_ROWS", 100_000)
    assert "h9.parquet: it has 1000000 rows" in planned(tmp_path, capsys)
    monkeypatch.setattr(files, "MOST_BYTES", 10 << 20)
    long = table.slice(0, 1).set_column(table.schema.get_field_index("guest_name"), "guest_name", pa.array(["x" * (50 << 20)]))
    pq.write_table(long.replace_schema_metadata(table.schema.metadata), tmp_path / "h9.parquet")
    assert (tmp_path / "h9.parquet").stat().st_size < 10 << 20
    assert "MiB when unpacked" in planned(tmp_path, capsys)
    with (tmp_path / "h8.parquet").open("wb") as file:
        file.truncate(11 << 20)
    assert "h8.parquet: it has more than 10 MiB" in planned(tmp_path, capsys)


def test_a_file_that_is_replaced_while_it_is_read_is_one_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_images(tmp_path)
    opened = files.whole_file

    def replacing(path: str) -> bytes:
        data = opened(path)
        (tmp_path / "h1.parquet").write_bytes(b"PAR1 and other bytes")
        return data

    monkeypatch.setattr(files, "whole_file", replacing)
    assert len(files.read_sketch(str(tmp_path / "h1.parquet")).guests) == 3


def test_a_pipe_and_a_link_to_one_among_the_sketches_are_left_out_and_nothing_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    os.mkfifo(tmp_path / "h3.parquet")
    (tmp_path / "h4.parquet").symlink_to(tmp_path / "h3.parquet")
    (tmp_path / "h5.parquet").symlink_to("/dev/zero")
    said = planned(tmp_path, capsys)
    for name in ("h3", "h4", "h5"):
        assert f"{name}.parquet: it cannot be read (ValueError: it is not a regular file)" in said
