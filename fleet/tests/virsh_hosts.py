"""Hosts of libvirt in memory, which stand for virsh."""

from collections.abc import Mapping, Sequence


def moved(argv: Sequence[str]) -> str | None:
    """Gives the guest that a command moves."""
    return argv[argv.index("--domain") + 1] if argv[3] == "migrate" else None


class VirshHosts:
    """Keeps where guests are. A host has `free` bytes, or plenty."""

    def __init__(self, where: Mapping[str, str], free: Mapping[str, int] | None = None) -> None:
        self.where, self.free = dict(where), free or {}

    def __call__(self, argv: Sequence[str], stdin: str | None) -> str:
        host = argv[2].removeprefix("test://")
        if argv[3] == "list":
            return "".join(f"{identity} name\n" for identity, at in self.where.items() if at == host)
        if argv[3] == "dumpxml":
            return "<domain type='kvm'/>"
        if argv[3] == "nodememstats":
            return f"free   :  {self.free.get(host, 1 << 40) // 1024} KiB\n"
        identity = moved(argv)
        assert identity is not None and self.where[identity] == host, "a guest is moved from where it is"
        self.where[identity] = argv[argv.index("--desturi") + 1].removeprefix("test://")
        return ""
