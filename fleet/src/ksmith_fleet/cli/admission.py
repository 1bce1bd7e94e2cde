"""The hosts for one more guest, as the command and the service print them."""

from typing import Any

from ksmith_fleet.cli.common import Read
from ksmith_fleet.placement.build import build
from ksmith_fleet.placement.named import Names
from ksmith_fleet.planner import plan_admit
from ksmith_fleet.rules import Rules


def admission(read: Read, rules: Rules, like: str) -> dict[str, Any]:
    """Gives the hosts that have room for a guest like another, the best first. Sizes are in bytes."""
    fleet = read.fleet
    built = build(fleet, read.incidence, read.alone, rules.for_admission(), is_admission=True)
    places = plan_admit(built, built.items.index([Names(fleet).guest(like)]))
    scale = fleet.page_size / max(built.problem.kept, 1e-9)
    hosts = [
        {
            "host": fleet.hosts[built.bins[place.where].host].name,
            "node": built.bins[place.where].node,
            "shared_bytes": int(place.shared * scale),
            "free_bytes": int(place.free * fleet.page_size),
        }
        for place in places
    ]
    return {"like": like, "hosts": hosts, "left_out": [str(left) for left in fleet.left_out]}
