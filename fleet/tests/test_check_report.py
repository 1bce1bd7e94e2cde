"""`check` finds broken promises, and `report` shows names without trusting them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made import guest, put, two_images

from ksmith_fleet.cli.main import main
from ksmith_fleet.plan_file import read_plan
from ksmith_fleet.simulate.write import MadeHost, write_sketch


def after(plan_path: Path, directory: Path, part: float) -> None:
    """Writes the sketches of hosts that carried out the plan and save this part of what was promised."""
    plan = read_plan(str(plan_path))
    image = {name: 1 if name in "ace" else 2 for name in "abcdef"}
    for promise in plan.hosts:
        names = [i.removeprefix("id-") for i, host in plan.placement.items() if host == promise.host]
        each = int(part * promise.saved_after.expected / max(1, len(names)))
        guests = [replace(guest(n, [(image[n], 1000), (99, 50), (100 + ord(n), 100)]), more={"saved_bytes": each}) for n in names]
        put(directory, MadeHost(promise.host, guests))


@pytest.mark.parametrize(("part", "code"), [(1.0, 0), (0.93, 0), (0.85, 1), (1.3, 0)])
def test_check_says_whether_promises_were_kept(tmp_path: Path, part: float, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "before")
    rules = tmp_path / "rules.toml"
    rules.write_text('apart = [["a", "b"]]\n')
    plan = tmp_path / "plan.json"
    assert main(["plan", "new", str(tmp_path / "before"), "--seconds", "2", "--rules", str(rules), "--out", str(plan)]) == 0
    after(plan, tmp_path / "after", part)
    capsys.readouterr()
    assert main(["check", str(plan), str(tmp_path / "after")]) == code
    assert ("less than promised" in capsys.readouterr().out) == (code == 1)
    # The guests are still where they were: the plan was not carried out.
    assert main(["check", str(plan), str(tmp_path / "before")]) == 1
    assert "is not there" in capsys.readouterr().out


def test_report_escapes_names_and_loads_nothing(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    put(tmp_path / "s", MadeHost("h1", [guest(evil, [(1, 500)]), guest("b", [(1, 500)])]))
    write_sketch(MadeHost('h"2\n', [guest("c", [(1, 500)])]), tmp_path / "s" / "h2.parquet")
    page, prom = tmp_path / "page.html", tmp_path / "fleet.prom"
    assert main(["report", str(tmp_path / "s"), "--html", str(page), "--metrics", str(prom)]) == 0
    text = page.read_text()
    assert "<script" not in text and "&lt;script&gt;" in text and "http" not in text and "<svg" in text
    metrics = prom.read_text()
    assert 'host="h\\"2\\n"' in metrics
    saved = [line for line in metrics.splitlines() if line.startswith('ksmith_fleet_expected_saved_bytes{host="h1"}')]
    assert saved == [f'ksmith_fleet_expected_saved_bytes{{host="h1"}} {500 * 4096}']


def test_overlap_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path)
    assert main(["overlap", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {frozenset((pair["a"][-1], pair["b"][-1])) for pair in said["pairs"] if pair["bytes"]["expected"] > 4096 * 900} == {
        frozenset(pair) for pair in ("ac", "ae", "ce", "bd", "bf", "df")
    }
    assert [host["saved_bytes"]["expected"] / 4096 for host in said["hosts"]] == [1100, 1100]


def test_faults_of_use_are_said_and_not_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "s")
    (tmp_path / "rules.toml").write_text("divergence = 7\n")
    (tmp_path / "plan.json").write_text('{"format": 1, "steps": 3}')
    for arguments in (
        ["plan", "new", str(tmp_path / "s"), "--rules", str(tmp_path / "rules.toml")],
        ["plan", "admit", str(tmp_path / "s"), "--like", "nothing-like-it"],
        ["apply", str(tmp_path / "plan.json")],
        ["check", str(tmp_path / "none.json"), str(tmp_path / "s")],
        ["report", str(tmp_path / "s")],
    ):
        assert main(arguments) == 1
        assert capsys.readouterr().err.startswith("ksmith-fleet: ")
