"""A guest that cannot be moved stays, and the rest of the plan goes on as far as it does not reckon with that guest's leaving."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from made import problem, two_images
from virsh_hosts import VirshHosts, moved

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.apply.libvirt import Libvirt
from ksmith_fleet.apply.lock import lock_directory, locked_hosts
from ksmith_fleet.apply.openstack import OpenStack
from ksmith_fleet.apply.run import Runner
from ksmith_fleet.cli.main import main
from ksmith_fleet.plan_file import Plan, Step, make_plan, write_plan
from ksmith_fleet.planner import plan_new

BEGIN = {"id-a": "h1", "id-b": "h2", "id-c": "h3", "id-d": "h4"}
LIBVIRT = Libvirt(template="test://{host}")


class Virsh(VirshHosts):
    """Some guests cannot be moved, and each host says what it has free."""

    def __init__(self, stuck: Sequence[str] = (), free: dict[str, int] | None = None) -> None:
        super().__init__(BEGIN, free)
        self.stuck = stuck

    def __call__(self, argv: Sequence[str], stdin: str | None) -> str:
        if (identity := moved(argv)) in self.stuck:
            raise ApplyError(f"{identity} has a device that is passed through")
        return super().__call__(argv, stdin)


def step(number: int, name: str, source: str, target: str) -> Step:
    return Step(number, name, f"id-{name}", "qemu", source, target, 100 << 20, 0, False)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    two_images(tmp_path / "s")
    fleet, built, single = problem(tmp_path / "s")
    made = make_plan(fleet, built, single, plan_new(built.problem, 1))
    steps = [step(1, "a", "h1", "h2"), step(2, "b", "h2", "h1"), step(3, "c", "h3", "h4"), step(4, "a", "h2", "h3"), step(5, "d", "h4", "h3")]
    return replace(made, steps=steps)


def go(plan: Plan, path: Path, virsh: Virsh) -> list[str]:
    said: list[str] = []
    with closing(Journal(path, plan)) as journal:
        Runner(plan, LIBVIRT, journal, virsh, say=said.append, sleep=lambda _: None).apply()
    return said


def test_moves_that_reckon_with_a_guest_that_stays_are_left_out_and_made_later(plan: Plan, tmp_path: Path) -> None:
    virsh = Virsh(stuck=["id-a"])
    with pytest.raises(ApplyError) as error:
        go(plan, tmp_path / "j", virsh)
    # b would come to the host that a keeps, and a makes its second move from a host that it did not reach.
    assert virsh.where == BEGIN | {"id-c": "h4", "id-d": "h3"}
    assert str(error.value).splitlines() == [
        "2 moves were made, and 3 not:",
        "1. a: id-a has a device that is passed through",
        "2. b: h1 still has a",
        "4. a: it did not make its last move",
    ]
    virsh.stuck = ()
    go(plan, tmp_path / "j", virsh)
    assert virsh.where == {"id-a": "h3", "id-b": "h1", "id-c": "h4", "id-d": "h3"}


def test_a_host_without_room_is_waited_for_once(plan: Plan, tmp_path: Path) -> None:
    plan = replace(plan, steps=[step(1, "a", "h1", "h2"), step(2, "c", "h3", "h2"), step(3, "d", "h4", "h3")])
    slept: list[float] = []
    virsh = Virsh(free={"h2": 50 << 20})
    with closing(Journal(tmp_path / "j", plan)) as journal, pytest.raises(ApplyError, match="0 moves were made, and 3 not"):
        Runner(plan, LIBVIRT, journal, virsh, say=lambda _: None, sleep=slept.append, wait_s=20).apply()
    assert slept == [10.0, 10.0] and virsh.where == BEGIN


@pytest.mark.parametrize(("reserved", "moved"), [(0, True), (99 << 20, True), (101 << 20, False)])
def test_what_a_host_reserves_stays_free_while_a_guest_arrives(plan: Plan, tmp_path: Path, reserved: int, moved: bool) -> None:
    plan = replace(plan, steps=[step(1, "a", "h1", "h2")], hosts=[replace(host, reserved_bytes=reserved) for host in plan.hosts])
    virsh = Virsh(free={"h2": 200 << 20})
    if moved:
        go(plan, tmp_path / "j", virsh)
    else:
        with pytest.raises(ApplyError, match="h2 has 200 MiB free and a needs 100 MiB beside 101 MiB that stay free"):
            go(plan, tmp_path / "j", virsh)
    assert (virsh.where["id-a"] == "h2") == moved


def test_a_plan_has_what_its_hosts_reserve(plan: Plan) -> None:
    assert [host.reserved_bytes for host in plan.hosts] == [int(0.05 * (1 << 30))] * 2


def test_a_guest_that_vanished_stops_the_rest(plan: Plan, tmp_path: Path) -> None:
    virsh = Virsh()
    virsh.where["id-a"] = "h9"
    with pytest.raises(ApplyError, match="make a new plan"):
        go(plan, tmp_path / "j", virsh)
    assert virsh.where == BEGIN | {"id-a": "h9"}


def test_memory_that_openstack_has_overcommitted_is_left_to_its_scheduler() -> None:
    assert OpenStack().free_bytes("h1", lambda *_: "-2048\n") is None


def test_two_plans_that_share_a_host_are_not_applied_at_once(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_plan(plan, str(tmp_path / "plan.json"))
    with locked_hosts(["H2", "h9"], lock_directory()):
        assert main(["apply", str(tmp_path / "plan.json"), "--run"]) == 1
        assert "another plan is being applied to h2: wait for its end" in capsys.readouterr().err
        with locked_hosts(["h1", "h3"], lock_directory()):
            pass
    with locked_hosts(["h2"], lock_directory()):
        pass


def test_a_shared_directory_keeps_plans_of_other_users_and_machines_apart(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plan(plan, str(tmp_path / "plan.json"))
    command, shared = ["apply", str(tmp_path / "plan.json"), "--run", "--locks", str(tmp_path / "locks")], tmp_path / "locks"
    assert main(command) == 1
    assert "locks is no directory: mount what all machines" in capsys.readouterr().err and not shared.exists()
    shared.mkdir()
    # Another user has locks of its own, which keep no one out, and shares these.
    holder = (
        "import sys; from ksmith_fleet.apply.lock import *\n"
        "with locked_hosts(['h2'], lock_directory(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "other")}
    words = [sys.executable, "-c", holder, str(shared)]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert main(command) == 1
        assert "another plan is being applied to h2: wait for its end" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert main(command) == 1
    assert "virsh cannot be started" in capsys.readouterr().err
