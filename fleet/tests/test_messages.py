"""Commands print JSON for programs, messages go to standard error, and `--strict` makes warnings errors."""

import json
from pathlib import Path

import pytest
from made import guest, put, two_images

from ksmith_fleet.cli.main import main
from ksmith_fleet.simulate.write import MadeHost


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    two_images(tmp_path / "s")
    return tmp_path / "s"


@pytest.fixture
def plan(fleet: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = fleet.parent / "plan.json"
    assert main(["plan", "new", str(fleet), "--out", str(path)]) == 0
    capsys.readouterr()
    return path


def test_every_command_prints_one_object_of_json(fleet: Path, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sketches, page = str(fleet), str(tmp_path / "page")
    for command, code, keys in (
        (["overlap", sketches], 0, {"hosts", "pairs", "images", "left_out"}),
        (["plan", "improve", sketches], 0, {"format", "steps", "hosts", "left_out"}),
        (["plan", "admit", sketches, "--like", "a"], 0, {"like", "hosts", "left_out"}),
        (["apply", str(plan)], 0, {"moves"}),
        (["apply", str(plan), "--undo"], 0, {"moves"}),
        (["check", str(plan), sketches], 3, {"verdict", "hosts", "whole"}),
        (["report", sketches, "--html", page], 0, {"written", "left_out"}),
    ):
        assert main([*command, "--json"]) == code, command
        said = capsys.readouterr()
        assert keys <= json.loads(said.out).keys() and said.err == "", command
    for command in (["fill", "--hosts", "2", "--seconds", "0"], ["sketches", "--hosts", "2", "--out", str(tmp_path / "made")]):
        assert main(["simulate", *command]) == 0
        assert all(isinstance(json.loads(line), dict) for line in capsys.readouterr().out.splitlines())


def test_json_of_a_plan_is_its_file(fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    assert main(["plan", "new", str(fleet), "--json", "--out", str(path)]) == 0
    assert capsys.readouterr().out == path.read_text()


def test_json_of_an_apply_says_what_became_of_each_move(plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    steps = json.loads(plan.read_text())["steps"]
    monkeypatch.setenv("PATH", str(plan.parent / "nowhere"))
    assert main(["apply", str(plan), "--run", "--json", "-q"]) == 1
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert [move["state"] for move in found["moves"]] == ["new"] * len(steps) and steps
    assert "virsh cannot be started" in found["error"] and found["error"].splitlines()[0] in said.err


def test_no_host_for_a_guest_is_an_empty_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 1000)])], memory_bytes=1100 * 4096))
    assert main(["plan", "admit", str(tmp_path), "--like", "a", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["hosts"] == []


def test_what_is_left_out_is_an_error_under_strict(fleet: Path, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fleet / "h3.parquet").write_bytes(b"PAR1")
    out, page = fleet.parent / "other.json", fleet.parent / "page"
    for command in (
        ["overlap", str(fleet)],
        ["plan", "new", str(fleet), "--out", str(out)],
        ["check", str(plan), str(fleet)],
        ["apply", str(plan), "--run", "--sketches", str(fleet)],
        ["report", str(fleet), "--html", str(page)],
        ["simulate", "fit", "--sketches", str(fleet), "--out", str(out)],
    ):
        assert main([*command, "--strict"]) == 4, command
        said = capsys.readouterr()
        assert said.out == "" and "h3.parquet: it is damaged" in said.err and "--strict allows none" in said.err
    assert not out.exists() and not page.exists() and not Path(f"{plan}.journal").exists()
    (fleet / "h3.parquet").unlink()
    assert main(["overlap", str(fleet), "--strict"]) == 0


def test_a_broken_rule_that_stays_is_an_error_under_strict(fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, out = tmp_path / "rules.toml", tmp_path / "plan.json"
    rules.write_text('apart = [["a", "b"]]\n' + "".join(f"[guests.{name}]\nfixed = true\n" for name in "ab"))
    command = ["plan", "improve", str(fleet), "--rules", str(rules), "--out", str(out)]
    assert main([*command, "--strict"]) == 4
    assert "1 broken rules stay" in capsys.readouterr().err and not out.exists()
    assert main(command) == 0 and out.exists()


def test_messages_have_levels_and_no_control_characters(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fleet / "h\x1b[2J3.parquet").write_bytes(b"PAR1")
    assert main(["overlap", str(fleet), "-q"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["overlap", str(fleet)]) == 0
    said = capsys.readouterr().err
    assert said.startswith("ksmith-fleet: left out: ") and "\x1b" not in said and "\n" not in said.rstrip("\n")
    assert main(["overlap", str(fleet), "-v"]) == 0
    assert "ksmith-fleet: read 2 hosts with 6 guests in " in capsys.readouterr().err
    for options, trace in ([], False), (["-vv"], True), (["-q"], False):
        assert main(["overlap", str(fleet / "none"), *options]) == 1
        said = capsys.readouterr().err
        assert "does not exist" in said and ("Traceback" in said) is trace


def test_files_that_are_not_there_are_named_in_words(fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sketches, out = str(fleet), str(tmp_path / "none" / "file")
    for command, said in (
        (["plan", "new", sketches, "--out", out], f"{out} cannot be written: {tmp_path}/none is no directory; make it, or name another file"),
        (["report", sketches, "--html", out], f"{out} cannot be written: {tmp_path}/none is no directory; make it, or name another file"),
        (["plan", "new", sketches, "--rules", out], f"{out}: No such file or directory"),
        (["apply", out], f"{out} cannot be read as a plan: No such file or directory; make it anew with `ksmith-fleet plan --out`"),
        (["fetch", "http://h1", "--out", str(tmp_path), "--token-file", out], f"{out}: No such file or directory"),
    ):
        assert main(command) == 1
        assert capsys.readouterr().err == f"ksmith-fleet: {said}\n"


def test_old_sketches_say_their_age_in_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, MadeHost("h1", [guest("a", [(1, 500)])], time_ms=MadeHost("h1", []).time_ms - 400_000_000))
    assert main(["overlap", str(tmp_path)]) == 1
    assert "h1: it is 4.6 days old: take a new one, or allow its age with --max-age\n" in capsys.readouterr().err


def test_a_plan_without_moves_says_which_price_none_is_worth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, *(MadeHost(host, [guest(f"{host}-a", [(1, 100), (number, 900)])]) for number, host in enumerate(("h1", "h2"), 2)))
    assert main(["plan", "new", str(tmp_path)]) == 0
    assert "no move saves 512 MiB for each GiB that it moves: --least-gain takes less\n" in capsys.readouterr().out
    assert main(["plan", "new", str(tmp_path), "--least-gain", "0"]) == 0
    said = capsys.readouterr().out
    assert "moves: 1 guest in 1 move" in said and "--least-gain" not in said
