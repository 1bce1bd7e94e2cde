"""Proxmox VE: `qm migrate VMID NODE` on the source."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ksmith_fleet.apply.backend import Action, ApplyError, Run, json_of, part
from ksmith_fleet.plan_file import Step

_UUID = re.compile(r"(?:^|,)uuid=([0-9a-fA-F-]{36})(?:,|$)")
"""The UUID in a guest's `smbios1`, which the hypervisor gives the guest and its sketch has."""


@dataclass(frozen=True)
class Proxmox:
    """A Proxmox cluster, asked on one of its nodes."""

    vmids: Mapping[str, str] = field(default_factory=dict)
    """The number of each guest by its name or id, for guests with names that are no numbers."""

    def known_vmid(self, step: Step) -> str | None:
        """Gives the number of the guest, if it needs no question."""
        found = self.vmids.get(step.guest) or self.vmids.get(step.guest_id) or step.guest
        return found if found.isascii() and found.isdigit() else None

    def vmid(self, step: Step) -> str:
        """Gives the number of the guest."""
        found = self.known_vmid(step)
        if found is None:
            raise ApplyError(f"the VMID of {step.guest} is not known: give --id {step.guest}=VMID")
        return found

    def with_vmids(self, steps: Sequence[Step], run: Run) -> "Proxmox":
        """Asks the cluster for the numbers of guests that are named otherwise. A guest that it has not, or has twice, stays without one."""
        strange = [step for step in steps if self.known_vmid(step) is None]
        if not strange:
            return self
        listed = _guests(strange[0].source, run)
        found = dict(self.vmids)
        for step in strange:
            same = [guest for guest in listed if guest.get("name") == step.guest and guest.get("node") in (step.source, step.target)]
            fits = [str(guest.get("vmid")) for guest in same if _is_guest(guest, step, run)]
            if len(fits) == 1:
                found[step.guest_id] = fits[0]
        return replace(self, vmids=found)

    def actions(self, step: Step) -> list[Action]:
        """Gives the command of a move. `qm migrate` on the source waits until the move has ended."""
        return [Action(["ssh", f"root@{step.source}", "qm", "migrate", self.vmid(step), step.target, "--online", "1"])]

    def where(self, step: Step, run: Run) -> str | None:
        """Asks the cluster for its resources. A guest without a known number is where the plan has it, and is not moved."""
        number = self.known_vmid(step)
        if number is None:
            return step.source
        for guest in _guests(step.source, run):
            if str(guest.get("vmid")) == number and guest.get("status") == "running":
                node = str(guest.get("node"))
                return node if node in (step.source, step.target) else None
        return None

    def obstacle(self, step: Step, run: Run) -> str | None:
        """Asks for the preconditions of a migration (`GET /nodes/NODE/qemu/VMID/migrate`), and compares CPUs where the guest has its host's."""
        guest = f"/nodes/{step.source}/qemu/{self.vmid(step)}"
        said = _get(step.source, f"{guest}/migrate", run, "--target", step.target)
        if not isinstance(said, dict):
            raise ApplyError(f"pvesh does not say whether {step.guest} can be moved")
        if devices := said.get("local_resources"):
            return f"it uses what {step.source} alone has: {_listed(devices)}"
        disks = [disk for disk in said.get("local_disks") or [] if not (isinstance(disk, dict) and disk.get("cdrom"))]
        if disks:
            return f"its disks are on {step.source} alone: {_listed(disks)}; move them to shared storage first"
        refused = part(said, "not_allowed_nodes")
        if step.target in refused:
            return f"Proxmox does not allow {step.target}: {json.dumps(refused[step.target])[:200]}"
        config = _get(step.source, f"{guest}/config", run)
        cpu = str(config.get("cpu", "")) if isinstance(config, dict) else ""
        if re.match(r"(cputype=)?host(,|$)", cpu):
            models = [part(_get(step.source, f"/nodes/{node}/status", run), "cpuinfo").get("model") for node in (step.source, step.target)]
            if models[0] != models[1]:
                return f"it has the CPU of its host, and {step.target} has another ({models[1]}): give it a CPU model that both have"
        return None

    def free_bytes(self, host: str, run: Run) -> int | None:
        """Asks the node for its memory."""
        memory = part(_get(host, f"/nodes/{host}/status", run), "memory")
        total, used = memory.get("total"), memory.get("used")
        if not isinstance(total, int) or not isinstance(used, int):
            raise ApplyError(f"pvesh does not say how much memory {host} has free")
        return total - used


def _get(host: str, path: str, run: Run, *words: str) -> Any:
    """Asks a node by the interface of the cluster."""
    return json_of(run(["ssh", f"root@{host}", "pvesh", "get", path, *words, "--output-format", "json"], None), "pvesh")


def _listed(found: Any) -> str:
    """Writes the names of devices or disks."""
    names = [str(one.get("volid") if isinstance(one, dict) else one) for one in found] if isinstance(found, list) else [str(found)]
    return ", ".join(names)[:200]


def _guests(host: str, run: Run) -> list[dict[str, Any]]:
    said = _get(host, "/cluster/resources", run, "--type", "vm")
    found = [guest for guest in said if isinstance(guest, dict)] if isinstance(said, list) else []
    # Numbers become words of commands.
    return [guest for guest in found if isinstance(guest.get("vmid"), int)]


def _is_guest(guest: dict[str, Any], step: Step, run: Run) -> bool:
    """Says whether a guest of that name is the plan's: names are chosen by users, and two guests may have one."""
    said = _get(step.source, f"/nodes/{guest.get('node')}/qemu/{guest.get('vmid')}/config", run)
    known = _UUID.search(str(said.get("smbios1", ""))) if isinstance(said, dict) else None
    return known is not None and known.group(1).lower() == step.guest_id.lower()
