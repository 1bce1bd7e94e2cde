"""Plans are carried out, interrupted, resumed and undone."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import problem, two_images
from proxmox_cluster import Said

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.apply.kubevirt import KubeVirt
from ksmith_fleet.apply.libvirt import Libvirt
from ksmith_fleet.apply.openstack import OpenStack
from ksmith_fleet.apply.proxmox import Proxmox
from ksmith_fleet.apply.run import Runner, run_command
from ksmith_fleet.plan_file import Plan, make_plan
from ksmith_fleet.planner import plan_new


class Hosts:
    """Answers virsh for hosts in memory, with fewer free bytes after each arrival, and fails when told to."""

    def __init__(self, plan: Plan, where: dict[str, str], free: int = 1 << 30) -> None:
        self.where, self.free, self.fail_after, self.moves = dict(where), free, 10**9, 0
        self.steps = {step.guest_id: step for step in plan.steps}

    def run(self, argv: Sequence[str], stdin: str | None) -> str:
        host = argv[2].removeprefix("test://")
        if argv[3] == "list":
            return "".join(f"{guest} name\n" for guest, at in self.where.items() if at == host)
        if argv[3] == "dumpxml":
            return "<domain type='kvm'/>"
        if argv[3] == "nodememstats":
            return f"total  :  9999 KiB\nfree   :  {self.free // 1024} KiB\nbuffers:  0 KiB\ncached :  0 KiB\n"
        if self.moves >= self.fail_after:
            raise ApplyError("the connection was lost")
        self.moves += 1
        guest, target = argv[argv.index("--domain") + 1], argv[argv.index("--desturi") + 1].removeprefix("test://")
        assert self.where[guest] == host
        self.where[guest] = target
        return ""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    two_images(tmp_path)
    fleet, built, single = problem(tmp_path)
    outcome = plan_new(built.problem, 2)
    # Without a reason to part images the whole fleet fits one host: three moves.
    made = make_plan(fleet, built, single, outcome)
    assert len(made.steps) >= 2
    return made


def start(plan: Plan) -> dict[str, str]:
    return {f"id-{name}": ("h1" if name in "abc" else "h2") for name in "abcdef"}


LIBVIRT = Libvirt(template="test://{host}")


OPEN: list[Journal] = []


def runner(plan: Plan, directory: Path, hosts: Hosts, **more: Any) -> Runner:
    """Begins anew with the journal that an earlier run, which is gone, has left."""
    while OPEN:
        OPEN.pop().close()
    OPEN.append(Journal(directory / "j", plan))
    return Runner(plan, LIBVIRT, OPEN[0], hosts.run, **more)


def test_apply_reaches_the_plan_and_a_second_run_does_nothing(plan: Plan, tmp_path: Path) -> None:
    hosts = Hosts(plan, start(plan))
    assert runner(plan, tmp_path, hosts).apply() == len(plan.steps)
    assert hosts.where == plan.placement
    assert runner(plan, tmp_path, hosts).apply() == 0


@pytest.mark.parametrize("after", [0, 1])
def test_an_interrupted_apply_is_resumed(plan: Plan, tmp_path: Path, after: int) -> None:
    hosts = Hosts(plan, start(plan))
    hosts.fail_after = after
    with pytest.raises(ApplyError, match="connection"):
        runner(plan, tmp_path, hosts).apply()
    hosts.fail_after = 10**9
    assert runner(plan, tmp_path, hosts).apply() == len(plan.steps) - after
    assert hosts.where == plan.placement


def test_an_interrupted_apply_is_undone(plan: Plan, tmp_path: Path) -> None:
    hosts = Hosts(plan, start(plan))
    hosts.fail_after = 1
    with pytest.raises(ApplyError):
        runner(plan, tmp_path, hosts).apply()
    hosts.fail_after = 10**9
    assert runner(plan, tmp_path, hosts).undo() == 1
    assert hosts.where == start(plan)
    with pytest.raises(ApplyError, match="undone"):
        runner(plan, tmp_path, hosts).apply()


def test_a_journal_that_was_cut_off_counts_by_where_the_guest_is(plan: Plan, tmp_path: Path) -> None:
    hosts = Hosts(plan, start(plan))
    runner(plan, tmp_path, hosts).apply()
    text = (tmp_path / "j").read_text()
    for cut in range(len(text.splitlines()[0]) + 2, len(text), 37):
        (tmp_path / "j").write_text(text[:cut])
        assert runner(plan, tmp_path, hosts).apply() == 0
        assert hosts.where == plan.placement


def test_a_target_without_room_is_waited_for_and_then_refused(plan: Plan, tmp_path: Path) -> None:
    hosts = Hosts(plan, start(plan), free=1000)
    slept: list[float] = []
    with pytest.raises(ApplyError, match="free"):
        runner(plan, tmp_path, hosts, wait_s=30, sleep=slept.append, say=lambda _: None).apply()
    assert slept == [10.0] * 3 and hosts.where == start(plan)


def test_a_guest_that_is_elsewhere_stops_the_apply(plan: Plan, tmp_path: Path) -> None:
    where = start(plan) | {plan.steps[0].guest_id: "h7"}
    with pytest.raises(ApplyError, match="new sketches"):
        runner(plan, tmp_path, Hosts(plan, where)).apply()


def test_the_journal_of_another_plan_is_refused(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "j").write_text(json.dumps({"plan": "another"}) + "\n")
    with pytest.raises(ApplyError, match="another plan"):
        Journal(tmp_path / "j", plan)


def test_each_platform_names_guest_and_target(plan: Plan) -> None:
    step = plan.steps[0]
    step = replace(step, guest_id="00000000-0000-4000-9000-000000000001")
    for backend in (LIBVIRT, Proxmox(Said(None), {step.guest: "104"}), OpenStack(), KubeVirt()):
        text = "\n".join(action.shell() for action in backend.actions(step))
        assert step.target in text
        assert any(name in text for name in (step.guest_id, "104", f'"vmiName": "{step.guest}"'))
    with pytest.raises(ApplyError, match="VMID"):
        Proxmox(Said(None)).actions(step)
    manifest = json.loads(KubeVirt(namespaces={step.guest: "shop"}).manifest(step))
    assert manifest["kind"] == "VirtualMachineInstanceMigration" and manifest["metadata"]["namespace"] == "shop"
    assert manifest["spec"]["addedNodeSelector"] == {"kubernetes.io/hostname": step.target}


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[", "3", "[1]", "{}", '{"memory": 3}', '{"memory": {"total": "much"}}', "free : much", "total : 5 KiB"]
)
def test_a_host_that_does_not_say_its_free_memory_stops_the_apply(text: str) -> None:
    with pytest.raises(ApplyError, match="virsh"):
        LIBVIRT.free_bytes("h1", lambda argv, stdin: text)


def test_free_memory_is_read_as_the_platforms_say_it() -> None:
    stats = "total  :              8127344 KiB\nfree   :              100 KiB\nbuffers:               20 KiB\ncached :              3 KiB\n\n"
    assert LIBVIRT.free_bytes("h1", lambda argv, stdin: stats) == 123 * 1024


@pytest.mark.parametrize("said", [None, [1], {}, {"memory": 3}, {"memory": {"total": "much", "used": 1}}])
def test_a_node_of_proxmox_that_does_not_say_its_free_memory_stops_the_apply(said: Any) -> None:
    with pytest.raises(ApplyError, match="how much memory h1 has free"):
        Proxmox(Said(said)).free_bytes("h1", run_command)
    assert Proxmox(Said({"memory": {"total": 9, "used": 4, "free": 1}})).free_bytes("h1", run_command) == 5


@pytest.mark.parametrize("said", [None, [1], {}, [None], [{"vmid": 7}], [{"vmid": 104, "status": "running", "node": ["h1"]}]])
def test_a_cluster_that_does_not_name_the_guest_has_it_nowhere(plan: Plan, said: Any) -> None:
    assert Proxmox(Said(said), {plan.steps[0].guest: "104"}).where(plan.steps[0], run_command) is None


def test_tools_answer_in_one_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert run_command(["sh", "-c", "echo $LC_ALL"], None) == "C.UTF-8\n"
    assert run_command(["cat"], "text") == "text"
    with pytest.raises(ApplyError, match="none cannot be started"):
        run_command(["none"], None)
