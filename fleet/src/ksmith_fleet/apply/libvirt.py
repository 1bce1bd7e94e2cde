"""libvirt: `virsh migrate --live`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ksmith_fleet.apply import libvirt_checks as checks
from ksmith_fleet.apply.backend import Action, ApplyError, Run
from ksmith_fleet.plan_file import Step

_KIB = re.compile(r"^(\w+) *: *(\d+) KiB$", re.MULTILINE)


@dataclass(frozen=True)
class Libvirt:
    """Hosts that libvirt manages, each with a URI."""

    uris: Mapping[str, str] = field(default_factory=dict)
    template: str = "qemu+ssh://{host}/system"
    options: Sequence[str] = ()
    """More options of `virsh migrate`, such as --copy-storage-all."""
    shmem_bytes: Mapping[str, int] = field(default_factory=dict)
    """Shared memory of each host, which libvirt counts among its caches: memory of guests and tmpfs, which no arrival can displace."""

    def uri(self, host: str) -> str:
        """Gives the URI of a host."""
        return self.uris.get(host) or self.template.format(host=host)

    def actions(self, step: Step) -> list[Action]:
        """Gives the command of a move. The guest is named by its UUID, which its own user cannot choose, and never as an option."""
        source, target = self.uri(step.source), self.uri(step.target)
        words = ["virsh", "-c", source, "migrate", "--live", "--persistent", "--undefinesource", "--abort-on-error"]
        return [Action([*words, *self.options, "--domain", self._name(step), "--desturi", target])]

    def where(self, step: Step, run: Run) -> str | None:
        """Asks both hosts for their running guests."""
        found = []
        for host in (step.source, step.target):
            names = run(["virsh", "-c", self.uri(host), "list", "--state-running", "--uuid", "--name"], None)
            for line in names.splitlines():
                # A line is UUID and name. A guest may have another's UUID for a name.
                identity, _, name = line.strip().partition(" ")
                if self._name(step) == (name.strip() if "/" in step.guest_id else identity):
                    found.append(host)
        if len(found) > 1:
            raise ApplyError(f"{step.guest} runs on {step.source} and on {step.target}: stop one of them by hand")
        return found[0] if found else None

    def obstacle(self, step: Step, run: Run) -> str | None:
        """Looks for devices that are passed through, and for storage pools, machine type and CPU that the target lacks.

        libvirt checks more when the migration begins, and then leaves the guest where it is.
        """
        source, target = self._virsh(step.source, run), self._virsh(step.target, run)
        domain = checks.parse_xml(source("dumpxml", "--domain", self._name(step)), step.guest)
        copies_storage = any(option.startswith("--copy-storage") for option in self.options)
        return (
            checks.passed_through(domain)
            or (None if copies_storage else checks.missing_pools(domain, step.target, target))
            or checks.foreign_machine(domain, step.target, target)
            or checks.foreign_cpu(domain, step.source, step.target, source, target)
        )

    def free_bytes(self, host: str, run: Run) -> int | None:
        """Asks libvirt for the memory of the host: free, buffers and the cache that can be dropped."""
        said = run(["virsh", "-c", self.uri(host), "nodememstats"], None)
        kib = {key: int(size) for key, size in _KIB.findall(said)}
        if "free" not in kib:
            raise ApplyError(f"virsh does not say how much memory {host} has free: {said[:80]!r}")
        cached = max(0, kib.get("cached", 0) * 1024 - self.shmem_bytes.get(host, 0))
        return (kib["free"] + kib.get("buffers", 0)) * 1024 + cached

    def _virsh(self, host: str, run: Run) -> checks.Virsh:
        return lambda *words, stdin=None: run(["virsh", "-c", self.uri(host), *words], stdin)

    @staticmethod
    def _name(step: Step) -> str:
        return step.guest if "/" in step.guest_id else step.guest_id
