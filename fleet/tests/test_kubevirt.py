"""Migrations in KubeVirt are watched to their end, on a cluster in memory that answers kubectl."""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import problem, two_images

from ksmith_fleet.apply.backend import ApplyError
from ksmith_fleet.apply.journal import Journal
from ksmith_fleet.apply.kubevirt import KIND, LOST_ANSWERS, MOST_S, KubeVirt
from ksmith_fleet.apply.run import ASK_ENDED_S, Runner
from ksmith_fleet.plan_file import Plan, make_plan
from ksmith_fleet.planner import plan_new


class Cluster:
    """Migrations that stay until they are deleted, each with its states: one more is shown at each question."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.node, self.made, self.asked, self.unreachable = "h1", 0, 0, 0
        self.guest: dict[str, Any] = {}
        self.conditions: list[dict[str, Any]] = []
        self.phases = ["Scheduling", "Running", "Succeeded"]
        self.reason: str | None = None
        self.fails_in_guest_first = False

    def __call__(self, argv: Sequence[str], stdin: str | None) -> str:
        if argv[1] == "delete":
            assert "--ignore-not-found" in argv
            self.objects.pop(argv[-1], None)
        elif argv[1] == "create":
            assert stdin is not None
            said = json.loads(stdin)
            name = f"{KIND}/{said['metadata']['name']}"
            if name in self.objects:
                raise ApplyError("AlreadyExists")
            self.made += 1
            said["metadata"]["uid"], said["status"] = f"uid-{self.made}", {}
            self.objects[name], self.asked = said, 0
        elif argv[1] == "get" and argv[-1] == "jsonpath={.status.nodeName}":
            return self.node
        elif argv[1] == "get" and argv[-1] == "jsonpath={.status.conditions}":
            return json.dumps(self.conditions) if self.conditions else ""
        elif argv[1] == "get" and argv[-1] == "json":
            return self.show(argv)
        else:
            raise AssertionError(f"this wait would not end when a move fails: {argv}")
        return ""

    def show(self, argv: Sequence[str]) -> str:
        if self.unreachable:
            self.unreachable -= 1
            raise ApplyError("the connection to the server was refused")
        if "vmi" in argv:
            return json.dumps({"kind": "VirtualMachineInstance", "status": {"nodeName": self.node, "migrationState": self.guest}})
        said = self.objects[argv[-3]]
        phase = self.phases[min(self.asked, len(self.phases) - 1)]
        self.asked += 1
        said["status"] = {"phase": phase}
        if phase == "Succeeded":
            self.node = said["spec"]["addedNodeSelector"]["kubernetes.io/hostname"]
            self.guest = {"migrationUid": said["metadata"]["uid"], "completed": True}
        elif phase == "Failed" or (self.fails_in_guest_first and phase == "Running"):
            self.guest = {"migrationUid": said["metadata"]["uid"], "completed": True, "failed": True}
            if self.reason:
                self.guest["failureReason"] = self.reason
        return json.dumps(said)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    two_images(tmp_path)
    fleet, built, single = problem(tmp_path)
    made = make_plan(fleet, built, single, plan_new(built.problem, 1))
    return replace(made, steps=[replace(made.steps[0], guest="web", source="h1", target="h2")])


def go(plan: Plan, directory: Path, cluster: Cluster, do: Callable[[Runner], int] = Runner.apply) -> list[float]:
    """Runs the plan, and gives all pauses."""
    slept: list[float] = []
    with closing(Journal(directory / "j", plan)) as journal:
        do(Runner(plan, KubeVirt(), journal, cluster, say=lambda _: None, sleep=slept.append))
    return slept


def test_a_migration_is_waited_for(plan: Plan, tmp_path: Path) -> None:
    cluster = Cluster()
    assert go(plan, tmp_path, cluster) == [ASK_ENDED_S] * 2 and cluster.node == "h2"


def test_a_guest_that_kubevirt_cannot_move_stays_with_its_reason(plan: Plan, tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.conditions = [{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "PVC web is not shared"}]
    with pytest.raises(ApplyError, match=r"1\. web: KubeVirt cannot move it: PVC web is not shared"):
        go(plan, tmp_path, cluster)
    assert cluster.made == 0
    cluster.conditions = [{"type": "LiveMigratable", "status": "True"}]
    assert go(plan, tmp_path, cluster) and cluster.node == "h2"


def test_a_migration_is_made_again_after_a_failure_and_for_an_undo(plan: Plan, tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.phases = ["Running", "Failed"]
    with pytest.raises(ApplyError, match="ksmith-1-web of web has failed: KubeVirt gives no reason"):
        go(plan, tmp_path, cluster)
    assert cluster.asked == 2 and cluster.node == "h1"
    # The guest still has the state of the migration that failed, and the new one is not taken for it.
    cluster.phases = ["Scheduling", "Running", "Succeeded"]
    assert go(plan, tmp_path, cluster) and cluster.node == "h2" and cluster.made == 2
    assert go(plan, tmp_path, cluster, Runner.undo) and cluster.node == "h1"


def test_a_failure_that_only_the_guest_has_is_noticed_at_once(plan: Plan, tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.fails_in_guest_first, cluster.reason = True, "client socket is closed"
    cluster.phases = ["Running"]
    with pytest.raises(ApplyError, match="has failed: client socket is closed"):
        go(plan, tmp_path, cluster)
    assert cluster.asked == 1


def test_a_migration_that_never_ends_is_given_up(plan: Plan, tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.phases = ["Pending"]
    with pytest.raises(ApplyError, match="after 1800 s this still waits: kubectl wait -n default"):
        go(plan, tmp_path, cluster)
    assert cluster.asked == MOST_S / ASK_ENDED_S + 1


@pytest.mark.parametrize(("lost", "goes_on"), [(LOST_ANSWERS - 1, True), (LOST_ANSWERS, False)])
def test_a_server_that_is_away_for_a_moment_breaks_no_move_off(plan: Plan, tmp_path: Path, lost: int, goes_on: bool) -> None:
    cluster = Cluster()
    cluster.unreachable = lost
    if goes_on:
        assert len(go(plan, tmp_path, cluster)) == lost + 2
    else:
        with pytest.raises(ApplyError, match="refused"):
            go(plan, tmp_path, cluster)
    assert cluster.made == 1


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "3", '{"status": 7}', '{"status": {"phase": ["Failed"]}}', '{"status": {"migrationState": "x"}}']
)
def test_answers_of_another_form_say_nothing(plan: Plan, text: str) -> None:
    ask = KubeVirt().actions(plan.steps[0])[-1].ended
    assert ask is not None and not ask(lambda argv, stdin: text)
