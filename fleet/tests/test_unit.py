"""The unit of the service as systemd itself reads it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ksmith_fleet.cli.main import main, parser

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", [sys.executable, "serve", "--unit"])
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--unit"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def analyze(directory: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    path = directory / "ksmith-fleet.service"
    path.write_text(text)
    return subprocess.run([str(ANALYZE), *words, str(path)], capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if "ksmith-fleet" in line]


@needs_systemd
def test_systemd_understands_the_unit(unit: str, tmp_path: Path) -> None:
    done = analyze(tmp_path, unit, "verify", "--man=no")
    assert complaints(done) == [] and done.returncode == 0
    assert complaints(analyze(tmp_path, unit.replace("RestartSec=5s", "RestartSec=soon"), "verify", "--man=no"))


@needs_systemd
def test_its_exposure_is_at_most_1_of_10(unit: str, tmp_path: Path) -> None:
    done = analyze(tmp_path, unit, "security", "--offline=true", "--threshold=10")
    if "Overall exposure level" not in done.stdout:
        pytest.skip("this systemd-analyze rates no unit offline")
    assert done.returncode == 0, done.stdout
    for line in ("CapabilityBoundingSet=", "PrivateUsers=yes", "IPAddressDeny=any"):
        less = analyze(tmp_path, unit.replace(f"{line}\n", ""), "security", "--offline=true", "--threshold=10")
        assert less.returncode != 0, f"without {line} it is more"


def test_the_command_of_the_unit_is_one_of_the_program(unit: str) -> None:
    (command,) = (line.removeprefix("ExecStart=").split() for line in unit.splitlines() if line.startswith("ExecStart="))
    assert command[0] == sys.executable and command[1] == "serve"
    options = parser().parse_args(command[1:])
    host, port = options.listen
    assert host == "127.0.0.1" and f"SocketBindAllow=tcp:{port}\n" in unit
    assert str(options.plans).startswith("/var/lib/ksmith-fleet/") and options.plan_at is not None
