"""Commands and manifests are taken by the platforms' own parsers."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.kubevirt import KubeVirt
from ksmith_fleet.apply.libvirt import Libvirt
from ksmith_fleet.apply.openstack import OpenStack
from ksmith_fleet.apply.run import run_command
from ksmith_fleet.plan_file import Step

STEP = Step(1, "shop_web-1", "6695eb01-f6a4-8304-79aa-97f2502e193f", "qemu", "h1", "h2", 1 << 30, 0, False)


@pytest.mark.skipif(shutil.which("virsh") is None, reason="virsh is not here")
def test_virsh_takes_the_options_of_a_move() -> None:
    libvirt = Libvirt(template="test:///default", options=["--copy-storage-all"])

    def ask(*more: str) -> str:
        (action,) = libvirt.actions(replace(STEP, guest="none", guest_id="qemu/none"))
        return subprocess.run([*action.argv, *more], capture_output=True, text=True, check=False).stderr

    # The options are taken, and only then is the guest looked for. With a guest that is there, virsh waits for ever where
    # libvirt's driver for tests refuses before virsh begins to wait.
    assert ask() == "error: failed to get domain 'none'\n"
    assert "doesn't support option" in ask("--no-such-option")


@pytest.mark.skipif(shutil.which("virsh") is None, reason="virsh is not here")
def test_virsh_takes_the_questions_before_a_move() -> None:
    asked: list[str] = []
    devices = "<devices><disk><source pool='default-pool'/></disk></devices>"
    domain = f"<domain type='kvm'><os><type arch='x86_64' machine='q35'/></os><cpu><model>qemu64</model></cpu>{devices}</domain>"

    def ask(argv: Sequence[str], stdin: str | None) -> str:
        asked.append(argv[3])
        try:
            said = run_command(argv, stdin)
        except ApplyError as error:
            # The driver for tests has neither answer. A wrong option would be refused before that is noticed.
            assert "this function is not supported by the connection driver" in str(error)
            raise
        return domain if argv[3] == "dumpxml" else said

    libvirt = Libvirt(template="test:///default")
    assert libvirt.obstacle(STEP, ask) is None
    assert asked == ["dumpxml", "pool-list", "domcapabilities", "hypervisor-cpu-compare"]


@pytest.mark.platforms
def test_openstack_takes_the_commands() -> None:
    from openstackclient.compute.v2 import hypervisor, server

    (action,) = OpenStack().actions(STEP)
    words = list(action.argv)
    assert words[:5] == ["openstack", "--os-compute-api-version", "2.30", "server", "migrate"]
    parser = server.MigrateServer(None, None).get_parser("openstack server migrate")
    said = parser.parse_args(words[5:])
    assert (said.live_migration, said.host, said.wait, said.server) == (True, "h2", True, STEP.guest_id)
    asked: list[list[str]] = []
    OpenStack().where(STEP, lambda argv, _: asked.append(list(argv)) or "h1")  # type: ignore[func-returns-value]
    shown = server.ShowServer(None, None).get_parser("openstack server show").parse_args(asked[0][3:])
    assert shown.server == STEP.guest_id and shown.formatter == "value"
    OpenStack().free_bytes("h2", lambda argv, _: asked.append(list(argv)) or "512")  # type: ignore[func-returns-value]
    assert asked[1][:5] == ["openstack", "--os-compute-api-version", "2.30", "hypervisor", "show"]
    room = hypervisor.ShowHypervisor(None, None).get_parser("openstack hypervisor show").parse_args(asked[1][5:])
    assert room.hypervisor == "h2" and room.columns == ["free_ram_mb"] and room.formatter == "value"
    with pytest.raises(SystemExit):
        parser.parse_args(["--no-such-option", STEP.guest_id])


@pytest.mark.platforms
def test_the_placement_plugin_takes_the_commands() -> None:
    from osc_placement.resources import allocation, inventory, resource_provider, usage

    asked: list[list[str]] = []

    def answer(argv: Sequence[str], stdin: str | None) -> str:
        asked.append(list(argv))
        return json.dumps([{"name": "h2", "uuid": "6695eb01-f6a4-8304-79aa-97f2502e193e"}] if "list" in argv and "--name" in argv else [])

    assert OpenStack().obstacle(STEP, answer) is None
    commands = (allocation.ShowAllocation, resource_provider.ListResourceProvider, usage.ShowUsage, inventory.ListInventory)
    for words, command in zip(asked, commands, strict=True):
        name = words[1:5] if words[3] != "list" else words[1:4]
        said = command(None, None).get_parser("openstack " + " ".join(name)).parse_args(words[1 + len(name) :])
        assert said.formatter == "json"


@pytest.mark.platforms
def test_kubevirt_has_each_field_of_the_manifest(tmp_path: Path) -> None:
    checker = tmp_path / "checker"
    subprocess.run(["go", "build", "-o", str(checker), "."], cwd=Path(__file__).parent / "kubevirt", check=True)

    def check(manifest: str) -> str:
        return subprocess.run([str(checker)], input=manifest, capture_output=True, text=True, check=False).stderr

    manifest = KubeVirt().manifest(STEP)
    assert check(manifest) == ""
    said = json.loads(manifest)
    assert said["metadata"]["namespace"] == "shop" and said["spec"]["vmiName"] == "web-1"
    for field in ("vmiName", "addedNodeSelector"):
        assert check(manifest.replace(field, "wrong")) != ""
    # The fields by which a failure is noticed.
    state = {"migrationUid": "uid-1", "failed": True, "failureReason": "x"}
    for kind in ("VirtualMachineInstance", "VirtualMachineInstanceMigration"):
        shown = said | {"kind": kind, "metadata": {"uid": "uid-1"}, "status": {"phase": "Failed", "migrationState": state}}
        if kind == "VirtualMachineInstance":
            del shown["spec"]
        assert check(json.dumps(shown)) == ""
        for field in ("migrationUid", "failed", "failureReason", "phase"):
            assert check(json.dumps(shown).replace(f'"{field}"', '"wrong"')) != ""
