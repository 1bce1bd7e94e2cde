"""Rules of Proxmox's HA manager, which moves a guest back, or others with it, if a move breaks them."""

from dataclasses import dataclass
from typing import Any

from ksmith_fleet.apply.proxmox_api import Api, RefusedError


@dataclass(frozen=True)
class NodeRule:
    """The nodes that a guest may be on, or is rather on than on others."""

    name: str
    priorities: dict[str, int]
    """The nodes of the rule. A guest goes to those with the highest number first."""
    is_strict: bool
    """True if the guest is on no other node."""
    fails_back: bool
    """True if the manager brings the guest to a node of higher priority."""

    def priority(self, node: str) -> int:
        """Gives the priority of a node, below all others if the rule does not name it."""
        return self.priorities.get(node, -1)

    def against(self, source: str, target: str) -> str | None:
        """Says why the rule is against a move."""
        if self.is_strict and target not in self.priorities:
            return f"the HA rule {self.name} keeps it on {', '.join(sorted(self.priorities))}"
        if self.fails_back and self.priority(target) < self.priority(source):
            return f"HA would bring it back to {source} by the rule {self.name}"
        return None


def managed_guests(api: Api) -> dict[str, dict[str, Any]]:
    """Gives the entries of the guests that the HA manager moves, such as `vm:104`."""
    return {str(one.get("sid")): one for one in objects(api.get("/cluster/ha/resources", type="vm")) if one.get("state") != "ignored"}


def node_rules(api: Api, entry: dict[str, Any]) -> list[NodeRule]:
    """Gives the rules on the nodes of a managed guest: rules from Proxmox 9 on, the guest's group before."""
    fails_back = bool(entry.get("failback", 1))
    try:
        rules = objects(api.get("/cluster/ha/rules", type="node-affinity", resource=str(entry.get("sid"))))
    except RefusedError as error:
        if error.status != 501:
            raise
        if not entry.get("group"):
            return []
        groups = [group for group in objects(api.get("/cluster/ha/groups")) if group.get("group") == entry["group"]]
        return [_rule(str(one["group"]), one, bool(one.get("restricted")), not one.get("nofailback")) for one in groups]
    return [_rule(str(rule.get("rule")), rule, bool(rule.get("strict")), fails_back) for rule in rules if not rule.get("disable")]


def groups_of_guests(api: Api) -> list[tuple[bool, list[str]]]:
    """Gives the guests that must share a node (True) or must not, by rules from Proxmox 9 on."""
    try:
        rules = objects(api.get("/cluster/ha/rules", type="resource-affinity"))
    except RefusedError as error:
        if error.status == 501:
            return []
        raise
    return [(rule.get("affinity") == "positive", _listed(rule.get("resources"))) for rule in rules if not rule.get("disable")]


def objects(said: Any) -> list[dict[str, Any]]:
    """Takes the objects of a list."""
    return [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []


def _rule(name: str, said: dict[str, Any], is_strict: bool, fails_back: bool) -> NodeRule:
    """Reads the nodes of a rule: `NODE` or `NODE:PRIORITY`, with commas."""
    found = {}
    for one in _listed(said.get("nodes")):
        node, _, priority = one.partition(":")
        found[node] = int(priority) if priority.isdecimal() else 0
    return NodeRule(name, found, is_strict, fails_back)


def _listed(said: Any) -> list[str]:
    return [one.strip() for one in str(said or "").split(",") if one.strip()]
