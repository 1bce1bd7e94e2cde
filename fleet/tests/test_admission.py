"""One more guest goes only where one may go that is not there yet."""

import json
from pathlib import Path

import pytest
from made import guest, put, two_images

from ksmith_fleet.cli.main import main
from ksmith_fleet.simulate.write import MadeHost

OPEN = [{"guest": "uml-1", "why": "its memory is shared"}]


def hosts(directory: Path, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> list[str]:
    capsys.readouterr()
    assert main(["plan", "admit", str(directory), "--like", "a", *more]) == code
    return [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]


def test_a_host_that_takes_no_guest_takes_none_like_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "s")
    (tmp_path / "r.toml").write_text("[hosts.h1]\nexclude = true\n")
    assert hosts(tmp_path / "s", capsys, "--rules", str(tmp_path / "r.toml")) == ["h2"]
    (tmp_path / "r.toml").write_text("[hosts.h1]\nexclude = true\n[hosts.h2]\nexclude = true\n")
    assert hosts(tmp_path / "s", capsys, "--rules", str(tmp_path / "r.toml"), code=1) == ["no host has room for it"]


def test_a_host_with_a_guest_that_may_be_of_another_domain_takes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)], domain="red")], more={"skipped": OPEN}))
    put(tmp_path, MadeHost("h2", [guest("b", [(1, 1000)], domain="red")]), MadeHost("h3", [guest("c", [(1, 1000)], domain="blue")]))
    assert hosts(tmp_path, capsys) == ["h2"]


def test_a_new_guest_may_go_elsewhere_than_one_that_no_platform_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)], kind="container")], 1500 * 4096))
    put(tmp_path, MadeHost("h2", [guest("b", [(1, 900)])]))
    assert hosts(tmp_path, capsys) == ["h2"], "h1 has no room for a second one"


def test_what_is_shared_has_an_interval_which_is_a_point_at_the_full_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    assert main(["plan", "admit", str(tmp_path), "--like", "a", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["hosts"]
    assert (first["host"], second["host"]) == ("h1", "h2")
    # The contents of its image and those that all guests have. Its own are on no other.
    assert first["shared_bytes"] == {end: 1050 * 4096 for end in ("expected", "low", "high")} == second["shared_bytes"]


def test_admission_writes_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "admit", str(tmp_path), "--like", "a", "--out", str(tmp_path / "plan.json")]) == 1
    assert "leave out --out" in capsys.readouterr().err
