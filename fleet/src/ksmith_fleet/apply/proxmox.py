"""Proxmox VE: `POST /nodes/NODE/qemu/VMID/migrate` of its API."""

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ksmith_fleet.apply.backend import Action, ApplyError, Run, part
from ksmith_fleet.apply.proxmox_api import Api, RefusedError, path_of
from ksmith_fleet.apply.proxmox_ha import managed_guests, node_rules, objects
from ksmith_fleet.plan_file import Step

MOST_S = 7200.0
"""The longest time that a migration may take."""
_UUID = re.compile(r"(?:^|,)uuid=([0-9a-fA-F-]{36})(?:,|$)")
"""The UUID in a guest's `smbios1`, which the hypervisor gives the guest and its sketch has."""


@dataclass(frozen=True)
class Proxmox:
    """A Proxmox cluster. Hosts of the plan are its nodes."""

    api: Api
    vmids: Mapping[str, str] = field(default_factory=dict)
    """The number of each guest by its name or id."""

    def known_vmid(self, step: Step) -> str | None:
        """Gives the number of the guest, if it needs no question. A name of digits is none: users choose names."""
        found = self.vmids.get(step.guest) or self.vmids.get(step.guest_id) or ""
        return found if found.isascii() and found.isdigit() else None

    def vmid(self, step: Step) -> str:
        """Gives the number of the guest."""
        found = self.known_vmid(step)
        if found is None:
            raise ApplyError(f"the VMID of {step.guest} is not known: give --id {step.guest}=VMID")
        return found

    def with_vmids(self, steps: Sequence[Step]) -> "Proxmox":
        """Asks the cluster for the numbers of guests, by their names and UUIDs. A guest that it has not, or has twice, stays without one."""
        strange = [step for step in steps if self.known_vmid(step) is None]
        if not strange:
            return self
        listed = self.guests()
        found = dict(self.vmids)
        for step in strange:
            number = self.number_of(listed, step.guest, step.guest_id, {step.source, step.target})
            if number is not None:
                found[step.guest_id] = number
        return replace(self, vmids=found)

    def number_of(self, listed: Sequence[dict[str, Any]], name: str, guest_id: str, nodes: Set[str]) -> str | None:
        """Gives the number of the one guest on some nodes that has this name and UUID."""
        near = [guest for guest in listed if guest.get("node") in nodes]
        same = [guest for guest in near if name in (guest.get("name"), str(guest["vmid"]))]
        fits = [str(guest["vmid"]) for guest in same if self._is_guest(guest, guest_id)]
        return fits[0] if len(fits) == 1 else None

    def actions(self, step: Step) -> list[Action]:
        """Gives the request of a move, written as `pvesh` on any node would make it."""
        path = path_of("nodes", step.source, "qemu", self.vmid(step), "migrate")
        move = _Migration(self, step, path)
        words = ["pvesh", "create", path, "--target", step.target, "--online", "1"]
        return [Action(words, begin=move.begin, ended=move.ended, stop=move.stop, most_s=MOST_S)]

    def where(self, step: Step, run: Run) -> str | None:
        """Asks the cluster for its resources. A guest without a known number is where the plan has it, and is not moved."""
        del run
        number = self.known_vmid(step)
        if number is None:
            return step.source
        guest = self.guest(number)
        node = guest.get("node")
        return str(node) if guest.get("status") == "running" and node in (step.source, step.target) else None

    def obstacle(self, step: Step, run: Run) -> str | None:
        """Asks for the preconditions of a migration, for the rules of HA, and compares CPUs where the guest has its host's."""
        del run
        guest = path_of("nodes", step.source, "qemu", self.vmid(step))
        try:
            said = self.api.get(f"{guest}/migrate", target=step.target)
            config = self.api.get(f"{guest}/config")
        except RefusedError as error:
            # Such as the lock of a backup, or of a migration that goes on.
            return f"Proxmox does not let it go: {error}"
        cpu = str(config.get("cpu", "")) if isinstance(config, dict) else ""
        return _precondition(step, said) or self._foreign_cpu(step, cpu) or self._rule_against(step, f"vm:{self.vmid(step)}")

    def free_bytes(self, host: str, run: Run) -> int | None:
        """Asks the node for its memory."""
        del run
        memory = part(self.api.get(path_of("nodes", host, "status")), "memory")
        total, used = memory.get("total"), memory.get("used")
        if not isinstance(total, int) or not isinstance(used, int):
            raise ApplyError(f"Proxmox does not say how much memory {host} has free")
        return total - used

    def guest(self, number: str) -> dict[str, Any]:
        """Gives the cluster's entry of a guest, or an empty one."""
        return next((guest for guest in self.guests() if str(guest["vmid"]) == number), {})

    def guests(self) -> list[dict[str, Any]]:
        """Gives the entries of all guests."""
        # Numbers become parts of paths.
        return [guest for guest in objects(self.api.get("/cluster/resources", type="vm")) if isinstance(guest.get("vmid"), int)]

    def _is_guest(self, guest: dict[str, Any], guest_id: str) -> bool:
        """Says whether a guest of that name is the one with the id: names are chosen by users, and two guests may have one."""
        said = self.api.get(path_of("nodes", guest["node"], "qemu", guest["vmid"], "config"))
        known = _UUID.search(str(said.get("smbios1", ""))) if isinstance(said, dict) else None
        return known is not None and known.group(1).lower() == guest_id.lower()

    def _foreign_cpu(self, step: Step, cpu: str) -> str | None:
        if not re.match(r"(cputype=)?host(,|$)", cpu):
            return None
        models = [part(self.api.get(path_of("nodes", node, "status")), "cpuinfo").get("model") for node in (step.source, step.target)]
        if models[0] == models[1]:
            return None
        return f"it has the CPU of its host, and {step.target} has another ({models[1]}): give it a CPU model that both have"

    def _rule_against(self, step: Step, sid: str) -> str | None:
        """Looks for a rule by which the HA manager keeps the guest from its target, or brings it back. Those on other guests are preconditions."""
        entry = managed_guests(self.api).get(sid)
        reasons = [] if entry is None else [rule.against(step.source, step.target) for rule in node_rules(self.api, entry)]
        return next((reason for reason in reasons if reason), None)


@dataclass
class _Migration:
    """A migration that the API carries out as a task."""

    cluster: Proxmox
    step: Step
    path: str
    task: str = ""
    """The task's UPID: `UPID:NODE:PID:PSTART:STARTTIME:TYPE:VMID:USER:`."""
    is_under_way: bool = False
    """True if the HA manager has been seen to migrate."""

    def begin(self) -> None:
        """Asks for the migration. The answer is the UPID of a task."""
        said = self.cluster.api.post(self.path, target=self.step.target, online="1")
        if not isinstance(said, str) or len(said.split(":")) < 8:
            raise ApplyError(f"Proxmox gave no task to {self.path}: {json.dumps(said)[:80]}")
        self.task = said

    def ended(self, run: Run) -> bool:
        """Asks whether the task has ended, and for a guest of the HA manager whether that has moved it."""
        del run
        said = self.cluster.api.get(f"{self._task_path()}/status")
        status = said if isinstance(said, dict) else {}
        if status.get("status") != "stopped":
            return False
        result = str(status.get("exitstatus"))
        if result != "OK" and not result.startswith("WARNINGS"):
            raise ApplyError(f"the migration of {self.step.guest} has failed: {result}; its log is that of the task {self.task}")
        return self.task.split(":")[5] != "hamigrate" or self._has_arrived()

    def stop(self) -> None:
        """Stops the task. Proxmox then leaves the guest on its source."""
        self.cluster.api.delete(self._task_path())

    def _has_arrived(self) -> bool:
        """Looks where the guest is: the task of a managed guest only asks the HA manager for the migration."""
        guest = self.cluster.guest(self.cluster.vmid(self.step))
        if guest.get("node") == self.step.target:
            return True
        state = guest.get("hastate")
        if state == "error" or (self.is_under_way and state != "migrate"):
            raise ApplyError(f"the HA manager has not moved {self.step.guest}: its state is {state}")
        self.is_under_way |= state == "migrate"
        return False

    def _task_path(self) -> str:
        return path_of("nodes", self.task.split(":")[1], "tasks", self.task)


def local_needs(node: str, said: Any) -> str | None:
    """Says what of a node alone a guest needs, by the preconditions of its migration."""
    if not isinstance(said, dict):
        raise ApplyError(f"Proxmox does not say what a guest of {node} needs to be moved")
    if devices := said.get("local_resources"):
        return f"it uses what {node} alone has: {_listed(devices)}"
    disks = [disk for disk in said.get("local_disks") or [] if not (isinstance(disk, dict) and disk.get("cdrom"))]
    if disks:
        return f"its disks are on {node} alone: {_listed(disks)}; move them to shared storage first"
    return None


def _precondition(step: Step, said: Any) -> str | None:
    """Reads the preconditions of a migration (`GET /nodes/NODE/qemu/VMID/migrate`)."""
    if needs := local_needs(step.source, said):
        return needs
    refused = part(said, "not_allowed_nodes")
    if step.target in refused:
        return f"Proxmox does not allow {step.target}: {json.dumps(refused[step.target])[:200]}"
    if others := said.get("dependent-ha-resources"):
        return f"HA would move {_listed(others)} with it"
    return None


def _listed(found: Any) -> str:
    """Writes the names of devices, disks or guests."""
    names = [str(one.get("volid") if isinstance(one, dict) else one) for one in found] if isinstance(found, list) else [str(found)]
    return ", ".join(names)[:200]
