"""KubeVirt: a `VirtualMachineInstanceMigration` for each move."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ksmith_fleet.apply.backend import Action, ApplyError, Run
from ksmith_fleet.plan_file import Step

KIND = "virtualmachineinstancemigrations.kubevirt.io"
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
        space, _ = self._place(step)
        label = json.loads(self.manifest(step))["metadata"]["name"]
        wait = ["kubectl", "wait", "-n", space, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30m"]
        return [
            Action(["kubectl", "delete", "-n", space, "--ignore-not-found", f"{KIND}/{label}"]),
            Action(["kubectl", "create", "--validate=strict", "-f", "-"], self.manifest(step)),
            Action([*wait, f"{KIND}/{label}"]),
        ]

    def where(self, step: Step, run: Run) -> str | None:
        """Asks for the guest's node."""
        space, name = self._place(step)
        node = run(["kubectl", "get", "vmi", "-n", space, name, "-o", "jsonpath={.status.nodeName}"], None).strip()
        return node if node in (step.source, step.target) else None

    def free_bytes(self, host: str, run: Run) -> int | None:
        """Kubernetes does not say what a node has free."""
        del host, run
        return None
