"""Compares what a plan promised with what hosts save by newer sketches."""

from dataclasses import dataclass

from ksmith_fleet.interval import Estimate
from ksmith_fleet.model import Fleet
from ksmith_fleet.plan_file import Plan


@dataclass(frozen=True)
class Kept:
    """One host: what was promised, and what KSM saves there now."""

    host: str
    promised: Estimate
    saved: int | None
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


def check(plan: Plan, fleet: Fleet) -> list[Kept]:
    """Compares host by host. Savings are the sum of the hosts' accounts of their guests."""
    result = []
    names = {guest.id: guest.name for guest in fleet.guests}
    here_all = {guest.id: guest.host for guest in fleet.guests}
    for promise in plan.hosts:
        guests = [guest for guest in fleet.guests if guest.host == promise.host]
        wanted = {identity for identity, host in plan.placement.items() if host == promise.host}
        known = any(host.name == promise.host for host in fleet.hosts) and all(g.saved_bytes is not None for g in guests)
        result.append(
            Kept(
                host=promise.host,
                promised=promise.saved_after,
                saved=sum(guest.saved_bytes or 0 for guest in guests) if known else None,
                strangers=sorted(guest.name for guest in guests if guest.id not in wanted),
                missing=sorted(names.get(i, i) for i in wanted if here_all.get(i) != promise.host),
            )
        )
    return result
