"""OpenStack: `openstack server migrate --live-migration`."""

import uuid
from dataclasses import dataclass
from typing import Any

from ksmith_fleet.apply.backend import Action, ApplyError, Run, json_of, part
from ksmith_fleet.plan_file import Step

API = "2.30"
"""The version of the interface to Nova that takes the target of a live migration. From 2.88 on it does not say what is free."""
HOST = "OS-EXT-SRV-ATTR:host"


def _check(step: Step) -> None:
    """Refuses a guest that has no UUID: it is no server, and its name could be taken for an option."""
    try:
        uuid.UUID(step.guest_id)
    except ValueError as error:
        raise ApplyError(f"{step.guest} has no UUID: OpenStack knows servers by theirs") from error


def _placement(run: Run, *words: str) -> list[dict[str, Any]]:
    """Asks the placement service, of which the client knows by its plugin `osc-placement`."""
    try:
        said = json_of(run(["openstack", "resource", "provider", *words, "-f", "json"], None), "openstack")
    except ApplyError as error:
        if "is not an openstack command" in str(error):
            raise ApplyError("the client lacks the placement service: pip install osc-placement") from error
        raise
    if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
        raise ApplyError(f"the placement service gave no list to {' '.join(words)}")
    return said


def _whole(said: object) -> int:
    if not isinstance(said, int):
        raise ApplyError(f"the placement service gave {said!r} for a number")
    return said


@dataclass(frozen=True)
class OpenStack:
    """An OpenStack cloud by its command-line client. Naming a target host needs the administrator's role."""

    def actions(self, step: Step) -> list[Action]:
        """Gives the command of a move, which waits for its end."""
        _check(step)
        words = ["openstack", "--os-compute-api-version", API, "server", "migrate", "--live-migration", "--host", step.target, "--wait"]
        return [Action([*words, step.guest_id])]

    def where(self, step: Step, run: Run) -> str | None:
        """Asks for the server's host."""
        _check(step)
        host = run(["openstack", "server", "show", step.guest_id, "-f", "value", "-c", HOST], None).strip()
        return host if host in (step.source, step.target) else None

    def obstacle(self, step: Step, run: Run) -> str | None:
        """Asks the placement service whether the target has what it has allocated to the server.

        Nova checks CPU, disks and devices before a live migration, and then leaves the server where it is.
        """
        _check(step)
        needed: dict[str, int] = {}
        for one in _placement(run, "allocation", "show", step.guest_id):
            for name, amount in part(one, "resources").items():
                needed[name] = needed.get(name, 0) + _whole(amount)
        target = next((one for one in _placement(run, "list", "--name", step.target) if one.get("name") == step.target), None)
        if target is None:
            return f"the placement service does not know {step.target}"
        provider = str(target.get("uuid"))
        usages = {one.get("resource_class"): one.get("usage") for one in _placement(run, "usage", "show", provider)}
        inventory = {one.get("resource_class"): one for one in _placement(run, "inventory", "list", provider)}
        for name, amount in sorted(needed.items()):
            had = inventory.get(name)
            if had is None:
                return f"{step.target} has no {name}"
            free = int((_whole(had.get("total")) - _whole(had.get("reserved"))) * float(had.get("allocation_ratio", 1.0))) - _whole(usages.get(name))
            if amount > free:
                return f"the placement service has {max(0, free)} {name} left on {step.target}, and it needs {amount}"
        return None

    def free_bytes(self, host: str, run: Run) -> int | None:
        """Asks for the memory of the hypervisor.

        Nova subtracts the flavors of all servers from the memory. Where memory is overcommitted that may be below nothing, and says
        nothing of what is free. The scheduler then has its own limit, `ram_allocation_ratio`, and refuses a target beyond it.
        """
        words = ["openstack", "--os-compute-api-version", API, "hypervisor", "show", host, "-f", "value", "-c", "free_ram_mb"]
        said = run(words, None).strip()
        if not said.removeprefix("-").isdecimal():
            raise ApplyError(f"OpenStack does not say how much memory {host} has free: {said[:80]!r}")
        return None if int(said) < 0 else int(said) * 2**20
