"""Hosts and guests as plain data: what sketches say of them, without their fingerprints."""

from dataclasses import dataclass, field

from ksmith_fleet.text import shown


@dataclass(frozen=True)
class Guest:
    """One guest of a sketch. Numbers of pages are in pages of `Host.page_size`."""

    id: str
    name: str
    host: str
    kind: str
    domain: str | None
    klass: str
    pages: int
    zero_pages: int
    changing: float
    """The part of the nonzero pages that changed between two looks, from 0 to 1."""
    memory_bytes: int | None
    """The memory that the guest believes to have."""
    rss_bytes: int | None
    saved_bytes: int | None
    """What KSM saves of this guest now, by the host's account, zero pages included."""
    verified: bool
    """Whether name and id are the hypervisor's word, and not that of the guest's user."""
    time_ms: int
    zero_saved_bytes: int | None = None
    """The part of `saved_bytes` that the kernel's zero page saves."""
    vcpus: int | None = None
    """Its virtual CPUs."""
    configured_bytes: int | None = None
    """The memory that its hypervisor may give it. A balloon may have taken some of it away."""
    heavy: tuple[int, ...] | None = None
    """The steady copies of each content with over 8 copies, sampled or not. `None`: they were not counted."""
    swap_bytes: int = 0
    """What the guest has in swap. It arrives in the memory of another host, and must have room there."""

    def most_bytes(self) -> int:
        """Gives the memory that the guest may come to use, as far as its sketch says."""
        return max(self.configured_bytes or self.memory_bytes or 0, self.rss_bytes or 0)

    def rest_pages(self, page_size: int) -> float:
        """Gives the pages that the guest has beside those that KSM may merge, in memory and in swap."""
        resident = (self.rss_bytes or 0) / page_size
        return max(0.0, resident - self.pages) + self.swap_bytes / page_size


@dataclass(frozen=True)
class Host:
    """One host of a sketch, with the size of its memory and what else bounds a placement."""

    name: str
    boot: str
    time_ms: int
    page_size: int
    rate_bits: int
    key_id: str
    memory_bytes: int
    available_bytes: int | None
    reserved_bytes: int
    cpus: int | None
    numa_bytes: tuple[int, ...]
    merge_across_nodes: bool
    use_zero_pages: bool
    max_page_sharing: int
    zero_bytes: int
    """What the kernel's zero page saves on the host."""
    skipped: tuple[str, ...]
    """Guests that no plan knows, and that run there. Their memory still fills the host."""
    shmem_bytes: int = 0
    """Shared memory and tmpfs, which platforms count as page cache and no arrival can displace."""
    swap_free_bytes: int = 0
    unverified_bytes: int = 0
    """The part of what KSM saves that no page tables confirm: collapses may have undone it."""
    next_key_id: str = ""
    """The key that may come into use, as far as this host is concerned. Empty: none."""


@dataclass(frozen=True)
class LeftOut:
    """A file, a host or a guest that no plan uses, and the reason."""

    what: str
    why: str

    def __str__(self) -> str:
        """Says both on one line."""
        return shown(f"{self.what}: {self.why}".replace("\n", " "))


@dataclass
class Fleet:
    """All hosts and guests that passed every check, and what was left out."""

    hosts: list[Host] = field(default_factory=list)
    guests: list[Guest] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    rate_bits: int = 0
    page_size: int = 4096

    @property
    def rate(self) -> float:
        """The part of all contents that the sketches hold."""
        return float(2.0**-self.rate_bits)

    def host(self, name: str) -> Host:
        """Finds the host of that name."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(name)
