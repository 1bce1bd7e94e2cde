"""Which guests the operator's rules mean."""

from ksmith_fleet.model import Fleet
from ksmith_fleet.rules import BadRulesError, GuestRule, Rules


class Names:
    """Finds guests by id or name, each in one step: rules may name all guests of a large fleet."""

    def __init__(self, fleet: Fleet) -> None:
        """Takes the guests of a fleet."""
        self.fleet = fleet
        self._of_id: dict[str, list[int]] = {}
        self._of_name: dict[tuple[str, bool], list[int]] = {}
        for at, guest in enumerate(fleet.guests):
            self._of_id.setdefault(guest.id, []).append(at)
            self._of_name.setdefault((guest.name, guest.verified), []).append(at)

    def guest(self, name: str) -> int:
        """Finds the guest of that id or name.

        Any user may start a process under the name of a verified guest. So a name means the verified guest, if there is one.
        """
        found = self._of_id.get(name) or self._of_name.get((name, True)) or self._of_name.get((name, False))
        if not found:
            raise BadRulesError(f"no sketch has the guest {name}")
        if len(found) > 1:
            ids = ", ".join(f"{self.fleet.guests[at].id} on {self.fleet.guests[at].host}" for at in found)
            raise BadRulesError(f"{len(found)} guests are named {name}: name one by its id ({ids})")
        return found[0]

    def group(self, names: tuple[str, ...]) -> list[int]:
        """Finds the guests of a group, each once, in the order of the fleet."""
        return sorted({self.guest(name) for name in names})


def guest_rules(names: Names, rules: Rules) -> list[GuestRule]:
    """Gives the rule of each guest, and checks that all hosts that rules name are there."""
    fleet = names.fleet
    found = [GuestRule()] * len(fleet.guests)
    seen: dict[int, str] = {}
    for name, rule in rules.guests.items():
        at = names.guest(name)
        if at in seen:
            raise BadRulesError(f"guests.{seen[at]} and guests.{name} are one guest: give it one rule")
        seen[at] = name
        found[at] = rule
    hosts = {host.name for host in fleet.hosts}
    wanted = set(rules.hosts) | {host for rule in rules.guests.values() for host in (rule.host, *(rule.hosts or ())) if host is not None}
    if wanted - hosts:
        raise BadRulesError(f"the rules name hosts that have no sketch: {', '.join(sorted(wanted - hosts))}")
    return found
