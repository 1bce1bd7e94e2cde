"""The hosts that are ready for the next key."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ksmith_fleet.model import Host


@dataclass(frozen=True)
class KeyChange:
    """A change of the fleet's key that hosts prepare."""

    key_id: str
    """The key that most of them are ready for."""
    ready: list[str]
    """The hosts that have read all their guests with it."""
    unready: list[str]


def key_change(hosts: Sequence[Host]) -> KeyChange | None:
    """Says which hosts are ready for the next key, if there is one."""
    votes = Counter(host.next_key_id for host in hosts if host.next_key_id)
    if not votes:
        return None
    key_id = votes.most_common(1)[0][0]
    ready = [host.name for host in hosts if host.next_key_id == key_id]
    return KeyChange(key_id, ready, [host.name for host in hosts if host.next_key_id != key_id])
