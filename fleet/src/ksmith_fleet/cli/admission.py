"""The hosts for one more guest, as the command and the service print them."""

from dataclasses import asdict
from typing import Any

from ksmith_fleet.cli.common import Read
from ksmith_fleet.estimate import shared_on_bins
from ksmith_fleet.placement.build import build
from ksmith_fleet.placement.named import Names
from ksmith_fleet.planner import plan_admit
from ksmith_fleet.rules import Rules


def admission(read: Read, rules: Rules, like: str) -> dict[str, Any]:
    """Gives the hosts that have room for a guest like another, the best first. Sizes are in bytes."""
    fleet = read.fleet
    built = build(fleet, read.incidence, read.alone, rules.for_admission(), is_admission=True)
    guest = Names(fleet).guest(like)
    places = plan_admit(built, built.items.index([guest]))
    shared = shared_on_bins(read.alone.incidence, guest, built.bin_of(built.problem.current), len(built.bins))
    hosts = [
        {
            "host": fleet.hosts[built.bins[place.where].host].name,
            "node": built.bins[place.where].node,
            "shared_bytes": asdict(shared[place.where].times(fleet.page_size)),
            "free_bytes": int(place.free * fleet.page_size),
        }
        for place in places
    ]
    return {"like": like, "hosts": hosts, "left_out": [str(left) for left in fleet.left_out]}
