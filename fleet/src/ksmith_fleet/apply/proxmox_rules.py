"""Rules for plans that a Proxmox cluster has: HA's rules, and storage and devices that some nodes have."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ksmith_fleet.apply.proxmox import Proxmox, local_needs
from ksmith_fleet.apply.proxmox_api import CONNECTIONS, RefusedError, path_of
from ksmith_fleet.apply.proxmox_ha import NodeRule, groups_of_guests, managed_guests, node_rules
from ksmith_fleet.model import Fleet, Guest
from ksmith_fleet.placement.named import Names
from ksmith_fleet.rules import GuestRule, Rules

DEPENDS_ON_OTHERS = "blocking-ha-resources"
"""Why a node is refused while another guest is there. A plan may move that guest first, and knows the rule on both."""


def with_cluster(rules: Rules, fleet: Fleet, cluster: Proxmox, say: Callable[[str], None]) -> Rules:
    """Adds what a cluster would refuse to the operator's rules, so that no plan has such a move.

    A guest that HA would move others with stays, as does one that the cluster does not know. `say` is told why a guest stays.
    """
    said = {fleet.guests[Names(fleet).guest(name)].id: rule for name, rule in rules.guests.items()}
    managed = managed_guests(cluster.api)
    listed = cluster.guests()
    groups = groups_of_guests(cluster.api) if managed else []
    drawn = {sid for is_together, members in groups if is_together for sid in members}
    nodes = frozenset(host.name for host in fleet.hosts)
    guests = [guest for guest in fleet.guests if guest.kind == "qemu"]

    def narrowed(guest: Guest) -> tuple[str | None, GuestRule | str]:
        number = cluster.number_of(listed, guest.name, guest.id, {guest.host})
        if number is None:
            return None, "the cluster does not know it"
        sid = f"vm:{number}"
        if sid in managed and sid in drawn:
            return sid, "HA moves others with it"
        entry = managed.get(sid)
        try:
            checks = cluster.api.get(path_of("nodes", guest.host, "qemu", number, "migrate"))
            of_nodes = [] if entry is None else node_rules(cluster.api, entry)
        except RefusedError as error:
            return sid, f"Proxmox does not let it go: {error}"
        return sid, _narrowed(guest, checks, of_nodes, nodes)

    with ThreadPoolExecutor(CONNECTIONS) as executor:
        found = list(executor.map(narrowed, guests))
    sids: dict[str, str] = {}
    for guest, (sid, more) in zip(guests, found, strict=True):
        rule = said.get(guest.id, GuestRule())
        if sid is not None:
            sids[sid] = guest.id
        if isinstance(more, str):
            say(f"{guest.host}: {guest.name} stays: {more}")
            said[guest.id] = replace(rule, fixed=True)
        elif more.hosts is not None:
            said[guest.id] = replace(rule, hosts=tuple(sorted(set(more.hosts).intersection(rule.hosts or more.hosts))))
    apart = [tuple(sids[sid] for sid in members if sid in sids and sid in managed) for is_together, members in groups if not is_together]
    return replace(rules, guests=said, apart=(*rules.apart, *(group for group in apart if len(group) > 1)))


def _narrowed(guest: Guest, checks: Any, rules: list[NodeRule], nodes: frozenset[str]) -> GuestRule | str:
    """Gives the hosts that a guest may go to, with its own, or why it stays."""
    if needs := local_needs(guest.host, checks):
        return needs
    refused = checks.get("not_allowed_nodes") if isinstance(checks, dict) else None
    barred = {node for node, why in (refused or {}).items() if not isinstance(why, dict) or set(why) - {DEPENDS_ON_OTHERS} or not why}
    free = {node for node in nodes - barred if not any(rule.against(guest.host, node) for rule in rules)} | {guest.host}
    return GuestRule(hosts=None if free == nodes else tuple(sorted(free)))
