"""The real command is killed, interrupted, and run without room on its disk."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from made import problem, two_images

from ksmith_fleet.plan_file import Plan, Step, make_plan, write_plan
from ksmith_fleet.planner import plan_new

BEGIN = {"id-a": "h1", "id-b": "h2"}
END = {"id-a": "h2", "id-b": "h1"}
VIRSH = """#!/bin/sh
# Keeps where guests are in files, and takes its time to move one. Like the true one it breaks a move off when it is interrupted.
cd WHERE
case "$3" in
list) grep -l "^${2#test://}$" id-? | sed 's/$/ name/' ;;
nodememstats) echo "free : 99999999 KiB" ;;
dumpxml) echo "<domain/>" ;;
migrate)
    while [ $# -gt 4 ]; do shift; done
    trap 'sleep 1; echo "$2" >> aborted; exit 1' INT
    echo "$4" | sed 's#test://##' > "$2.new"
    for _ in $(seq SLOW); do sleep 0.1; done
    mv "$2.new" "$2" ;;
esac
"""


@dataclass(frozen=True)
class World:
    """A plan of two moves, and hosts that a program stands for."""

    directory: Path

    def command(self, *more: str) -> list[str]:
        uris = [f"--uri={host}=test://{host}" for host in ("h1", "h2")]
        plan = str(self.directory / "plan.json")
        # What a shell starts in the background ignores SIGINT, and so would the command.
        python = ["env", "--default-signal=INT", sys.executable]
        return [*python, "-m", "ksmith_fleet.cli.main", "apply", plan, "--run", "--settle", "0", *uris, *more]

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.directory}/bin:/usr/bin:/bin"}

    def journal(self) -> str:
        path = self.directory / "plan.json.journal"
        return path.read_text() if path.exists() else ""

    def where(self) -> dict[str, str]:
        return {identity: (self.directory / "where" / identity).read_text().strip() for identity in BEGIN}

    def slow(self, tenths: int) -> None:
        (self.directory / "bin").mkdir(exist_ok=True)
        tool = self.directory / "bin" / "virsh"
        tool.write_text(VIRSH.replace("WHERE", str(self.directory / "where")).replace("SLOW", str(tenths)))
        tool.chmod(0o755)

    def finish(self, *more: str) -> str:
        self.slow(1)
        return subprocess.run(self.command(*more), env=self.environment, capture_output=True, text=True, check=True).stdout

    @contextmanager
    def moving(self) -> Iterator[subprocess.Popen[str]]:
        """Starts the command, and waits until its first move is on its way. A process group of its own stands for a terminal's."""
        with subprocess.Popen(
            self.command(), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
        ) as process:
            wait_until(lambda: '"begun"' in self.journal() and any((self.directory / "where").glob("*.new")))
            yield process


def wait_until(done: Callable[[], bool]) -> None:
    for _ in range(1200):
        if done():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


@pytest.fixture
def world(tmp_path: Path) -> World:
    two_images(tmp_path / "s")
    fleet, built, single = problem(tmp_path / "s")
    made = make_plan(fleet, built, single, plan_new(built.problem, 1))

    def step(number: int, name: str, source: str, target: str) -> Step:
        return replace(made.steps[0], number=number, guest=name, guest_id=f"id-{name}", source=source, target=target)

    plan: Plan = replace(made, steps=[step(1, "a", "h1", "h2"), step(2, "b", "h2", "h1")], placement=END)
    write_plan(plan, str(tmp_path / "plan.json"))
    (tmp_path / "where").mkdir()
    for identity, host in BEGIN.items():
        (tmp_path / "where" / identity).write_text(host + "\n")
    made_world = World(tmp_path)
    made_world.slow(3)
    return made_world


def test_a_kill_leaves_a_journal_that_is_carried_on(world: World) -> None:
    with world.moving() as process:
        process.kill()
    # The tool's child goes on for a moment, as a libvirt daemon would.
    wait_until(lambda: world.where()["id-a"] == "h2")
    assert "moves made" in world.finish() and world.where() == END


@pytest.mark.parametrize("to_all", [False, True])
def test_ctrl_c_waits_until_the_tool_has_broken_its_move_off(world: World, to_all: bool) -> None:
    """A terminal sends the signal to the whole group, `kill -INT` to the command alone."""
    world.slow(600)
    with world.moving() as process:
        if to_all:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=60)
    assert (world.directory / "where" / "aborted").read_text() == "id-a\n", "the tool has ended, and it was not killed"
    assert process.returncode == 130 and "Run the same command again to go on, or with --undo" in complaint
    assert "1. a: h1 to h2" in said and world.where() == BEGIN
    assert "2 moves made" in world.finish() and world.where() == END
    assert "2 moves made" in world.finish("--undo") and world.where() == BEGIN


def test_a_move_is_said_before_it_ends_also_into_a_pipe(world: World) -> None:
    world.slow(600)
    with world.moving() as process:
        assert process.stdout is not None and process.stdout.readline() == "1. a: h1 to h2\n"
        process.send_signal(signal.SIGINT)


def test_a_disk_without_room_for_the_journal_stops_before_the_move(world: World) -> None:
    """A limit of a file's size stands for a full disk: each write beyond it fails."""
    path = world.directory / "plan.json.journal"
    limits = {"new": 0, "the first line is there": 100, "a line is cut off": 130, "begun, but not done": 180}
    for case, limit in limits.items():

        def limited(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = subprocess.run(
            world.command(),
            env=world.environment,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=limited,
        )
        assert done.returncode == 1 and "File too large" in done.stderr and "--undo to go back" in done.stderr, case
        assert "Traceback" not in done.stderr and path.stat().st_size <= limit, case
        assert world.where() == BEGIN or '"begun"' in world.journal(), case
    assert "moves made" in world.finish() and world.where() == END


def test_a_disk_without_room_keeps_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("the plan before")
    text = "from pathlib import Path; from ksmith_fleet.write import replace_file; replace_file(Path('plan.json'), 'x' * 10_000)"

    def run(limit: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", text],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )

    for limit in (0, 5000, 9999):
        assert "File too large" in run(limit).stderr
        assert [one.name for one in tmp_path.iterdir()] == ["plan.json"] and path.read_text() == "the plan before"
    assert run(10_000).returncode == 0 and len(path.read_text()) == 10_000


def test_a_disk_without_room_for_rows_on_their_way_is_named(tmp_path: Path) -> None:
    two_images(tmp_path / "s")
    done = subprocess.run(
        [sys.executable, "-m", "ksmith_fleet.cli.main", "overlap", str(tmp_path / "s"), "--work-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert done.returncode == 1 and f"cannot write below {tmp_path}/ksmith-fleet-" in done.stderr and "--work-dir" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["s"]
