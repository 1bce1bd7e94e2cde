"""Compares what a plan promised with what hosts save by newer sketches."""

from dataclasses import dataclass

from ksmith_fleet.estimate import zero_saved
from ksmith_fleet.interval import Estimate
from ksmith_fleet.model import Fleet, Guest, Host
from ksmith_fleet.plan_file import HostPromise, Plan


@dataclass(frozen=True)
class Kept:
    """One host: what was promised, and what KSM saves there now."""

    host: str
    promised: Estimate
    saved: int | None
    """What KSM saves of its guests, without zero pages. `None` if it is not known, as `why` says."""
    why: str
    strangers: list[str]
    """Guests that are there and that the plan has elsewhere or does not know."""
    missing: list[str]
    """Guests that the plan has there and that are not."""

    @property
    def distance(self) -> float | None:
        """Gives how far the saving is from the promise, in parts of the promise."""
        if self.saved is None or not self.promised.expected:
            return None
        return self.saved / self.promised.expected - 1.0

    def holds(self, within: float) -> bool:
        """Says whether the host saves the promise, less this part of it, and has all guests that the plan has there."""
        return self.saved is not None and self.saved >= (1.0 - within) * self.promised.expected and not self.missing


def check(plan: Plan, fleet: Fleet) -> list[Kept]:
    """Compares host by host. Savings are the sum of the hosts' accounts of their guests."""
    names = {guest.id: guest.name for guest in fleet.guests}
    where = {guest.id: guest.host for guest in fleet.guests}
    hosts = {host.name: host for host in fleet.hosts}
    result = []
    for promise in plan.hosts:
        guests = [guest for guest in fleet.guests if guest.host == promise.host]
        wanted = {identity for identity, host in plan.placement.items() if host == promise.host}
        saved, why = _saved(promise, hosts.get(promise.host), guests)
        result.append(
            Kept(
                host=promise.host,
                promised=promise.saved_after,
                saved=saved,
                why=why,
                strangers=sorted(guest.name for guest in guests if guest.id not in wanted),
                missing=sorted(names.get(i, i) for i in wanted if where.get(i) != promise.host),
            )
        )
    return result


def _saved(promise: HostPromise, host: Host | None, guests: list[Guest]) -> tuple[int | None, str]:
    """Gives what KSM saves of the guests without zero pages, which are in no promise."""
    if host is None:
        return None, "it has no sketch that can be used"
    if host.time_ms <= promise.time_ms:
        return None, "its sketch is no newer than the plan's"
    if any(guest.saved_bytes is None for guest in guests):
        return None, "its sketch lacks what KSM saves"
    zero = sum(guest.zero_saved_bytes or 0 for guest in guests)
    if any(guest.zero_saved_bytes is None for guest in guests):
        zero = host.zero_bytes
    if not host.use_zero_pages:
        # KSM merges zero pages like any other content here, and its account does not tell them apart.
        zero += round(zero_saved(sum(guest.zero_pages for guest in guests), False, host.max_page_sharing) * host.page_size)
    return max(0, sum(guest.saved_bytes or 0 for guest in guests) - zero), ""
