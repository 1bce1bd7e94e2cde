"""Which guests the operator's rules mean."""

from ksmith_fleet.model import Fleet
from ksmith_fleet.rules import BadRulesError, GuestRule, Rules


def guest_named(fleet: Fleet, name: str) -> int:
    """Finds the guest of that id or name.

    Any user may start a process under the name of a verified guest. So a name means the verified guest, if there is one.
    """
    found = [at for at, guest in enumerate(fleet.guests) if guest.id == name]
    for verified in (True, False):
        found = found or [at for at, guest in enumerate(fleet.guests) if guest.name == name and guest.verified is verified]
    if not found:
        raise BadRulesError(f"no sketch has the guest {name}")
    if len(found) > 1:
        ids = ", ".join(f"{fleet.guests[at].id} on {fleet.guests[at].host}" for at in found)
        raise BadRulesError(f"{len(found)} guests are named {name}: name one by its id ({ids})")
    return found[0]


def group_named(fleet: Fleet, names: tuple[str, ...]) -> list[int]:
    """Finds the guests of a group, each once, in the order of the fleet."""
    return sorted({guest_named(fleet, name) for name in names})


def guest_rules(fleet: Fleet, rules: Rules) -> list[GuestRule]:
    """Gives the rule of each guest, and checks that all hosts that rules name are there."""
    found = [GuestRule()] * len(fleet.guests)
    seen: dict[int, str] = {}
    for name, rule in rules.guests.items():
        at = guest_named(fleet, name)
        if at in seen:
            raise BadRulesError(f"guests.{seen[at]} and guests.{name} are one guest: give it one rule")
        seen[at] = name
        found[at] = rule
    hosts = {host.name for host in fleet.hosts}
    wanted = set(rules.hosts) | {rule.host for rule in rules.guests.values() if rule.host is not None}
    if wanted - hosts:
        raise BadRulesError(f"the rules name hosts that have no sketch: {', '.join(sorted(wanted - hosts))}")
    return found
