"""Why libvirt would not move a guest, asked before anything is begun."""

from collections.abc import Callable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from ksmith_fleet.apply.backend import ApplyError

Virsh = Callable[..., str]
"""Runs a command of virsh on one host: its words, and `stdin`. Raises `ApplyError` if it fails."""


def parse_xml(text: str, what: str) -> Element:
    """Reads what libvirt wrote. Its parser follows no entity out of the text."""
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ApplyError(f"virsh gave no XML of {what}: {text[:80]!r}") from error


def passed_through(domain: Element) -> str | None:
    """Names the devices of the host that the guest has. Its memory is pinned for them, and KSM merges none of it.

    libvirt unplugs those that have a virtual device to stand in for them (`<teaming type='transient'>`).
    """
    found = [str(one.get("type")) for one in domain.iterfind("devices/hostdev") if not _has_stand_in(one)]
    found += ["network" for one in domain.iterfind("devices/interface[@type='hostdev']") if not _has_stand_in(one)]
    return f"it has devices of its host passed through: {', '.join(found)}" if found else None


def _has_stand_in(device: Element) -> bool:
    return device.find("teaming[@type='transient']") is not None


def missing_pools(domain: Element, target: str, ask: Virsh) -> str | None:
    """Names storage pools of the guest's disks that the target has not. Paths are not looked for: a mounted file system needs no pool."""
    needed = {str(source.get("pool")) for source in domain.iterfind("devices/disk/source[@pool]")}
    if not needed:
        return None
    missing = needed - {line.strip() for line in ask("pool-list", "--name").splitlines()}
    return f"{target} has no active storage pool {', '.join(sorted(missing))}" if missing else None


def foreign_machine(domain: Element, target: str, ask: Virsh) -> str | None:
    """Asks the target for its machine types (`domcapabilities`)."""
    machine = _machine_words(domain)
    if "--machine" not in machine:
        return None
    said = _complaint(ask, ["domcapabilities", *machine], None, ("is not supported by emulator",))
    return f"{target} cannot run it: {said}" if said else None


def foreign_cpu(domain: Element, source: str, target: str, ask_source: Virsh, ask_target: Virsh) -> str | None:
    """Compares the guest's CPU with what the target can give (`hypervisor-cpu-compare`), or both hosts' where the guest has its host's."""
    cpu = domain.find("cpu")
    if cpu is None:
        return None
    if cpu.get("mode") in ("host-passthrough", "maximum"):
        here, there = (_host_cpu(ask("capabilities"), host) for ask, host in ((ask_source, source), (ask_target, target)))
        return None if here == there else f"it has the CPU of its host, and that of {target} is another: give it a CPU model that both have"
    words = ["hypervisor-cpu-compare", "--error", *_machine_words(domain), "/dev/stdin"]
    said = _complaint(ask_target, words, ElementTree.tostring(cpu, "unicode"), ("incompatible", "Unknown CPU model"))
    return f"{target} has no such CPU: {said}" if said else None


def _machine_words(domain: Element) -> list[str]:
    found = domain.find("os/type")
    machine = {} if found is None else found.attrib
    said = {"--virttype": domain.get("type"), "--arch": machine.get("arch"), "--machine": machine.get("machine")}
    return [word for key, value in said.items() if value for word in (key, value)]


def _host_cpu(capabilities: str, host: str) -> tuple[object, ...]:
    cpu = parse_xml(capabilities, f"the capabilities of {host}").find("host/cpu")
    if cpu is None:
        raise ApplyError(f"virsh does not say which CPU {host} has")
    return cpu.findtext("vendor"), cpu.findtext("model"), frozenset(one.get("name") for one in cpu.iterfind("feature"))


def _complaint(ask: Virsh, words: Sequence[str], stdin: str | None, signs: tuple[str, ...]) -> str | None:
    """Gives libvirt's last complaint if it has one of the signs. One that only lacks the question says nothing of the guest."""
    try:
        ask(*words, stdin=stdin)
    except ApplyError as error:
        said = str(error).rstrip().rpartition("error: ")[2]
        return said[:300] if any(sign in said for sign in signs) else None
    return None
