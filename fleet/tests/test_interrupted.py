"""An `apply` that is killed at any point is carried on or undone, and hosts that changed since are left alone."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from made import guest, problem, put, two_images
from proxmox_cluster import Said
from virsh_hosts import VirshHosts

from ksmith_fleet.apply.backend import ApplyError, Backend
from ksmith_fleet.apply.fresh import changes
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.apply.kubevirt import KubeVirt
from ksmith_fleet.apply.libvirt import Libvirt
from ksmith_fleet.apply.openstack import OpenStack
from ksmith_fleet.apply.proxmox import Proxmox
from ksmith_fleet.apply.run import Runner
from ksmith_fleet.cli.main import main
from ksmith_fleet.dataset import read_fleet
from ksmith_fleet.plan_file import BadPlanError, Plan, Step, make_plan, read_plan, write_plan
from ksmith_fleet.planner import plan_new
from ksmith_fleet.simulate.write import MadeHost

LIBVIRT = Libvirt(template="test://{host}")
BEGIN = {"id-a": "h1", "id-b": "h2"}
END = {"id-a": "h2", "id-b": "h1"}


class KilledError(Exception):
    """Stands for a SIGKILL: nothing after it runs."""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Two guests change places by a third host, which has a move for a while."""
    two_images(tmp_path)
    fleet, built, single = problem(tmp_path)
    made = make_plan(fleet, built, single, plan_new(built.problem, 1))

    def step(number: int, name: str, source: str, target: str, temporary: bool = False) -> Step:
        return replace(made.steps[0], number=number, guest=name, guest_id=f"id-{name}", source=source, target=target, temporary=temporary)

    steps = [step(1, "a", "h1", "h3", True), step(2, "b", "h2", "h1"), step(3, "a", "h3", "h2")]
    return replace(made, steps=steps, placement=END)


class Virsh(VirshHosts):
    """A kill before or after the n-th command."""

    def __init__(self, kill_at: int = 10**9, after: bool = False) -> None:
        super().__init__(BEGIN)
        self.calls, self.kill_at, self.after = 0, kill_at, after

    def __call__(self, argv: Sequence[str], stdin: str | None) -> str:
        self.calls += 1
        if self.calls == self.kill_at and not self.after:
            raise KilledError
        said = super().__call__(argv, stdin)
        if self.calls == self.kill_at:
            raise KilledError
        return said


def attempt(plan: Plan, path: Path, virsh: Virsh, undo: bool = False) -> int:
    with closing(Journal(path, plan)) as journal:
        runner = Runner(plan, LIBVIRT, journal, virsh, say=lambda _: None)
        return runner.undo() if undo else runner.apply()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kill_at", range(1, 18))
def test_a_kill_at_each_command_is_carried_on_or_undone(plan: Plan, tmp_path: Path, kill_at: int, after: bool) -> None:
    for undo in (False, True):
        virsh, path = Virsh(kill_at, after), tmp_path / f"j-{undo}"
        with pytest.raises(KilledError):
            attempt(plan, path, virsh)
        attempt(plan, path, virsh, undo)
        assert virsh.where == (BEGIN if undo else END)
        if not undo:
            attempt(plan, path, virsh, undo=True)
            assert virsh.where == BEGIN


def test_the_whole_plan_takes_as_many_commands_as_are_killed(plan: Plan, tmp_path: Path) -> None:
    virsh = Virsh()
    assert attempt(plan, tmp_path / "j", virsh) == 3 and virsh.where == END
    assert virsh.calls == 3 * 7, "two lists before, the domain, memory, the move, two lists after: kills above reach into the last move"


@pytest.mark.parametrize("kill_at", range(1, 22))
def test_an_undo_that_is_killed_is_undone_again(plan: Plan, tmp_path: Path, kill_at: int) -> None:
    virsh, path = Virsh(), tmp_path / "j"
    attempt(plan, path, virsh)
    virsh.kill_at, virsh.calls, virsh.after = kill_at, 0, kill_at % 2 == 0
    with pytest.raises(KilledError):
        attempt(plan, path, virsh, undo=True)
    attempt(plan, path, virsh, undo=True)
    assert virsh.where == BEGIN


def test_a_journal_cut_at_each_byte_of_its_last_line_is_read(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "j"
    attempt(plan, path, Virsh())
    whole = path.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        virsh = Virsh()
        virsh.where = dict(END)
        assert attempt(plan, path, virsh) == 0
        assert virsh.where == END


def test_a_journal_without_its_first_line_belongs_to_no_plan(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"plan": "12')
    attempt(plan, path, Virsh())
    first = path.read_bytes().split(b"\n")[0]
    assert json.loads(first)["plan"]
    path.write_bytes(path.read_bytes()[3:])
    with pytest.raises(ApplyError, match="is no journal"):
        Journal(path, plan)
    path.write_bytes(first.replace(first[10:14], b"0000") + b"\n")
    with pytest.raises(ApplyError, match="another plan"):
        Journal(path, plan)
    for change in ({"step": 9}, {"step": 0}, {"step": "1"}, {"state": "maybe"}, {"time": -1}, {"more": 1}):
        line = json.dumps({"step": 1, "state": "done", "time": 0.0} | change)
        path.write_bytes(first + b"\n" + line.encode() + b"\n")
        with pytest.raises(ApplyError, match="damaged"):
            Journal(path, plan)


def test_two_applies_of_one_plan_do_not_run_at_once(plan: Plan, tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "j", plan)), pytest.raises(ApplyError, match="in use"):
        Journal(tmp_path / "j", plan)
    Journal(tmp_path / "j", plan).close()


def test_an_old_plan_is_not_begun_and_is_carried_on(plan: Plan, tmp_path: Path) -> None:
    def run(now: float, virsh: Virsh) -> int:
        with closing(Journal(tmp_path / "j", plan)) as journal:
            return Runner(plan, LIBVIRT, journal, virsh, say=lambda _: None, clock=lambda: now).apply()

    late = plan.time_ms / 1000 + 86_401
    with pytest.raises(ApplyError, match="make a new plan"):
        run(late, Virsh())
    with pytest.raises(ApplyError, match=r"3601 s in the future"):
        run(plan.time_ms / 1000 - 3601, Virsh())
    virsh = Virsh(kill_at=7)
    with pytest.raises(KilledError):
        run(late - 10, virsh)
    run(late, virsh)
    assert virsh.where == END


def test_hosts_that_changed_since_the_plan_are_named(tmp_path: Path) -> None:
    two_images(tmp_path)
    fleet, built, single = problem(tmp_path)
    plan = make_plan(fleet, built, single, plan_new(built.problem, 1))
    target = plan.steps[0].target
    assert {step.target for step in plan.steps} == {target} and changes(plan, fleet) == []
    new = guest("new", [(1, 100)])
    put(tmp_path, MadeHost(target, [new]))
    now, _ = read_fleet(str(tmp_path))
    assert changes(plan, now) == [f"new has come to {target}"]
    (tmp_path / f"{target}.parquet").unlink()
    now, _ = read_fleet(str(tmp_path))
    assert changes(plan, now) == [f"{target} has no sketch that can be used"]
    moved = replace(new, id=plan.steps[0].guest_id, name="wanderer")
    put(tmp_path, MadeHost("h7", [moved]), MadeHost(target, [], more={"skipped": [{"guest": "uml-1", "why": "shared"}]}))
    now, _ = read_fleet(str(tmp_path))
    assert "h7: wanderer" in str(now.left_out) or f"{plan.steps[0].source}: " in str(now.left_out)
    assert any("its sketch leaves out: uml-1" in change for change in changes(plan, now))


def test_the_command_moves_nothing_where_hosts_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_images(tmp_path / "s")
    path = str(tmp_path / "plan.json")
    assert main(["plan", "new", str(tmp_path / "s"), "--out", path]) == 0
    target = read_plan(path).steps[0].target
    put(tmp_path / "s", MadeHost(target, [guest("new", [(1, 100)])]))
    assert main(["apply", path, "--run", "--sketches", str(tmp_path / "s")]) == 1
    assert f"new has come to {target}" in capsys.readouterr().err
    assert not Path(path + ".journal").exists()


@pytest.mark.parametrize("name", ["--all", "Web", "a b", "ns_--all", "$(reboot)", "ns_", "a" * 300])
def test_names_that_a_platform_cannot_have_are_refused(plan: Plan, name: str) -> None:
    step = replace(plan.steps[0], guest=name, guest_id=f"qemu/{name}")
    backends: list[Backend] = [KubeVirt(), OpenStack(), *(Proxmox(Said(None), ids) for ids in ({}, {name: "1 2"}, {name: "²"}))]
    for backend in backends:
        with pytest.raises(ApplyError):
            backend.actions(step)
    assert LIBVIRT.actions(step)[0].argv[-4:] == ["--domain", name, "--desturi", "test://h3"]


def test_a_name_that_is_anothers_uuid_finds_no_other_guest(plan: Plan) -> None:
    step = replace(plan.steps[0], guest_id="uuid-1", target="h2")
    said = {"test://h1": " uuid-1 web\n uuid-2 uuid-3\n", "test://h2": " uuid-4 uuid-1\n\n"}
    assert LIBVIRT.where(step, lambda argv, _: said[argv[2]]) == "h1"
    unnamed = replace(step, guest="two words", guest_id="qemu/two words")
    said = {"test://h1": " uuid-1 words\n", "test://h2": " uuid-4 two words\n"}
    assert LIBVIRT.where(unnamed, lambda argv, _: said[argv[2]]) == "h2"


def test_a_plan_that_was_tampered_with_is_refused(plan: Plan, tmp_path: Path) -> None:
    for change in (
        {"target": "x/system?command=/tmp/evil"},
        {"source": "-oProxyCommand=x"},
        {"guest": "a\nreboot"},
        {"guest_id": 5},
        {"bytes": "many"},
        {"bytes": -1},
        {"number": 7},
    ):
        write_plan(plan, str(tmp_path / "p"))
        said = json.loads((tmp_path / "p").read_text())
        said["steps"][0] |= change
        (tmp_path / "p").write_text(json.dumps(said))
        with pytest.raises(BadPlanError):
            read_plan(str(tmp_path / "p"))
