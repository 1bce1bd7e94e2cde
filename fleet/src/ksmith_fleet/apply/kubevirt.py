"""KubeVirt: a `VirtualMachineInstanceMigration` for each move."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ksmith_fleet.apply.backend import Action, ApplyError, Run, json_of, part
from ksmith_fleet.plan_file import Step

KIND = "virtualmachineinstancemigrations.kubevirt.io"
MOST_S = 1800.0
"""The longest time that a migration may take."""
LOST_ANSWERS = 5
"""Questions in a row without an answer after which the wait for a migration ends."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""Names in Kubernetes. None can be taken for an option of kubectl."""


@dataclass(frozen=True)
class KubeVirt:
    """A cluster with KubeVirt 1.6 or later, which takes a node selector for one migration."""

    namespace: str = "default"
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """The namespace of each guest by its name, if it is another."""

    def _place(self, step: Step) -> tuple[str, str]:
        """Gives namespace and name. libvirt inside a pod names its domain NAMESPACE_NAME."""
        space, name = self.namespaces.get(step.guest) or self.namespace, step.guest
        if step.guest not in self.namespaces and "_" in step.guest:
            space, _, name = step.guest.partition("_")
        if not _NAME.fullmatch(space) or not _NAME.fullmatch(name):
            raise ApplyError(f"{step.guest} is no name of a virtual machine instance, or its namespace {space} is none")
        return space, name

    def manifest(self, step: Step) -> str:
        """Writes the manifest of a move, as JSON, which is YAML."""
        space, name = self._place(step)
        label = f"ksmith-{step.number}-{name}"[:63].rstrip("-.")
        return (
            json.dumps(
                {
                    "apiVersion": "kubevirt.io/v1",
                    "kind": "VirtualMachineInstanceMigration",
                    "metadata": {"name": label, "namespace": space},
                    "spec": {"vmiName": name, "addedNodeSelector": {"kubernetes.io/hostname": step.target}},
                },
                indent=2,
            )
            + "\n"
        )

    def actions(self, step: Step) -> list[Action]:
        """Gives the commands of a move: create it, and wait for its end.

        A migration of the same name is one of an apply that was interrupted, that failed or that is undone now. It is deleted
        first, which also breaks it off if it has not ended. An older KubeVirt would drop the field for the target and move the guest anywhere:
        strict validation refuses that.
        """
        space, name = self._place(step)
        label = json.loads(self.manifest(step))["metadata"]["name"]
        wait = ["kubectl", "wait", "-n", space, "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={MOST_S / 60:.0f}m"]
        return [
            Action(["kubectl", "delete", "-n", space, "--ignore-not-found", f"{KIND}/{label}"]),
            Action(["kubectl", "create", "--validate=strict", "-f", "-"], self.manifest(step)),
            Action([*wait, f"{KIND}/{label}"], ended=_ended(space, name, label), most_s=MOST_S),
        ]

    def where(self, step: Step, run: Run) -> str | None:
        """Asks for the guest's node."""
        space, name = self._place(step)
        node = run(["kubectl", "get", "vmi", "-n", space, name, "-o", "jsonpath={.status.nodeName}"], None).strip()
        return node if node in (step.source, step.target) else None

    def obstacle(self, step: Step, run: Run) -> str | None:
        """Asks for the guest's condition `LiveMigratable`: disks that are not shared and devices that are passed through make it false."""
        space, name = self._place(step)
        said = run(["kubectl", "get", "vmi", "-n", space, name, "-o", "jsonpath={.status.conditions}"], None)
        conditions = json_of(said, "kubectl") if said.strip() else []
        for one in conditions if isinstance(conditions, list) else []:
            if isinstance(one, dict) and one.get("type") == "LiveMigratable" and one.get("status") == "False":
                return f"KubeVirt cannot move it: {one.get('message') or one.get('reason')}"
        return None

    def free_bytes(self, host: str, run: Run) -> int | None:
        """Kubernetes does not say what a node has free."""
        del host, run
        return None


def _ended(space: str, name: str, label: str) -> Callable[[Run], bool]:
    """Makes the question whether a migration has ended. A failure is said by the migration, and before that by the guest."""
    lost = 0

    def ask(run: Run) -> bool:
        nonlocal lost
        try:
            migration = json_of(run(["kubectl", "get", "-n", space, f"{KIND}/{label}", "-o", "json"], None), "kubectl")
            guest = json_of(run(["kubectl", "get", "-n", space, "vmi", name, "-o", "json"], None), "kubectl")
        except ApplyError:
            lost += 1
            if lost == LOST_ANSWERS:
                raise
            return False
        lost = 0
        status = part(migration, "status")
        if status.get("phase") == "Succeeded":
            return True
        state = part(part(guest, "status"), "migrationState")
        # The guest has the state of its last migration, which may be an earlier one.
        is_own = bool(state) and state.get("migrationUid") == part(migration, "metadata").get("uid")
        if status.get("phase") == "Failed" or (is_own and state.get("failed") is True):
            reason = part(status, "migrationState").get("failureReason") or (is_own and state.get("failureReason"))
            raise ApplyError(f"the migration {label} of {name} has failed: {reason or 'KubeVirt gives no reason'}")
        return False

    return ask
