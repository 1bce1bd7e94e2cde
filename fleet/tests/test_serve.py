"""The service, asked over HTTP on this machine."""

import argparse
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, time
from pathlib import Path

import pytest
import urllib3
from made import two_images
from service import running

from ksmith_fleet.cli.main import main, parser
from ksmith_fleet.plan_file import plan_json, read_plan
from ksmith_fleet.serve.app import make_app
from ksmith_fleet.serve.night import make_plan_of, plan_command, seconds_until
from ksmith_fleet.serve.state import FleetState

TOKEN = "0123456789abcdef0123456789abcdef"
NIGHT = datetime(2026, 11, 27, 2, 0)


@pytest.fixture
def state(tmp_path: Path) -> FleetState:
    two_images(tmp_path / "s")
    (tmp_path / "plans").mkdir()
    return FleetState(options(tmp_path), tmp_path / "plans", clock=lambda: 1_700_000_000.0)


def options(directory: Path, *more: str) -> argparse.Namespace:
    return parser().parse_args(["serve", str(directory / "s"), "--plans", str(directory / "plans"), *more])


@contextmanager
def served(state: FleetState, *tokens: str) -> Iterator[str]:
    """Serves on a port of its own."""
    with running(make_app(state, tokens)) as (port, _):
        yield f"http://127.0.0.1:{port}"


def ask(url: str, **headers: str) -> tuple[int, str]:
    answer = urllib3.request("GET", url, headers=headers, retries=False)
    return answer.status, answer.data.decode()


def test_admission_is_that_of_the_command(state: FleetState, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(state) as url:
        assert ask(f"{url}/admit?like=a") == (503, '{"error":"the sketches are being read"}')
        assert ask(f"{url}/metrics")[0] == 503
        state.refresh()
        status, said = ask(f"{url}/admit?like=a")
        assert main(["plan", "admit", str(tmp_path / "s"), "--like", "a", "--json"]) == 0
        assert status == 200 and json.loads(said) == json.loads(capsys.readouterr().out) and json.loads(said)["hosts"]
        assert ask(f"{url}/admit") == (400, '{"error":"name a guest that has a sketch: /admit?like=NAME"}')
        assert ask(f"{url}/admit?like=nobody") == (404, '{"error":"no sketch has the guest nobody"}')
        assert ask(f"{url}/else")[0] == 404
        assert urllib3.request("POST", f"{url}/admit?like=a", retries=False).status == 405


def test_metrics_say_how_the_service_fares(state: FleetState, tmp_path: Path) -> None:
    state.refresh()
    with served(state) as url:
        said = ask(f"{url}/metrics")[1]
        assert "ksmith_fleet_hosts 2\n" in said and "ksmith_fleet_read_time_seconds 1700000000\n" in said and "ksmith_fleet_read_failed 0\n" in said
        for path in (tmp_path / "s").iterdir():
            path.unlink()
        state.refresh()
        said = ask(f"{url}/metrics")[1]
        assert "ksmith_fleet_hosts 2\n" in said and "ksmith_fleet_read_failed 1\n" in said, "what was read before still answers"
        assert ask(f"{url}/admit?like=a")[0] == 200


def test_the_plan_of_the_night_is_made_and_answered(state: FleetState, tmp_path: Path) -> None:
    with served(state) as url:
        assert ask(f"{url}/plan") == (404, '{"error":"no plan has been made yet"}')
        assert state.plans is not None
        make_plan_of(state, state.plans, NIGHT)
        assert state.plan_fault is None
        (state.plans / "plan-2026-11-28.json").write_text("{}")
        made = read_plan(str(state.plans / "plan-2026-11-27.json"))
        assert json.loads(ask(f"{url}/plan")[1]) == json.loads(json.dumps(plan_json(made))) and made.steps, "one that cannot be read is passed over"
        state.refresh()
        assert f"ksmith_fleet_plan_moves {len(made.steps)}\n" in ask(f"{url}/metrics")[1]
        state.options.sketches = str(tmp_path / "none")
        make_plan_of(state, state.plans, NIGHT)
        assert "does not exist" in str(state.plan_fault) and "ksmith_fleet_plan_failed 1\n" in ask(f"{url}/metrics")[1]


def test_the_plan_has_the_options_of_the_service(tmp_path: Path) -> None:
    words = plan_command(options(tmp_path, "--rules", "r.toml", "--memory", "2GB", "--max-age", "7", "--common-rate"), Path("out.json"))
    found = parser().parse_args(words[words.index("plan") :])
    assert (found.rules, found.memory, found.max_age, found.common_rate, found.out) == ("r.toml", "2GB", 7.0, True, "out.json")
    assert found.mode == "improve" and found.sketches == str(tmp_path / "s")


def test_the_night_comes_once_a_day() -> None:
    assert seconds_until(time(2, 30), NIGHT) == 1800.0
    assert seconds_until(time(2, 0), NIGHT) == 86_400.0, "not twice at one time"
    assert seconds_until(time(1, 0), NIGHT) == 23 * 3600.0


def test_only_holders_of_the_token_are_answered(state: FleetState) -> None:
    state.refresh()
    with served(state, TOKEN) as url:
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN}0"}, {"Authorization": TOKEN}):
            for path in ("/admit?like=a", "/metrics", "/plan", "/else"):
                assert ask(url + path, **headers) == (401, '{"error":"a token is needed"}')
        assert ask(f"{url}/metrics", Authorization=f"Bearer {TOKEN}", Host="fleet.example")[0] == 200


def test_a_page_of_another_site_reads_nothing_without_a_token(state: FleetState) -> None:
    state.refresh()
    with served(state) as url:
        assert ask(f"{url}/metrics", Host="evil.example")[0] == 400
        assert ask(f"{url}/metrics", Host="localhost:9732")[0] == 200


def test_what_would_answer_other_machines_without_a_token_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "s")
    token = tmp_path / "token"
    token.write_text("short")
    token.chmod(0o644)
    command = ["serve", str(tmp_path / "s")]
    for more, said in (
        (["--listen", "0.0.0.0:0"], "0.0.0.0 can be asked by other machines: give --token-file"),
        (["--listen", "[::]:0"], ":: can be asked by other machines"),
        (["--token-file", str(token)], "can be read by other users: chmod 600"),
        (["--plan-at", "02:30"], "--plan-at needs a directory: give --plans"),
    ):
        assert main([*command, *more]) == 1
        assert said in capsys.readouterr().err
    token.chmod(0o600)
    assert main([*command, "--token-file", str(token)]) == 1
    assert "has no token: write 16 or more letters" in capsys.readouterr().err
    for wrong in (["--listen", "9732"], ["--listen", "h:99999"], ["--plan-at", "25:00"]):
        with pytest.raises(SystemExit):
            main([*command, *wrong])


def test_the_command_answers_until_it_is_ended(tmp_path: Path) -> None:
    two_images(tmp_path / "s")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "ksmith_fleet.cli.main", "serve", str(tmp_path / "s"), "--listen", f"127.0.0.1:{port}", "-v"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            retries = urllib3.Retry(200, backoff_factor=0.1, backoff_max=0.2, status_forcelist=[503], allowed_methods=None)
            answer = urllib3.request("GET", f"http://127.0.0.1:{port}/admit?like=a", retries=retries)
            assert answer.status == 200 and answer.json()["hosts"]
        finally:
            process.terminate()
        assert process.stderr is not None and "read 2 hosts with 6 guests" in process.stderr.read()
