"""Moves on Proxmox VE by its API, against a cluster that speaks the documented schema."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import problem, two_images
from proxmox_cluster import TOKEN, UUID, Cluster, Served, Vm, served
from urllib3.util import Retry

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.apply.proxmox import Proxmox
from ksmith_fleet.apply.proxmox_api import LOST, ProxmoxApi, read_token
from ksmith_fleet.apply.run import Runner, run_command
from ksmith_fleet.cli.main import main
from ksmith_fleet.plan_file import Plan, Step, make_plan, write_plan
from ksmith_fleet.planner import plan_new

QUICK = Retry(3, redirect=False, backoff_factor=0, allowed_methods={"GET"}, status_forcelist=LOST, raise_on_status=False)
NODES_RULE = {"rule": "near-disk", "type": "node-affinity", "resources": "vm:104,ct:9", "order": 1}


def step(number: int, name: str, source: str, target: str, uuid: str) -> Step:
    return Step(number, name, UUID + uuid, "qemu", source, target, 100 << 20, 0, False)


@pytest.fixture
def pve(tmp_path: Path) -> Iterator[Served]:
    guests = {
        104: Vm("web", "h1", UUID + "1"),
        105: Vm("web", "h1", UUID + "9"),
        106: Vm("db", "h2", UUID + "2"),
        107: Vm("mail", "h1", UUID + "8"),
    }
    with served(Cluster(guests), tmp_path) as found:
        yield found


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    two_images(tmp_path / "s")
    fleet, built, single = problem(tmp_path / "s")
    made = make_plan(fleet, built, single, plan_new(built.problem, 1))
    return replace(made, steps=[step(1, "web", "h1", "h2", "1"), step(2, "db", "h2", "h1", "2"), step(3, "mail", "h1", "h2", "3")])


def api(pve: Served, **more: Any) -> ProxmoxApi:
    trust: dict[str, Any] = {"ca_file": pve.ca_file, "retries": QUICK} | more
    return ProxmoxApi(pve.url, TOKEN, **trust)


def go(pve: Served, plan: Plan, path: Path, undo: bool = False, sleep: Any = None) -> list[str]:
    said: list[str] = []
    with closing(Journal(path / "j", plan)) as journal:
        backend = Proxmox(api(pve)).with_vmids(plan.steps)
        runner = Runner(plan, backend, journal, say=said.append, sleep=sleep or (lambda _: None), wait_s=20)
        runner.undo() if undo else runner.apply()
    return said


def nodes(pve: Served) -> list[str]:
    return [vm.node for vm in pve.cluster.guests.values()]


def test_guests_move_by_the_api_and_another_of_the_same_name_does_not(pve: Served, plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(ApplyError, match=r"2 moves were made, and 1 not:\n3\. mail: the VMID of mail is not known: give --id mail=VMID"):
        go(pve, plan, tmp_path)
    assert nodes(pve) == ["h2", "h1", "h1", "h1"]
    assert [one for one in pve.cluster.asked if one.startswith("POST")] == ["POST /nodes/h1/qemu/104/migrate", "POST /nodes/h2/qemu/106/migrate"]
    go(pve, plan, tmp_path, undo=True)
    assert nodes(pve) == ["h1", "h1", "h2", "h1"]


def test_a_guest_that_is_named_like_the_number_of_another_is_not_taken_for_it(pve: Served, plan: Plan, tmp_path: Path) -> None:
    pve.cluster.guests[104].name = "105"
    go(pve, replace(plan, steps=[step(1, "105", "h1", "h2", "1")]), tmp_path)
    assert nodes(pve) == ["h2", "h1", "h2", "h1"]
    found = Proxmox(api(pve)).with_vmids([step(1, "106", "h2", "h1", "2"), step(2, "107", "h1", "h2", "3")])
    assert found.vmids == {UUID + "2": "106"}, "a number with its UUID is the guest, and without it none"


def write(pve: Served, plan: Plan, directory: Path) -> list[str]:
    (directory / "token").write_text(TOKEN + "\n")
    (directory / "token").chmod(0o600)
    path = str(directory / "plan.json")
    write_plan(replace(plan, steps=plan.steps[:2]), path)
    return ["apply", path, "--on", "proxmox", "--api", pve.url, "--token-file", str(directory / "token"), "--settle", "0"]


def test_the_command_prints_and_runs_requests_and_says_the_token_nowhere(
    pve: Served, plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = write(pve, plan, tmp_path)
    assert main([*command, "--fingerprint", pve.fingerprint]) == 0
    out = capsys.readouterr().out
    assert "pvesh create /nodes/h1/qemu/104/migrate --target h2 --online 1\n" in out and nodes(pve)[0] == "h1"
    monkeypatch.setattr("ksmith_fleet.apply.run.ASK_ENDED_S", 0.0)
    assert main([*command, "--ca", pve.ca_file, "--run", "-vv"]) == 0
    said = capsys.readouterr()
    assert "2 moves made" in said.out and nodes(pve)[:3] == ["h2", "h1", "h1"]
    pve.cluster.guests[104].node = "h3"
    (tmp_path / "plan.json.journal").unlink()
    assert main([*command, "--ca", pve.ca_file, "--run", "-vv"]) == 1
    later = capsys.readouterr()
    assert TOKEN[-36:] not in out + said.out + said.err + later.out + later.err + repr(api(pve))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"checks": {"local_resources": ["hostpci0", "usb1"]}}, "it uses what h1 alone has: hostpci0, usb1"),
        ({"checks": {"local_disks": [{"volid": "local-lvm:vm-104-disk-0", "cdrom": 0}]}}, "its disks are on h1 alone: local-lvm:vm-104-disk-0"),
        (
            {"checks": {"not_allowed_nodes": {"h2": {"unavailable_storages": ["fast"]}}}},
            'Proxmox does not allow h2: {"unavailable_storages": ["fast"]}',
        ),
        (
            {"checks": {"not_allowed_nodes": {"h2": {"blocking-ha-resources": [{"sid": "vm:106", "cause": "resource-affinity"}]}}}},
            'Proxmox does not allow h2: {"blocking-ha-resources": [{"sid": "vm:106", "cause": "resource-affinity"}]}',
        ),
        ({"checks": {"dependent-ha-resources": ["vm:107"]}}, "HA would move vm:107 with it"),
        ({"cpu": "host,flags=+aes"}, "it has the CPU of its host, and h2 has another (Xeon 6430)"),
        ({"lock": "backup"}, "Proxmox does not let it go: VM is locked (backup)"),
        ({"fails": "migration aborted"}, "the migration of web has failed: migration aborted; its log is that of the task UPID:h1:"),
        ({"checks": {"local_disks": [{"volid": "local:iso/debian.iso", "cdrom": 1}]}}, None),
        ({"checks": {"not_allowed_nodes": {"h3": {}}}, "cpu": "EPYC-Rome"}, None),
        ({"fails": "WARNINGS: 1"}, None),
    ],
)
def test_a_guest_that_cannot_move_stays_with_the_reason_and_the_rest_goes_on(
    pve: Served, plan: Plan, tmp_path: Path, change: dict[str, Any], said: str | None
) -> None:
    pve.cluster.models["h2"] = "Xeon 6430"
    pve.cluster.guests[104] = replace(pve.cluster.guests[104], **change)
    plan = replace(plan, steps=[plan.steps[0], step(2, "db", "h2", "h3", "2")])
    if said is None:
        go(pve, plan, tmp_path)
    else:
        with pytest.raises(ApplyError, match=rf"1 moves were made, and 1 not:\n1\. web: {re.escape(said)}"):
            go(pve, plan, tmp_path)
    assert nodes(pve) == ["h1" if said else "h2", "h1", "h3", "h1"]


@pytest.mark.parametrize(
    ("rule", "ha", "said"),
    [
        ({"nodes": "h1,h3", "strict": 1}, {}, "the HA rule near-disk keeps it on h1, h3"),
        ({"nodes": "h1:2,h2:1"}, {}, "HA would bring it back to h1 by the rule near-disk"),
        ({"nodes": "h1"}, {"failback": 1}, "HA would bring it back to h1 by the rule near-disk"),
        ({"nodes": "h1"}, {"failback": 0}, None),
        ({"nodes": "h1", "strict": 1, "disable": 1}, {}, None),
        ({"nodes": "h1,h2:5", "strict": 1}, {}, None),
        ({"nodes": "h3"}, {}, None),
        ({"nodes": "h3", "strict": 1, "resources": "vm:106"}, {}, None),
        ({"nodes": "h1,h3", "strict": 1}, {"state": "ignored"}, None),
    ],
)
def test_a_rule_of_ha_that_would_undo_the_move_keeps_the_guest(
    pve: Served, plan: Plan, rule: dict[str, Any], ha: dict[str, Any], said: str | None
) -> None:
    pve.cluster.rules = [NODES_RULE | rule]
    backend = Proxmox(api(pve), {"web": "104"})
    pve.cluster.guests[104].ha = ha
    assert backend.obstacle(plan.steps[0], run_command) == said
    pve.cluster.version = 8
    assert backend.obstacle(plan.steps[0], run_command) is None, "Proxmox 8 has no rules"


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["started", "migrate", "migrate", "arrive"], None),
        (["started", "migrate", "started"], "the HA manager has not moved web: its state is started"),
        (["error"], "the HA manager has not moved web: its state is error"),
        (["started"], "after 20 s this still waits"),
    ],
)
def test_a_guest_of_the_ha_manager_is_awaited_after_its_task(
    pve: Served, plan: Plan, tmp_path: Path, states: list[str], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ksmith_fleet.apply.proxmox.MOST_S", 20.0)
    pve.cluster.guests[104].ha, pve.cluster.guests[104].hastate = {}, states
    plan = replace(plan, steps=plan.steps[:1])
    if said is None:
        go(pve, plan, tmp_path)
    else:
        with pytest.raises(ApplyError, match=said):
            go(pve, plan, tmp_path)
    assert nodes(pve)[0] == ("h1" if said else "h2")


def test_answers_that_are_lost_for_a_while_do_not_end_a_move(pve: Served, plan: Plan, tmp_path: Path) -> None:
    pve.cluster.looks = 4

    def lose(_: float) -> None:
        pve.cluster.lost = 2

    go(pve, replace(plan, steps=plan.steps[:1]), tmp_path, sleep=lose)
    assert nodes(pve)[0] == "h2"
    with pytest.raises(ApplyError, match="gave no answer to GET /cluster/resources: No route to host"):
        pve.cluster.lost = 100
        api(pve).get("/cluster/resources")


def test_an_interrupt_stops_the_task_and_the_guest_stays(pve: Served, plan: Plan, tmp_path: Path) -> None:
    pve.cluster.looks = 10

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(pve, plan, tmp_path, sleep=interrupt)
    assert pve.cluster.asked[-1].startswith("DELETE /nodes/h1/tasks/UPID%3Ah1%3A") and nodes(pve)[0] == "h1"


def test_a_target_without_room_is_not_moved_to(pve: Served, plan: Plan, tmp_path: Path) -> None:
    pve.cluster.free = 50 << 20
    with pytest.raises(ApplyError, match="h2 has 50 MiB free and web needs 100 MiB"):
        go(pve, replace(plan, steps=plan.steps[:1]), tmp_path)
    assert nodes(pve)[0] == "h1"


def test_a_node_that_cannot_be_trusted_is_sent_nothing(pve: Served, tmp_path: Path) -> None:
    wrong = pve.fingerprint.replace(pve.fingerprint[0], "0" if pve.fingerprint[0] != "0" else "1")
    (tmp_path / "empty").write_text("")
    for more in ({"ca_file": None}, {"fingerprint": wrong}, {"ca_file": str(tmp_path / "none")}, {"ca_file": str(tmp_path / "empty")}):
        with pytest.raises(ApplyError, match=r"cannot be trusted: .*--fingerprint SHA256"):
            api(pve, **more).get("/cluster/resources")
    with pytest.raises(ApplyError, match="cannot be trusted"):
        api(replace(pve, url=pve.url.replace("127.0.0.1", "localhost"))).get("/cluster/resources")
    assert pve.cluster.asked == []
    for url in ("http://127.0.0.1:8006", "https://ann:x@h1:8006", "https://h1:8006/else", "h1"):
        with pytest.raises(ApplyError, match="is no address of a Proxmox cluster"):
            ProxmoxApi(url, TOKEN)
    with pytest.raises(ApplyError, match="SHA-256"):
        ProxmoxApi(pve.url, TOKEN, fingerprint="AB:CD")


def test_a_token_is_read_from_a_file_of_its_owner_or_the_environment(
    pve: Served, plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = write(pve, plan, tmp_path)
    (tmp_path / "token").chmod(0o640)
    assert main(command) == 1
    assert "can be read by other users: chmod 600" in capsys.readouterr().err
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "token").write_text("hunter2")
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "has no API token of Proxmox: it is USER@REALM!NAME=SECRET" in said and "hunter2" not in said
    with pytest.raises(ApplyError, match="set PROXMOX_VE_API_TOKEN"):
        read_token(None, {})
    assert read_token(None, {"PROXMOX_VE_API_TOKEN": TOKEN}) == TOKEN
    with pytest.raises(ApplyError, match=r"invalid token value!; the token needs Sys\.Audit, VM\.Audit and VM\.Migrate"):
        replace(api(pve), token=TOKEN[:-1] + "0").get("/cluster/resources")
    monkeypatch.delenv("PROXMOX_VE_ENDPOINT", raising=False)
    assert main(["apply", command[1], "--on", "proxmox"]) == 1
    assert "Proxmox is asked by its API: give --api https://NODE:8006" in capsys.readouterr().err
