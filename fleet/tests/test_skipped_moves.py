"""A guest that cannot be moved stays, and the rest of the plan goes on as far as it does not reckon with that guest's leaving."""

import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import problem, two_images

from ksmith_fleet.apply.backend import ApplyError, Backend
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.apply.libvirt import Libvirt
from ksmith_fleet.apply.lock import lock_directory, locked_hosts
from ksmith_fleet.apply.openstack import OpenStack
from ksmith_fleet.apply.proxmox import Proxmox
from ksmith_fleet.apply.run import Runner, script
from ksmith_fleet.cli.main import main
from ksmith_fleet.plan_file import Plan, Step, make_plan, write_plan
from ksmith_fleet.planner import plan_new

BEGIN = {"id-a": "h1", "id-b": "h2", "id-c": "h3", "id-d": "h4"}
LIBVIRT = Libvirt(template="test://{host}")
UUID = "00000000-0000-4000-9000-00000000000"


class Virsh:
    """Hosts in memory. Some guests cannot be moved, and each host says what it has free."""

    def __init__(self, stuck: Sequence[str] = (), free: dict[str, int] | None = None) -> None:
        self.where, self.stuck, self.free = dict(BEGIN), stuck, free or {}

    def __call__(self, argv: Sequence[str], stdin: str | None) -> str:
        host = argv[2].removeprefix("test://")
        if argv[3] == "list":
            return "".join(f"{identity} name\n" for identity, at in self.where.items() if at == host)
        if argv[3] == "nodememstats":
            return f"free   :  {self.free.get(host, 1 << 40) // 1024} KiB\n"
        identity = argv[argv.index("--domain") + 1]
        if identity in self.stuck:
            raise ApplyError(f"{identity} has a device that is passed through")
        self.where[identity] = argv[argv.index("--desturi") + 1].removeprefix("test://")
        return ""


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


class Cluster:
    """A Proxmox cluster that answers pvesh and qm."""

    def __init__(self) -> None:
        self.models = {"h1": "EPYC 7302", "h2": "EPYC 7302"}
        self.guests: dict[int, dict[str, Any]] = {
            104: {"name": "web", "node": "h1", "uuid": UUID + "1"},
            105: {"name": "web", "node": "h1", "uuid": UUID + "9"},
            106: {"name": "db", "node": "h2", "uuid": UUID + "2"},
            107: {"name": "mail", "node": "h1", "uuid": UUID + "8"},
        }

    def __call__(self, argv: Sequence[str], stdin: str | None) -> str:
        words = list(argv[2:])
        if words[:3] == ["pvesh", "get", "/cluster/resources"]:
            shown = [{"vmid": number, "status": "running"} | {key: one[key] for key in ("name", "node")} for number, one in self.guests.items()]
            return json.dumps(shown)
        if words[:2] == ["pvesh", "get"] and words[2].endswith("/config"):
            one = self.guests[int(words[2].split("/")[-2])]
            return json.dumps({"smbios1": f"base64=1,uuid={one['uuid']}", "memory": "512", "cpu": one.get("cpu", "x86-64-v2-AES")})
        if words[:2] == ["pvesh", "get"] and words[2].endswith("/migrate"):
            assert words[3] == "--target"
            return json.dumps({"running": 1, "local_disks": [], "local_resources": []} | self.guests[int(words[2].split("/")[-2])].get("checks", {}))
        if words[:2] == ["pvesh", "get"]:
            return json.dumps({"cpuinfo": {"model": self.models[words[2].split("/")[2]]}, "memory": {"total": 1 << 40, "used": 0}})
        assert words[:2] == ["qm", "migrate"] and words[4:] == ["--online", "1"] and argv[1] == f"root@{self.guests[int(words[2])]['node']}"
        self.guests[int(words[2])]["node"] = words[3]
        return ""


def test_the_numbers_of_proxmox_are_those_of_the_guest_with_its_uuid(plan: Plan, tmp_path: Path) -> None:
    cluster = Cluster()
    names = {"web": ("h1", "h2", UUID + "1"), "db": ("h2", "h1", UUID + "2"), "mail": ("h1", "h2", UUID + "3")}
    steps = [replace(step(at, name, *two), guest_id=uuid) for at, (name, (*two, uuid)) in enumerate(names.items(), 1)]
    plan = replace(plan, steps=steps)
    backend: Backend = Proxmox().with_vmids(plan.steps, cluster)
    lines = [line for move in script(plan.steps, backend) for line in move.lines()]
    assert lines[1] == "ssh root@h1 qm migrate 104 h2 --online 1" and lines[3] == "ssh root@h2 qm migrate 106 h1 --online 1"
    assert lines[5].startswith("# it stays: the VMID of mail is not known: give --id mail=VMID")
    # Another guest is named mail, and it is not moved.
    with closing(Journal(tmp_path / "j", plan)) as journal, pytest.raises(ApplyError, match=r"3\. mail: the VMID of mail is not known"):
        Runner(plan, backend, journal, cluster, say=lambda _: None).apply()
    assert [one["node"] for one in cluster.guests.values()] == ["h2", "h1", "h1", "h1"]

    def refuse(argv: Sequence[str], stdin: str | None) -> str:
        raise AssertionError("all numbers are given")

    Proxmox({"web": "1", "db": "2", "mail": "3"}).with_vmids(plan.steps, refuse)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"checks": {"local_resources": ["hostpci0", "usb1"]}}, "it uses what h1 alone has: hostpci0, usb1"),
        ({"checks": {"local_disks": [{"volid": "local-lvm:vm-104-disk-0", "cdrom": 0}]}}, "its disks are on h1 alone: local-lvm:vm-104-disk-0"),
        (
            {"checks": {"not_allowed_nodes": {"h2": {"unavailable_storages": ["fast"]}}}},
            'Proxmox does not allow h2: {"unavailable_storages": ["fast"]}',
        ),
        ({"cpu": "host,flags=+aes"}, "it has the CPU of its host, and h2 has another (Xeon 6430)"),
        ({"checks": {"local_disks": [{"volid": "local:iso/debian.iso", "cdrom": 1}]}}, None),
        ({"checks": {"not_allowed_nodes": {"h3": {}}}, "cpu": "EPYC-Rome"}, None),
    ],
)
def test_what_keeps_a_guest_of_proxmox_is_known_before_its_move(plan: Plan, tmp_path: Path, changes: dict[str, Any], said: str | None) -> None:
    cluster = Cluster()
    cluster.models["h2"] = "Xeon 6430"
    cluster.guests[104] |= changes
    plan = replace(plan, steps=[replace(step(1, "web", "h1", "h2"), guest_id=UUID + "1")])
    with closing(Journal(tmp_path / "j", plan)) as journal:
        runner = Runner(plan, Proxmox({"web": "104"}), journal, cluster, say=lambda _: None)
        if said is None:
            assert runner.apply() == 1 and cluster.guests[104]["node"] == "h2"
        else:
            with pytest.raises(ApplyError, match=re.escape(f"1. web: {said}")):
                runner.apply()
            assert cluster.guests[104]["node"] == "h1" and journal.states == {}


def test_guests_with_the_cpu_of_their_host_move_between_equal_hosts() -> None:
    cluster = Cluster()
    cluster.guests[104]["cpu"] = "host"
    move = replace(step(1, "web", "h1", "h2"), guest_id=UUID + "1")
    assert Proxmox({"web": "104"}).obstacle(move, cluster) is None
    with pytest.raises(ApplyError, match="pvesh does not say whether web can be moved"):
        Proxmox({"web": "104"}).obstacle(move, lambda argv, _: "[]")
