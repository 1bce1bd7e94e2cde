"""KubeVirt: a `VirtualMachineInstanceMigration` for each move."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ksmith_fleet.apply.backend import Action, Run
from ksmith_fleet.plan_file import Step


@dataclass(frozen=True)
class KubeVirt:
    """A cluster with KubeVirt 1.5 or later, which takes a node selector for one migration."""

    namespace: str = "default"
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """The namespace of each guest by its name, if it is another."""

    def _place(self, step: Step) -> tuple[str, str]:
        """Gives namespace and name. libvirt inside a pod names its domain NAMESPACE_NAME."""
        given = self.namespaces.get(step.guest)
        if given is None and "_" in step.guest:
            space, _, name = step.guest.partition("_")
            return space, name
        return given or self.namespace, step.guest

    def manifest(self, step: Step) -> str:
        """Writes the manifest of a move, as JSON, which is YAML."""
        space, name = self._place(step)
        label = re.sub(r"[^a-z0-9-]+", "-", f"ksmith-{step.number}-{name}".lower())[:63].strip("-")
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
        """Gives the commands of a move: create it, and wait for its end."""
        space, _ = self._place(step)
        label = json.loads(self.manifest(step))["metadata"]["name"]
        wait = ["kubectl", "wait", "-n", space, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30m"]
        return [
            Action(["kubectl", "create", "-f", "-"], self.manifest(step)),
            Action([*wait, f"virtualmachineinstancemigration/{label}"]),
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
