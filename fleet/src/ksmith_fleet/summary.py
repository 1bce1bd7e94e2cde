"""A plan in three lines: what it gains, what it moves, and what it risks."""

from ksmith_fleet.placement.goal import PRESSED_ABOVE
from ksmith_fleet.plan_file import HostPromise, Plan


def summary(plan: Plan) -> list[str]:
    """Gives the three lines."""
    return [f"gains: {_gains(plan)}", f"moves: {_moves(plan)}", f"risks: {_risks(plan)}"]


def _gains(plan: Plan) -> str:
    before, after = plan.saved_before.expected, plan.saved_after.expected
    sign, more = (1, "more") if plan.gain_bytes >= 0 else (-1, "less")
    low, high = sorted((sign * plan.gain_low_bytes, sign * plan.gain_high_bytes))
    saved = f"hosts save {_size(abs(plan.gain_bytes))} {more} by merging ({_size(low)} to {_size(high)}; {_size(before)} become {_size(after)})"
    saved += f"; any placement shares {_size(plan.bound_bytes)} at most"
    if plan.bound_bytes:
        saved += f", this one {1 - plan.distance:.0%} of that"
    return "; ".join([*_served(plan), saved])


def _served(plan: Plan) -> list[str]:
    """Says how the goal is served, if it is another than to save."""
    hosts = [host for host in plan.hosts if host.room]
    if plan.goal == "relieve":
        before = sum(host.need_before > PRESSED_ABOVE * host.room for host in hosts)
        return [f"hosts above {PRESSED_ABOVE:.0%} of their room: {before} to {sum(host.need_after > PRESSED_ABOVE * host.room for host in hosts)}"]
    if plan.goal == "balance" and hosts:
        full, then = [host.need_before / host.room for host in hosts], [host.need_after / host.room for host in hosts]
        return [f"hosts use {min(full):.0%} to {max(full):.0%} of their room, then {min(then):.0%} to {max(then):.0%}"]
    if plan.goal == "empty":
        empty = [host.host for host in hosts if host.guests_before and not host.guests_after]
        return [f"{_count(len(empty), 'host')} become empty" + (f" ({_some(empty)})" if empty else "")]
    return [f"{host.host} goes from {host.guests_before} guests to {host.guests_after}" for host in plan.hosts if host.host in plan.closed]


def _moves(plan: Plan) -> str:
    if not plan.steps:
        return "none"
    guests = len({step.guest_id for step in plan.steps})
    text = f"{_count(guests, 'guest')} in {_count(len(plan.steps), 'move')}, {_size(plan.moved_bytes)}"
    if plan.gain_bytes > 0:
        text += f": {plan.moved_bytes / plan.gain_bytes:.1f} GiB for each GiB gained"
    largest = max(plan.steps, key=lambda step: step.bytes)
    return text + f"; the largest is {largest.guest} with {_size(largest.bytes)}"


def _risks(plan: Plan) -> str:
    targets = {step.target for step in plan.steps}
    hosts = [host for host in plan.hosts if host.host in targets] or plan.hosts
    found = [_fullest(hosts)]
    lacking = [host for host in hosts if host.unmerged_after > host.room]
    if lacking:
        worst = max(lacking, key=lambda host: host.unmerged_after - host.room - host.swap_free)
        most = f"{worst.host} {_size(worst.unmerged_after - worst.room)} with {_size(worst.swap_free)} of swap"
        found.append(f"if nothing stayed merged, {_count(len(lacking), 'host')} would lack memory: {most}")
    cpus = max((host for host in hosts if host.cpus), key=lambda host: host.vcpus_after / host.cpus, default=None)
    if cpus is not None:
        found.append(f"{cpus.vcpus_after / cpus.cpus:.1f} vCPUs a CPU at most ({cpus.host})")
    memory = max((host for host in hosts if host.memory_bytes), key=lambda host: host.configured_after / host.memory_bytes, default=None)
    if memory is not None:
        found.append(f"configured memory is {memory.configured_after / memory.memory_bytes:.2f} times the memory at most ({memory.host})")
    if plan.faults:
        found.insert(0, f"{len(plan.faults)} broken rules stay")
    return "; ".join(found)


def _fullest(hosts: list[HostPromise]) -> str:
    host = max(hosts, key=lambda one: one.need_after / one.room if one.room else 0.0)
    return f"{host.host} is the fullest with {host.need_after / host.room:.0%} of its room" if host.room else f"{host.host} has no room"


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _size(value: float) -> str:
    return f"{value / 2**30:,.1f} GiB" if value >= 2**30 else f"{value / 2**20:,.1f} MiB"
