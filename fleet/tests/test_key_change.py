"""The key of a fleet and the token of its servers are changed without a moment in which nothing can be planned."""

import json
from pathlib import Path

import pytest
from made import guest, put

from ksmith_fleet.cli.main import main
from ksmith_fleet.cli.serve import read_bearer_tokens
from ksmith_fleet.simulate.write import MadeHost

OLD, NEW = "0" * 32, "9f8e7d6c" + "1" * 24
HOSTS = ("h1", "h2", "h3", "h4", "h5")


def write(directory: Path, host: str, key_id: str, next_key_id: str | None = None) -> None:
    put(directory, MadeHost(host, [guest(f"{host}-a", [(1, 500)])], key_id=key_id, next_key_id=next_key_id))


def test_a_fleet_is_planned_after_each_step_of_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sketches, plan = tmp_path / "s", tmp_path / "plan.json"

    def planned() -> int:
        plan.unlink(missing_ok=True)
        assert main(["plan", "new", str(sketches), "--out", str(plan)]) == 0
        capsys.readouterr()
        return len(json.loads(plan.read_text())["hosts"])

    for host in HOSTS:
        write(sketches, host, OLD)
    assert planned() == 5
    for host in HOSTS:
        write(sketches, host, OLD, NEW)
        assert planned() == 5, "a host that is ready for the next key is planned with the old one"
    for number, host in enumerate(HOSTS, 1):
        write(sketches, host, NEW)
        assert planned() == max(number, 5 - number)


def test_overlap_says_which_hosts_are_ready_for_the_next_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said() -> str:
        assert main(["overlap", str(tmp_path)]) == 0
        return capsys.readouterr().out

    for host in HOSTS:
        write(tmp_path, host, OLD, NEW if host < "h4" else None)
    assert "3 of 5 hosts are ready for the next key (9f8e7d6c); not yet: h4, h5\n" in said()
    write(tmp_path, "h4", OLD, NEW)
    write(tmp_path, "h5", OLD, "2" * 32)
    assert "4 of 5 hosts are ready for the next key (9f8e7d6c); not yet: h5\n" in said(), "another next key is none"
    write(tmp_path, "h5", OLD, NEW)
    assert "5 of 5 hosts are ready for the next key (9f8e7d6c)\n" in said()
    assert main(["overlap", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["next_key"] == {"key_id": NEW, "ready": list(HOSTS), "unready": []}
    for host in HOSTS:
        write(tmp_path, host, NEW)
    assert "next key" not in said()


def test_a_host_with_another_key_and_a_tie_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for host in HOSTS[:4]:
        write(tmp_path, host, NEW if host == "h2" else OLD)
    assert main(["overlap", str(tmp_path)]) == 0
    assert "left out: h2: its fingerprints have another key: give all hosts one secret" in capsys.readouterr().err
    write(tmp_path, "h1", NEW)
    assert main(["overlap", str(tmp_path)]) == 1
    assert "no key has a majority: h1, h2; h3, h4: give all hosts one secret" in capsys.readouterr().err


def test_servers_take_each_token_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("the-old-token-of-all\r\n\nthe-new-token-of-all\n")
    path.chmod(0o600)
    assert read_bearer_tokens(str(path)) == ["the-old-token-of-all", "the-new-token-of-all"]
    for wrong in ("", "\n", "the-old-token-of-all\nshort\n"):
        path.write_text(wrong)
        with pytest.raises(ValueError, match="has no token"):
            read_bearer_tokens(str(path))


def test_a_credential_of_systemd_may_be_read_by_its_access_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("the-only-token-of-all")
    path.chmod(0o440)
    with pytest.raises(ValueError, match="chmod 600"):
        read_bearer_tokens(str(path))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_bearer_tokens(str(path)) == ["the-only-token-of-all"]
    for mode in (0o444, 0o460, 0o442):
        path.chmod(mode)
        with pytest.raises(ValueError, match="chmod 600"):
            read_bearer_tokens(str(path))
