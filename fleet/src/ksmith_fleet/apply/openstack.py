"""OpenStack: `openstack server migrate --live-migration`."""

import uuid
from dataclasses import dataclass

from ksmith_fleet.apply.backend import Action, ApplyError, Run
from ksmith_fleet.plan_file import Step

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
        words = ["openstack", "--os-compute-api-version", "2.30", "server", "migrate", "--live-migration", "--host", step.target, "--wait"]
        return [Action([*words, step.guest_id])]

    def where(self, step: Step, run: Run) -> str | None:
        """Asks for the server's host."""
        _check(step)
        host = run(["openstack", "server", "show", step.guest_id, "-f", "value", "-c", HOST], None).strip()
        return host if host in (step.source, step.target) else None

    def free_bytes(self, host: str, run: Run) -> int | None:
        """Asks for the memory of the hypervisor."""
        said = run(["openstack", "hypervisor", "show", host, "-f", "value", "-c", "free_ram_mb"], None).strip()
        return int(said) * 2**20 if said.lstrip("-").isdigit() else None
