"""OpenStack: `openstack server migrate --live-migration`."""

import uuid
from dataclasses import dataclass

from ksmith_fleet.apply.backend import Action, ApplyError, Run
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
        """Nova checks CPU, disks and devices before a live migration, and then leaves the server where it is."""
        del step, run
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
