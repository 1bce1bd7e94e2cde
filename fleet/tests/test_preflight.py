"""What keeps a guest where it is, is known before anything is begun: libvirt's and OpenStack's answers, as their tools give them."""

import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import problem, two_images

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.apply.libvirt import Libvirt
from ksmith_fleet.apply.openstack import OpenStack
from ksmith_fleet.apply.run import Runner
from ksmith_fleet.plan_file import Plan, Step, make_plan
from ksmith_fleet.planner import plan_new

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
STEP = Step(1, "web", UUID, "qemu", "h1", "h2", 1 << 20, 0, False)
MISSING = "error: invalid argument: the machine 'pc-q35-99.0' is not supported by emulator '/usr/bin/qemu-system-x86_64'"
FOREIGN = (
    "error: Failed to compare hypervisor CPU with /dev/stdin\nerror: the CPU is incompatible with host CPU: Host CPU does not provide "
    "required features: vme, pcid"
)
UNKNOWN = "error: Failed to compare hypervisor CPU with /dev/stdin\nerror: internal error: Unknown CPU model SapphireRapids"
LACKS = "error: this function is not supported by the connection driver: virConnectCompareHypervisorCPU"
HOST_CPU = "<cpu mode='host-passthrough'/>"
MODEL = "<cpu mode='custom' match='exact'><model>EPYC-Milan</model></cpu>"


def domain(devices: str = "", cpu: str = "") -> str:
    machine = "<os><type arch='x86_64' machine='pc-q35-8.2'>hvm</type></os>"
    return f"<domain type='kvm' id='3'><name>web</name>{machine}{cpu}<devices><emulator>/usr/bin/kvm</emulator>{devices}</devices></domain>"


class Virsh:
    """Two hosts with their answers, and a guest that moves if it is let."""

    def __init__(self, xml: str, said: dict[str, str] | None = None, models: Sequence[str] = ("EPYC", "EPYC"), pools: str = "") -> None:
        self.xml, self.said, self.models, self.pools = xml, said or {}, dict(zip(("h1", "h2"), models, strict=True)), pools
        self.asked: list[list[str]] = []
        self.host = "h1"

    def __call__(self, argv: Sequence[str], stdin: str | None) -> str:
        at, words = argv[2].removeprefix("test://"), list(argv[3:])
        self.asked.append(words)
        if words[0] in self.said:
            assert at == "h2", "the target is asked"
            raise ApplyError(f"{' '.join(argv)} failed: {self.said[words[0]]}")
        answers = {
            "list": f"{UUID} web\n" if at == self.host else "",
            "dumpxml": self.xml,
            "nodememstats": "free : 99999999 KiB\n",
            "pool-list": self.pools,
            "capabilities": f"<capabilities><host><cpu><model>{self.models[at]}</model><feature name='x'/></cpu></host></capabilities>",
        }
        if words[0] == "hypervisor-cpu-compare":
            assert stdin is not None and re.match(r"<cpu mode=.custom. match=.exact.><model>EPYC-Milan", stdin) and words[-1] == "/dev/stdin"
        if words[0] == "migrate":
            self.host = words[-1].removeprefix("test://")
        return answers.get(words[0], "")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    two_images(tmp_path / "s")
    fleet, built, single = problem(tmp_path / "s")
    return replace(make_plan(fleet, built, single, plan_new(built.problem, 1)), steps=[STEP])


PCI = "<hostdev mode='subsystem' type='pci'>{}</hostdev>"
TEAMED = "<teaming type='transient' persistent='ua-0'/>"


@pytest.mark.parametrize(
    ("virsh", "options", "said"),
    [
        (Virsh(domain(PCI.format(""))), [], "it has devices of its host passed through: pci"),
        (Virsh(domain("<interface type='hostdev'/>")), [], "it has devices of its host passed through: network"),
        (Virsh(domain(PCI.format(TEAMED) + f"<interface type='hostdev'>{TEAMED}</interface>")), [], None),
        (Virsh(domain("<disk type='volume'><source pool='fast' volume='a'/></disk>"), pools=" slow\n"), [], "h2 has no active storage pool fast"),
        (Virsh(domain("<disk type='volume'><source pool='fast' volume='a'/></disk>"), pools=" fast \n\n"), [], None),
        (Virsh(domain("<disk type='volume'><source pool='fast' volume='a'/></disk>")), ["--copy-storage-all"], None),
        (Virsh(domain(), {"domcapabilities": MISSING}), [], "h2 cannot run it: invalid argument: the machine 'pc-q35-99.0' is not supported by"),
        (Virsh(domain(), {"domcapabilities": LACKS}), [], None),
        (
            Virsh(domain(cpu=MODEL), {"hypervisor-cpu-compare": FOREIGN}),
            [],
            "h2 has no such CPU: the CPU is incompatible with host CPU: Host CPU does",
        ),
        (Virsh(domain(cpu=MODEL), {"hypervisor-cpu-compare": UNKNOWN}), [], "h2 has no such CPU: Unknown CPU model SapphireRapids"),
        (Virsh(domain(cpu=MODEL), {"hypervisor-cpu-compare": LACKS}), [], None),
        (Virsh(domain(cpu=MODEL)), [], None),
        (Virsh(domain(cpu=HOST_CPU), models=("EPYC", "Xeon")), [], "it has the CPU of its host, and that of h2 is another: give it a CPU model"),
        (Virsh(domain(cpu=HOST_CPU)), [], None),
    ],
)
def test_libvirt_says_before_a_move_why_a_guest_stays(plan: Plan, tmp_path: Path, virsh: Virsh, options: list[str], said: str | None) -> None:
    backend = Libvirt(template="test://{host}", options=options)
    with closing(Journal(tmp_path / "j", plan)) as journal:
        runner = Runner(plan, backend, journal, virsh, say=lambda _: None)
        if said is None:
            assert runner.apply() == 1 and virsh.host == "h2"
            return
        with pytest.raises(ApplyError, match=re.escape(f"1. web: {said}")):
            runner.apply()
        assert journal.states == {} and virsh.host == "h1" and not any(words[0] == "migrate" for words in virsh.asked)


@pytest.mark.parametrize("text", ["", "<domain", "no XML"])
def test_a_host_that_gives_no_domain_stops_the_apply(text: str) -> None:
    with pytest.raises(ApplyError, match="virsh gave no XML of web"):
        Libvirt(template="test://{host}").obstacle(STEP, lambda argv, _: text)


class Placement:
    """The placement service by `osc-placement`, with one class of resources short."""

    def __init__(self, **inventory: Any) -> None:
        self.inventory = {"VCPU": {"total": 8, "reserved": 0, "allocation_ratio": 4.0}} | inventory
        self.used = {"VCPU": 20, "MEMORY_MB": 15_000}

    def __call__(self, argv: Sequence[str], stdin: str | None) -> str:
        words = list(argv[3:-2])
        assert argv[:3] == ["openstack", "resource", "provider"] and argv[-2:] == ["-f", "json"]
        if words == ["allocation", "show", UUID]:
            return json.dumps([{"resource_provider": "p-h1", "resources": {"VCPU": 4, "MEMORY_MB": 1024}}])
        if words == ["list", "--name", "h2"]:
            return json.dumps([{"uuid": "p-h2", "name": "h2", "generation": 3}])
        if words == ["usage", "show", "p-h2"]:
            return json.dumps([{"resource_class": key, "usage": value} for key, value in self.used.items()])
        assert words == ["inventory", "list", "p-h2"]
        return json.dumps([{"resource_class": key} | value for key, value in self.inventory.items()])


@pytest.mark.parametrize(
    ("memory", "vcpu", "said"),
    [
        ({"total": 16_384, "reserved": 512, "allocation_ratio": 1.5}, 20, None),
        ({"total": 16_384, "reserved": 0, "allocation_ratio": 1.0}, 28, None),
        ({"total": 16_384, "reserved": 512, "allocation_ratio": 1.0}, 20, "the placement service has 872 MEMORY_MB left on h2, and it needs 1024"),
        ({"total": 8192, "reserved": 0, "allocation_ratio": 1.0}, 20, "the placement service has 0 MEMORY_MB left on h2, and it needs 1024"),
        ({"total": 16_384, "reserved": 0, "allocation_ratio": 1.5}, 29, "the placement service has 3 VCPU left on h2, and it needs 4"),
        (None, 20, "h2 has no MEMORY_MB"),
    ],
)
def test_openstack_is_asked_for_what_its_scheduler_gives(memory: dict[str, Any] | None, vcpu: int, said: str | None) -> None:
    placement = Placement(**({} if memory is None else {"MEMORY_MB": memory}))
    placement.used["VCPU"] = vcpu
    assert OpenStack().obstacle(STEP, placement) == said


def test_a_placement_service_that_cannot_be_asked_stops_the_apply() -> None:
    def fail(argv: Sequence[str], stdin: str | None) -> str:
        raise ApplyError("openstack: 'resource provider allocation show' is not an openstack command. See 'openstack --help'.")

    with pytest.raises(ApplyError, match="pip install osc-placement"):
        OpenStack().obstacle(STEP, fail)
    for text in ("{}", "[3]", '[{"resources": {"VCPU": "many"}}]'):
        with pytest.raises(ApplyError, match="the placement service gave"):
            OpenStack().obstacle(STEP, lambda argv, _, text=text: text)  # type: ignore[misc]
    assert OpenStack().obstacle(STEP, lambda argv, _: "[]") == "the placement service does not know h2"
