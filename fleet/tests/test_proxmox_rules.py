"""Plans keep what a Proxmox cluster demands: HA's rules on nodes and on guests, and storage and devices that some nodes have."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import guest, put
from proxmox_cluster import TOKEN, UUID, Cluster, Served, Vm, served

from ksmith_fleet.cli.main import main
from ksmith_fleet.simulate.write import MadeHost

NAMES = "abcdef"
VMID = {name: 101 + at for at, name in enumerate(NAMES)}


@pytest.fixture
def pve(tmp_path: Path) -> Iterator[Served]:
    """Serves h1 with a, c, e and d, and h2 with b and f. Of the image of a, c and e is b, too, and d has that of f."""
    image = {"a": 1, "b": 1, "c": 1, "d": 2, "e": 1, "f": 2}
    where = {name: "h1" if name in "aced" else "h2" for name in NAMES}
    for host in ("h1", "h2", "h3"):
        made = [guest(n, [(image[n], 1000), (100 + ord(n), 100)]) for n in NAMES if where[n] == host]
        put(tmp_path / "s", MadeHost(host, [replace(one, id=UUID + str(NAMES.index(one.name))) for one in made], 1 << 30))
    guests = {VMID[n]: Vm(n, where[n], UUID + str(NAMES.index(n))) for n in NAMES}
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with served(Cluster(guests), tmp_path) as found:
        yield found


def moves(pve: Served, directory: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, tuple[str, str]]:
    """Plans, and gives the first source and last target of each guest that moves."""
    trust = ["--on", "proxmox", "--api", pve.url, "--token-file", str(directory / "token"), "--ca", pve.ca_file]
    assert main(["plan", "new", str(directory / "s"), "--seconds", "60", "--json", *trust, *more]) == 0
    steps: dict[str, tuple[str, str]] = {}
    for step in json.loads(capsys.readouterr().out)["steps"]:
        steps[step["guest"]] = (steps.get(step["guest"], (step["source"],))[0], step["target"])
    return steps


FREE = {"b": ("h2", "h1"), "f": ("h2", "h1")}


def test_without_rules_guests_of_an_image_come_together(pve: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert moves(pve, tmp_path, capsys) == FREE


@pytest.mark.parametrize(
    ("vm", "change"),
    [
        ("b", {"checks": {"local_resources": ["hostpci0"]}}),
        ("b", {"checks": {"local_disks": [{"volid": "local-lvm:vm-102-disk-0", "cdrom": 0}]}}),
        ("b", {"checks": {"not_allowed_nodes": {"h1": {"unavailable_storages": ["fast"]}, "h3": {"unavailable_storages": ["fast"]}}}}),
        ("b", {"lock": "backup"}),
        ("b", {"uuid": UUID + "9"}),
    ],
)
def test_a_guest_that_the_cluster_would_not_let_go_is_in_no_plan(
    pve: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], vm: str, change: dict[str, Any]
) -> None:
    pve.cluster.guests[VMID[vm]] = replace(pve.cluster.guests[VMID[vm]], **change)
    found = moves(pve, tmp_path, capsys)
    assert vm not in found and found["f"] == FREE["f"], "all others go on"


@pytest.mark.parametrize(
    ("rule", "entry", "is_bound"),
    [
        ({"nodes": "h2,h3", "strict": 1}, {}, True),
        ({"nodes": "h2:2,h1:1"}, {}, True),
        ({"nodes": "h2:2,h1:1"}, {"failback": 0}, False),
        ({"nodes": "h2,h3", "strict": 1, "disable": 1}, {}, False),
        ({"nodes": "h1,h2", "strict": 1}, {}, False),
        ({"nodes": "h2,h3", "strict": 1}, {"state": "ignored"}, False),
        ({"nodes": "h2,h3", "strict": 1}, None, False),
    ],
)
def test_a_guest_is_planned_onto_no_node_from_which_ha_brings_it_back(
    pve: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], rule: dict[str, Any], entry: dict[str, Any] | None, is_bound: bool
) -> None:
    pve.cluster.rules = [{"rule": "near", "type": "node-affinity", "resources": "vm:102", "order": 1} | rule]
    pve.cluster.guests[102].ha = entry
    found = moves(pve, tmp_path, capsys)
    assert (found.get("b", ("", ""))[1] != "h1") == is_bound and found["f"] == FREE["f"]


def test_the_groups_of_proxmox_8_bind_as_rules_do(pve: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pve.cluster.version = 8
    pve.cluster.guests[102].ha = {"group": "left"}
    for more, is_bound in (({"restricted": 1}, True), ({}, True), ({"nofailback": 1}, False)):
        pve.cluster.groups = [{"group": "left", "nodes": "h2,h3"} | more, {"group": "other", "nodes": "h3", "restricted": 1}]
        assert (moves(pve, tmp_path, capsys).get("b", ("", ""))[1] != "h1") == is_bound, more


def test_guests_that_ha_keeps_apart_are_planned_onto_no_one_node(pve: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pve.cluster.rules = [{"rule": "apart", "type": "resource-affinity", "affinity": "negative", "resources": "vm:101,vm:102"}]
    pve.cluster.guests[101].ha = pve.cluster.guests[102].ha = {}
    # It is refused only while the other guest is there.
    pve.cluster.guests[102].checks = {"not_allowed_nodes": {"h1": {"blocking-ha-resources": [{"sid": "vm:101", "cause": "resource-affinity"}]}}}
    found = moves(pve, tmp_path, capsys)
    ends = {name: found.get(name, ("", "h1" if name == "a" else "h2"))[1] for name in "ab"}
    assert ends["a"] != ends["b"] and found != FREE


def test_guests_that_ha_would_move_with_others_stay(pve: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pve.cluster.rules = [{"rule": "pair", "type": "resource-affinity", "affinity": "positive", "resources": "vm:102,vm:106"}]
    pve.cluster.guests[102].ha = pve.cluster.guests[106].ha = {}
    found = moves(pve, tmp_path, capsys)
    assert found == {"d": ("h1", "h2")}


def test_the_operators_rules_hold_besides(pve: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules.toml").write_text('[guests.f]\nfixed = true\n[guests.b]\nhosts = ["h2", "h3"]\n')
    found = moves(pve, tmp_path, capsys, "--rules", str(tmp_path / "rules.toml"))
    assert "f" not in found and found.get("b", ("", "h2"))[1] != "h1"


def test_a_cluster_that_cannot_be_asked_ends_the_plan(
    pve: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROXMOX_VE_ENDPOINT", "PROXMOX_VE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert main(["plan", "new", str(tmp_path / "s"), "--on", "proxmox"]) == 1
    assert "give --api https://NODE:8006" in capsys.readouterr().err
    assert main(["plan", "new", str(tmp_path / "s"), "--on", "proxmox", "--api", pve.url]) == 1
    assert "Proxmox needs an API token" in capsys.readouterr().err
