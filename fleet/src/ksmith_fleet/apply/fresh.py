"""Whether hosts are still as a plan has them, by newer sketches."""

from ksmith_fleet.model import Fleet
from ksmith_fleet.plan_file import Plan


def changes(plan: Plan, fleet: Fleet) -> list[str]:
    """Names what has changed on the targets of a plan since its sketches.

    Guests that came meanwhile take memory that the plan gives to others, and may be of a trust domain that must not share the host.
    Guests on their way by this plan are where one of its moves begins or ends.
    """
    at: dict[str, set[str]] = {identity: {host} for identity, host in plan.placement.items()}
    for step in plan.steps:
        at.setdefault(step.guest_id, set()).update((step.source, step.target))
    targets = {step.target for step in plan.steps}
    if any(host.key_id != plan.key_id for host in fleet.hosts):
        return ["the sketches have another key than the plan"]
    found = [f"{host} has no sketch that can be used" for host in sorted(targets - {host.name for host in fleet.hosts})]
    times = {promise.host: promise.time_ms for promise in plan.hosts}
    found += [f"the sketch of {host.name} is older than the plan's" for host in fleet.hosts if host.time_ms < times.get(host.name, 0)]
    for guest in fleet.guests:
        if guest.id not in at and guest.host in targets:
            found.append(f"{guest.name} has come to {guest.host}")
        elif guest.id in at and guest.host not in at[guest.id]:
            found.append(f"{guest.name} has gone to {guest.host}")
    known = {left.split(": ", 1)[0] for left in plan.left_out}
    for host in fleet.hosts:
        if host.name in targets and host.skipped and host.name not in known:
            found.append(f"{host.name} has guests that its sketch leaves out: {', '.join(host.skipped)}")
    return found
