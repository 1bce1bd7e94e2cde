"""Checks that sketches fit together: one key, one rate, one time, one host for each guest."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ksmith_fleet.faults import BadSketchError
from ksmith_fleet.files import Sketch
from ksmith_fleet.model import Fleet, LeftOut
from ksmith_fleet.text import duration


@dataclass(frozen=True)
class Rules:
    """What sketches of one fleet may differ in."""

    max_apart_s: float = 3600.0
    """The longest time between a sketch and the median of all."""
    now_ms: int | None = None
    """The time now. Sketches from later than this are left out; `None` checks nothing."""
    max_age_s: float = 86400.0
    """The age up to which a sketch is used, if `now_ms` is there."""
    max_guest_age_s: float | None = None
    """The longest time between the reading of a guest's pages and the sketch of its host; `None` checks nothing.

    A host reads one guest after the other and writes its file meanwhile, so a new file may have old guests.
    """
    common_rate: bool = False
    """Whether finer sketches are thinned to the coarsest rate, instead of being left out."""


def join(sketches: Sequence[Sketch], rules: Rules, left_out: Sequence[LeftOut] = ()) -> tuple[Fleet, list[Sketch]]:
    """Keeps the sketches that belong together, and names the others.

    A property on which hosts differ is decided by more than half of them. Without such a majority the fleet is refused.
    """
    fleet = Fleet(left_out=list(left_out))
    kept = _one_per_host(list(sketches), fleet)
    kept = _majority(kept, fleet, "key", lambda sketch: sketch.host.key_id, "its fingerprints have another key", "give all hosts one secret")
    kept = _majority(kept, fleet, "page size", lambda sketch: sketch.host.page_size, "its pages have another size", "plan each size by itself")
    if rules.common_rate and kept:
        bits = max(sketch.host.rate_bits for sketch in kept)
        kept = [thin(sketch, bits) for sketch in kept]
    kept = _majority(kept, fleet, "rate", lambda sketch: sketch.host.rate_bits, "it was sampled at another rate", "allow --common-rate")
    kept = _times(kept, fleet, rules)
    for sketch in kept:
        fleet.left_out += [LeftOut(f"{sketch.host.name}: {guest}", "the host skipped it") for guest in sketch.host.skipped]
    kept = _one_host_per_guest(kept, fleet)
    if rules.max_guest_age_s is not None:
        kept = [_young(sketch, rules.max_guest_age_s, fleet) for sketch in kept]
    if not kept:
        reasons = "".join(f"\n  {left}" for left in fleet.left_out)
        raise BadSketchError(f"no sketch can be used{reasons}")
    fleet.hosts = [sketch.host for sketch in kept]
    fleet.guests = [guest for sketch in kept for guest in sketch.guests]
    fleet.rate_bits = kept[0].host.rate_bits
    fleet.page_size = kept[0].host.page_size
    return fleet, kept


def thin(sketch: Sketch, bits: int) -> Sketch:
    """Keeps the contents that a lower rate would have sampled. Samples are nested, so the result is unbiased."""
    if bits == sketch.host.rate_bits:
        return sketch
    keep = sketch.fingerprints.view(np.uint64) < np.uint64(1 << (64 - bits))
    return replace(
        sketch,
        host=replace(sketch.host, rate_bits=bits),
        guest_of_row=sketch.guest_of_row[keep],
        fingerprints=sketch.fingerprints[keep],
        copies=sketch.copies[keep],
        residuals=sketch.residuals[keep],
    )


def _one_per_host(sketches: list[Sketch], fleet: Fleet) -> list[Sketch]:
    """Takes the newest sketch of each host. Two of one time contradict each other, so neither is taken.

    A file `HOST.parquet` goes before files of other names: a host that may write its own file alone cannot speak for another.
    So does such a file in the highest directory, or in one of the host's name, before one in a directory below.
    """
    by_host: dict[str, list[Sketch]] = {}
    for sketch in sketches:
        # Names of hosts have no case: `H1` would be a second host that is reached as the first.
        by_host.setdefault(sketch.host.name.lower(), []).append(sketch)
    highest = min((sketch.path.count("/") for sketch in sketches), default=0)
    kept = []
    for same in by_host.values():
        ranks = [_rank(sketch, highest) for sketch in same]
        name = same[ranks.index(min(ranks))].host.name
        why = f"{name} has a file of its own name" + ("" if max(ranks) > 1 else " in a directory above or of its name")
        fleet.left_out += [LeftOut(other.path, why) for other, rank in zip(same, ranks, strict=True) if rank > min(ranks)]
        same = [sketch for sketch, rank in zip(same, ranks, strict=True) if rank == min(ranks)]
        same.sort(key=lambda sketch: sketch.host.time_ms)
        newest = [sketch for sketch in same if sketch.host.time_ms == same[-1].host.time_ms]
        fleet.left_out += [LeftOut(old.path, f"{name} has a newer sketch") for old in same[: len(same) - len(newest)]]
        if len(newest) == 1:
            kept.append(newest[0])
        else:
            fleet.left_out += [LeftOut(two.path, f"two sketches of {name} have one time") for two in newest]
    return kept


def _rank(sketch: Sketch, highest: int) -> int:
    """Ranks how well the place of a file proves its host: 0 is best."""
    directory, _, file = sketch.path.rpartition("/")
    name = sketch.host.name
    if file.removesuffix(".parquet") != name:
        return 2
    return 0 if sketch.path.count("/") == highest or directory.rpartition("/")[2] == name else 1


def _majority(sketches: list[Sketch], fleet: Fleet, what: str, key: Callable[[Sketch], object], why: str, remedy: str) -> list[Sketch]:
    votes = Counter(key(sketch) for sketch in sketches)
    if len(votes) < 2:
        return sketches
    winner, count = votes.most_common(1)[0]
    if 2 * count <= len(sketches):
        parties = "; ".join(", ".join(sketch.host.name for sketch in sketches if key(sketch) == value) for value, _ in votes.most_common())
        raise BadSketchError(f"the hosts disagree on the {what}, and no {what} has a majority: {parties}: {remedy}")
    fleet.left_out += [LeftOut(sketch.host.name, f"{why}: {remedy}") for sketch in sketches if key(sketch) != winner]
    return [sketch for sketch in sketches if key(sketch) == winner]


def _times(sketches: list[Sketch], fleet: Fleet, rules: Rules) -> list[Sketch]:
    if not sketches:
        return sketches
    middle = float(np.median([sketch.host.time_ms for sketch in sketches]))
    kept = []
    for sketch in sketches:
        apart = (sketch.host.time_ms - middle) / 1000
        age = None if rules.now_ms is None else (rules.now_ms - sketch.host.time_ms) / 1000
        if abs(apart) > rules.max_apart_s:
            side = "after" if apart > 0 else "before"
            why = f"its time is {duration(abs(apart))} {side} the fleet's median: take a new sketch, or set its clock"
        elif age is not None and age < -60:
            why = f"its time is {duration(-age)} in the future: set its clock"
        elif age is not None and age > rules.max_age_s:
            why = f"it is {duration(age)} old: take a new one, or allow its age with --max-age"
        else:
            kept.append(sketch)
            continue
        fleet.left_out.append(LeftOut(sketch.host.name, why))
    return kept


def _one_host_per_guest(sketches: list[Sketch], fleet: Fleet) -> list[Sketch]:
    """Leaves out guests that two hosts claim: one of the hosts is wrong, or the guest is on its way."""
    # Hexadecimal digits of a UUID have two forms.
    seen = Counter(guest.id.lower() for sketch in sketches for guest in sketch.guests)
    double = {identity for identity, count in seen.items() if count > 1 and "/" not in identity}
    names = {identity for identity, count in seen.items() if count > 1 and "/" in identity}
    if not double and not names:
        return sketches
    kept = []
    for sketch in sketches:
        wrong = {guest.id for guest in sketch.guests if guest.id.lower() in double}
        fleet.left_out += [LeftOut(f"{sketch.host.name}: {guest.name}", "two hosts claim this guest") for guest in sketch.guests if guest.id in wrong]
        rest = _without(sketch, wrong)
        # Without a UUID an id is unique on its host only. The host's name makes it unique in the fleet.
        named = [replace(g, id=f"{sketch.host.name}/{g.id}") if g.id.lower() in names else g for g in rest.guests]
        kept.append(replace(rest, guests=named))
    return kept


def _young(sketch: Sketch, most_s: float, fleet: Fleet) -> Sketch:
    """Leaves out guests that were read too long before the file was written: what they hold has changed."""
    old = set()
    for guest in sketch.guests:
        age = (sketch.host.time_ms - guest.time_ms) / 1000
        if age > most_s:
            why = f"its pages were read {duration(age)} before the sketch: raise max_cpu_percent there, or allow its age with --max-age"
            fleet.left_out.append(LeftOut(f"{sketch.host.name}: {guest.name}", why))
            old.add(guest.id)
    return _without(sketch, old)


def _without(sketch: Sketch, ids: set[str]) -> Sketch:
    """Leaves out guests, which still run there."""
    if not ids:
        return sketch
    good = [guest for guest in sketch.guests if guest.id not in ids]
    number = {guest.id: at for at, guest in enumerate(good)}
    moved = np.array([number.get(guest.id, -1) for guest in sketch.guests], dtype=np.int32)
    stored = sketch.stored and replace(sketch.stored, guests=sketch.stored.guests[moved >= 0])
    at = moved[sketch.guest_of_row] if len(sketch.guest_of_row) else sketch.guest_of_row
    keep = at >= 0
    return replace(
        sketch,
        host=replace(sketch.host, skipped=(*sketch.host.skipped, *(guest.name for guest in sketch.guests if guest.id in ids))),
        guests=good,
        stored=stored,
        guest_of_row=at[keep],
        fingerprints=sketch.fingerprints[keep],
        copies=sketch.copies[keep],
        residuals=sketch.residuals[keep],
    )
