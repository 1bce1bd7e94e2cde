"""Files that are there and are none of the command's own stay as they are."""

import os
import stat
from pathlib import Path

import pytest
from made import two_images

from ksmith_fleet import write
from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.cli.main import main
from ksmith_fleet.plan_file import Plan, read_plan
from ksmith_fleet.write import replace_file


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    two_images(tmp_path / "s")
    assert main(["plan", "new", str(tmp_path / "s"), "--out", str(tmp_path / "plan.json")]) == 0
    return read_plan(str(tmp_path / "plan.json"))


@pytest.mark.parametrize("text", ["{\n", "some notes\n", '["a"]\n', '{"step": 1}\n', '{"plan": "00"', "{}", "\n"])
def test_a_file_that_is_no_journal_is_not_taken_for_one(plan: Plan, tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes"
    path.write_text(text)
    if text == '{"plan": "00"':
        Journal(path, plan).close()
        assert path.read_text().endswith('"}\n'), "a first line that was cut off"
        return
    with pytest.raises(ApplyError, match="is no journal, and stays as it is"):
        Journal(path, plan)
    assert path.read_text() == text


def test_each_cut_of_a_first_line_is_a_new_journal(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "j"
    Journal(path, plan).close()
    whole = path.read_text()
    for cut in range(len(whole)):
        path.write_text(whole[:cut])
        Journal(path, plan).close()
        assert path.read_text() == whole, cut


def test_a_plan_that_is_named_as_its_own_journal_is_kept(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    before = path.read_bytes()
    assert main(["apply", str(path), "--run", "--journal", str(path)]) == 1
    assert "is no journal" in capsys.readouterr().err and path.read_bytes() == before


def test_a_journal_is_never_a_link_a_pipe_or_a_directory(plan: Plan, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("")
    (tmp_path / "link").symlink_to(victim)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "s"):
        with pytest.raises(ApplyError, match="is no file"):
            Journal(tmp_path / name, plan)
    assert victim.read_text() == ""


def test_a_device_a_pipe_and_a_link_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    replace_file(tmp_path / "link", "one")
    replace_file(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "two"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "to-pipe"):
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        replace_file(tmp_path / name, name)
        assert os.read(reader, 100) == name.encode() and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
        os.close(reader)
    # `/dev/stdout` is a link to whatever file the shell has opened.
    devices = tmp_path / "dev"
    devices.mkdir()
    monkeypatch.setattr(write, "DEVICES", devices)
    (devices / "stdout").symlink_to(tmp_path / "file")
    inode = (tmp_path / "file").stat().st_ino
    replace_file(devices / "stdout", "three")
    assert (devices / "stdout").is_symlink() and (tmp_path / "file").stat().st_ino == inode
    assert (tmp_path / "file").read_text() == "three"


def test_an_undo_is_printed_as_the_moves_back(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.json")
    capsys.readouterr()
    assert main(["apply", path, "--undo"]) == 0
    assert capsys.readouterr().out.strip() == "", "nothing was moved, and so nothing is moved back"
    assert not Path(path + ".journal").exists()
    journal = Journal(Path(path + ".journal"), plan)
    for number in (1, 2):
        journal.note(number, "begun")
    journal.note(1, "done")
    journal.close()
    assert main(["apply", path, "--undo"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    back = [f"# {step.number}. {step.guest}: {step.target} to {step.source}" for step in plan.steps[:2]]
    assert said == back[::-1]
