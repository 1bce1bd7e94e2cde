"""Proxmox VE: `pvesh create /nodes/NODE/qemu/VMID/migrate`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ksmith_fleet.apply.backend import Action, ApplyError, Run, json_of, part
from ksmith_fleet.plan_file import Step


@dataclass(frozen=True)
class Proxmox:
    """A Proxmox cluster, asked on one of its nodes."""

    vmids: Mapping[str, str] = field(default_factory=dict)
    """The number of each guest by its name, for guests with names that are no numbers."""

    def vmid(self, step: Step) -> str:
        """Gives the number of the guest."""
        found = self.vmids.get(step.guest) or self.vmids.get(step.guest_id) or step.guest
        if not (found.isascii() and found.isdigit()):
            raise ApplyError(f"the VMID of {step.guest} is not known: give --id {step.guest}=VMID")
        return found

    def actions(self, step: Step) -> list[Action]:
        """Gives the command of a move. `qm migrate` on the source waits until the move has ended."""
        return [Action(["ssh", f"root@{step.source}", "qm", "migrate", self.vmid(step), step.target, "--online", "1"])]

    def where(self, step: Step, run: Run) -> str | None:
        """Asks the cluster for its resources."""
        resources = ["pvesh", "get", "/cluster/resources", "--type", "vm", "--output-format", "json"]
        said = json_of(run(["ssh", f"root@{step.source}", *resources], None), "pvesh")
        for guest in said if isinstance(said, list) else []:
            if isinstance(guest, dict) and str(guest.get("vmid")) == self.vmid(step) and guest.get("status") == "running":
                node = str(guest.get("node"))
                return node if node in (step.source, step.target) else None
        return None

    def free_bytes(self, host: str, run: Run) -> int | None:
        """Asks the node for its memory."""
        words = ["ssh", f"root@{host}", "pvesh", "get", f"/nodes/{host}/status", "--output-format", "json"]
        memory = part(json_of(run(words, None), "pvesh"), "memory")
        total, used = memory.get("total"), memory.get("used")
        if not isinstance(total, int) or not isinstance(used, int):
            raise ApplyError(f"pvesh does not say how much memory {host} has free")
        return total - used
